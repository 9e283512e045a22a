"""The command line: one command per file, imported when it is called, so that ``--help`` needs neither torch nor typer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "recommend": "say which plan to use in a given amount of device memory, and prove that it fits",
    "tune": "search for the fastest plan under a memory cap",
    "sweep": "measure every plan of a space or list",
    "run": "measure one plan",
    "plan": "dry run: how many plans, which are refused and why, how long it would take",
    "show": "records as a table or plot",
    "report": "records as one self-contained HTML page",
    "explain": "what stands in memory at the peak of one plan, and which operator reached it",
    "compare": "two studies or commits side by side",
    "check": "regression gate for CI: compare with a committed baseline",
    "history": "a figure over many runs, with its change points",
    "list": "strategies, attention backends, workloads, devices",
    "doctor": "what this machine can run, and what to install for the rest",
    "calibrate": "measure a real card and write a sheet the simulator uses",
    "validate": "published figures against simulated ones, row by row",
    "worker": "join a study that many machines share",
    "bench": "benchmarks of paretune itself",
    "demo": "the main job on this machine, from question to answer",
}
"""Every command with one line of help; ``paretune.harness.cli.NAME`` holds the function ``command``."""

_MODULES = {"list": "listing"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``paretune`` and ``python -m paretune.harness``. Exits 2 on a usage error, 130 on Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return
    if words[0] == "--version":
        print(_version())
        return
    if words[0] not in COMMANDS:
        print(f"paretune: {words[0]!r} is no command.{_nearest(words[0])}", file=sys.stderr)
        sys.exit(2)
    from paretune.harness.cli.running import run_command

    module = importlib.import_module(f"paretune.harness.cli.{_MODULES.get(words[0], words[0])}")
    run_command(words[0], module.command, words[1:])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {line}" for name, line in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: paretune COMMAND [OPTIONS]",
            "",
            "Find the fastest way to run a diffusion model in the memory you have.",
            "",
            *lines,
            "",
            "paretune COMMAND --help tells the options of a command.",
        ]
    )


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("paretune")


def _nearest(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=1)
    return f" Did you mean {close[0]!r}?" if close else " `paretune --help` lists them."
