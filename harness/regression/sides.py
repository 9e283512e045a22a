"""Start base and head as what they are: two checkouts of this package, or two of the user's own project."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from paretune.harness.records import Record
from paretune.harness.regression import pair_worker
from paretune.harness.regression.interleave import Side
from paretune.harness.usage import UsageError

__all__ = ["is_own_checkout", "side"]

_FOLDERS = ("harness", "strategies", "attention", "configs")


def side(record: Record, *, checkout: Path | None, scratch: Path, num_warmup: int = 3) -> Side:
    """The process that runs the plan of ``record`` with the code of ``checkout``.

    checkout: ``None`` for the code as it is installed and the current folder; else a folder. One that holds this
    package is taken for its code, any other is the user's project: the process starts there and imports from there.
    scratch: a folder in which links may be made. Raises ``UsageError`` when there is no such folder.
    """
    asked = {"workload": dict(record.workload), "device": record.device, "plan": record.plan, "num_warmup": num_warmup}
    command = (sys.executable, "-P", pair_worker.__file__, json.dumps(asked))
    if checkout is None:
        return Side(command=command)
    if not checkout.is_dir():
        raise UsageError(f"--base {checkout}: there is no such folder. Check the base revision out there first.")
    if is_own_checkout(checkout):
        return Side(command=command, environment={"PYTHONPATH": str(_namespace(checkout.resolve(), scratch))})
    return Side(command=command, environment={"PYTHONPATH": str(checkout.resolve())}, folder=checkout)


def is_own_checkout(folder: Path) -> bool:
    """Whether the folder holds this package's own sources."""
    return all((folder / name).is_dir() for name in _FOLDERS)


def _namespace(checkout: Path, scratch: Path) -> Path:
    """A folder in which the checkout's packages stand under the names they are installed as."""
    package = scratch / f"namespace{len(list(scratch.iterdir()))}" / "paretune"
    package.mkdir(parents=True)
    for name in _FOLDERS:
        (package / name).symlink_to(checkout / name)
    return package.parent
