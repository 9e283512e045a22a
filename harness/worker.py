"""The child process of a trial: reads ``trial.json`` in its folder, measures, and replaces ``result.json`` once.

Whatever it prints is a log that nobody reads for results. ``stage`` always names the phase it is in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paretune.harness.records import Trial

__all__ = ["RESULT", "STAGE", "TRIAL", "main", "work"]

TRIAL, RESULT, STAGE = "trial.json", "result.json", "stage"


def work(folder: Path) -> None:
    """Carry out the trial described in ``folder`` and leave its record there."""
    from paretune.harness.perform import perform

    trial = Trial.from_json((folder / TRIAL).read_text())
    record = perform(trial, lambda phase: _replace(folder / STAGE, phase))
    _replace(folder / RESULT, record.to_json())


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


def main() -> None:
    """Entry point of ``python -m paretune.harness.worker FOLDER``."""
    from paretune.harness.orphans import die_with_parent

    die_with_parent()
    work(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
