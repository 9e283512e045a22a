"""``paretune bench``: benchmarks of paretune itself, each printed as it ends."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Annotated, cast

import typer

from paretune.harness.usage import UsageError

__all__ = ["command", "names"]


def names() -> tuple[str, ...]:
    """Every benchmark there is: the modules of ``harness/bench``."""
    import paretune.harness.bench as folder

    return tuple(
        sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))
    )


def command(
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Benchmarks to run; all by default.")
    ] = None,
) -> None:
    """Run benchmarks of paretune itself and print what they found as Markdown."""
    for name in which or names():
        if name not in names():
            raise UsageError(f"benchmark {name!r} does not exist. There are: {', '.join(names())}.")
        module = importlib.import_module(f"paretune.harness.bench.{name}")
        print(f"## {name}\n\n{cast(Callable[[], str], module.bench)()}\n", flush=True)
