"""``paretune worker``: join a study that many machines share, one worker per device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from paretune.harness.cli.asking import OutputOption, progress_on_stderr
from paretune.harness.usage import UsageError

__all__ = ["command"]


def command(
    storage: Annotated[str, typer.Option(help="Database URL, grpc://host:port or .journal file that holds the study.")],
    study: Annotated[str, typer.Option(help="Name of the study; `paretune tune --storage URL` prints it.")],
    output: OutputOption = Path("paretune-results"),
) -> None:
    """Work on a shared study until its effort is spent. Records are kept here and in the study."""
    from paretune.harness.joining import join
    from paretune.harness.runner import run_trial

    try:
        result = join(storage, study, output=output, run_trial=run_trial, progress=progress_on_stderr())
    except (KeyError, ValueError) as error:
        raise UsageError(_words(error)) from error
    print(f"{result.num_run} trials are finished; stopped: {result.stopped}.", file=sys.stderr)


def _words(error: Any) -> str:
    return str(error.args[0]) if error.args else str(error)
