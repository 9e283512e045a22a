"""Run one command through typer and turn what users can mend into a sentence and exit status 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from paretune.harness.usage import UsageError
from paretune.strategies.errors import InfeasiblePlan, PlanError, Unsupported

__all__ = ["run_command"]

_INTERRUPTED = 130


def run_command(name: str, command: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Parse ``arguments`` for ``command`` and call it; exits with its status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    try:
        app(list(arguments), prog_name=f"paretune {name}", standalone_mode=True)
    except (UsageError, PlanError, InfeasiblePlan, Unsupported) as error:
        print(f"paretune {name}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(
            f"paretune {name}: stopped. Everything measured so far is kept; the same command goes on.", file=sys.stderr
        )
        sys.exit(_INTERRUPTED)
