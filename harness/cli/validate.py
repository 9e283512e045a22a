"""``paretune validate``: published figures against simulated ones, row by row, with the summary by source and strategy."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from paretune.harness.validation import Report

__all__ = ["command"]

FORMATS = ("markdown", "json")


def command(
    file: Annotated[Path, typer.Argument(help="A table with the columns of results/published/published.csv.")],
    families: Annotated[
        str | None, typer.Option(help="Only rows whose ids begin with one of these, separated by commas.")
    ] = None,
    format: Annotated[str, typer.Option(help=f"{' or '.join(FORMATS)}.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write the report here instead of printing it.")] = None,
    rows: Annotated[Path | None, typer.Option(help="Write every row here too, in bytes and seconds, as JSON.")] = None,
    learn: Annotated[bool, typer.Option(help="Keep the errors as the uncertainty that predictions state.")] = False,
) -> None:
    """Simulate what others measured, with the implementations they measured, and lay the figures side by side."""
    if format not in FORMATS:
        raise UsageError(f"--format {format}: write one of {', '.join(FORMATS)}.")
    from paretune.harness.validation import validate
    from paretune.harness.validation.report import markdown

    chosen = families.split(",") if families else None
    try:
        report = validate(file, families=chosen, progress=lambda text: print(text, file=sys.stderr))
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    text = json.dumps(report.to_json(), indent=1) if format == "json" else markdown(report)
    if output is None:
        print(text)
    else:
        output.write_text(text if text.endswith("\n") else text + "\n")
    if rows is not None:
        rows.write_text(json.dumps([asdict(row) for row in report.rows], indent=0) + "\n")
    if learn:
        _keep(report)


def _keep(report: Report) -> None:
    from paretune.harness.validation.uncertainty import learn, uncertainty_file

    uncertainty_file().write_text(json.dumps(learn(report.rows), indent=1) + "\n")
    print(f"uncertainty written to {uncertainty_file()}", file=sys.stderr)
