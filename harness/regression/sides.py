"""Start base and head as what they are: two checkouts of this package, or two of the user's own project."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from paretune.harness.records import Record
from paretune.harness.regression import pair_worker
from paretune.harness.regression.interleave import Side
from paretune.harness.usage import UsageError

__all__ = ["check_head", "is_own_checkout", "side"]

_FOLDERS = ("harness", "strategies", "attention", "configs")


def side(record: Record, *, checkout: Path | None, scratch: Path, num_warmup: int = 3) -> Side:
    """The process that runs the plan of ``record`` with the code of ``checkout``.

    checkout: ``None`` for the code as it is installed and the current folder; else a folder. One that holds this
    package is taken for its code, any other is the user's project: the process starts there, imports from there and
    from its ``src``, and refuses to go on when it finds that it imported code of the current folder instead.
    scratch: a folder in which links may be made. Raises ``UsageError`` when there is no such folder.
    """
    asked = {"workload": dict(record.workload), "device": record.device, "plan": record.plan, "num_warmup": num_warmup}
    if checkout is None:
        return Side(command=_command(asked))
    if not checkout.is_dir():
        raise UsageError(f"--base {checkout}: there is no such folder. Check the base revision out there first.")
    base, is_own = checkout.resolve(), is_own_checkout(checkout)
    command = _command(asked | {"own": str(base), "foreign": str(_own_root() if is_own else Path.cwd())})
    if is_own:
        return Side(command=command, environment={"PYTHONPATH": str(_namespace(base, scratch))})
    paths = [str(folder) for folder in (base, base / "src") if folder.is_dir()]
    return Side(command=command, environment={"PYTHONPATH": os.pathsep.join(paths)}, folder=base)


def check_head(base: Path) -> None:
    """Raise ``UsageError`` when ``base`` is this package and the head in the current folder is not what would run."""
    here = Path.cwd().resolve()
    if is_own_checkout(base) and is_own_checkout(here) and here != _own_root():
        raise UsageError(
            f"the head would be the code in {_own_root()}, not that of the current folder. Install this checkout, "
            "or run the check of the one that is installed."
        )


def is_own_checkout(folder: Path) -> bool:
    """Whether the folder holds this package's own sources."""
    return all((folder / name).is_dir() for name in _FOLDERS)


def _command(asked: dict[str, Any]) -> tuple[str, ...]:
    return (sys.executable, "-P", pair_worker.__file__, json.dumps(asked))


def _own_root() -> Path:
    """The folder of the code that runs now."""
    return Path(pair_worker.__file__).resolve().parents[2]


def _namespace(checkout: Path, scratch: Path) -> Path:
    """A folder in which the checkout's packages stand under the names they are installed as."""
    package = scratch / f"namespace{len(list(scratch.iterdir()))}" / "paretune"
    package.mkdir(parents=True)
    for name in _FOLDERS:
        (package / name).symlink_to(checkout / name)
    return package.parent
