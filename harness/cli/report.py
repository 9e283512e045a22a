"""``paretune report``: the records of a study as one self-contained HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.report.page import write_page
from paretune.harness.report.reading import read_records

__all__ = ["command"]


def command(
    path: Annotated[Path, typer.Argument(help="A study folder or a .jsonl file of records.")],
    output: Annotated[Path | None, typer.Option(help="Where to write; report.html beside the records.")] = None,
    budget: Annotated[str | None, typer.Option(help="Device memory the answer may use, such as 12GiB.")] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "paretune report",
) -> None:
    """Write the page and print where it is. It works offline and loads nothing."""
    records, problems = read_records(path)
    for problem in problems:
        print(f"paretune report: {problem}", file=sys.stderr)
    target = output or (path.parent if path.suffix == ".jsonl" else path) / "report.html"
    print(write_page(records, target, budget=budget, title=title))
