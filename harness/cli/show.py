"""``paretune show``: the records of a study as a table or a figure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness import report
from paretune.harness.records import Record
from paretune.harness.report.draw import FORMATS, PLOTS, draw_table
from paretune.harness.report.reading import read_records
from paretune.harness.usage import UsageError

__all__ = ["command"]


def command(
    path: Annotated[Path, typer.Argument(help="a study folder or a .jsonl file of records")],
    format_name: Annotated[str, typer.Option("--format", help=f"one of: {', '.join(FORMATS)}")] = "text",
    budget: Annotated[str | None, typer.Option(help="device memory the answer may use, such as 12GiB")] = None,
    columns: Annotated[str | None, typer.Option(help="comma-separated columns; 'all' for every one")] = None,
    workload: Annotated[str | None, typer.Option(help="only this workload")] = None,
    device: Annotated[str | None, typer.Option(help="only this device")] = None,
    techniques: Annotated[bool, typer.Option("--techniques", help="the trade-off per technique instead")] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="one table although kinds or questions differ; marked")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="write a figure (png, svg or pdf) there instead of a table")] = None,
    what: Annotated[str, typer.Option(help=f"the figure: {', '.join(PLOTS)}")] = "pareto",
) -> None:
    """Show what a study measured. Records of different kinds or questions get a table each."""
    records = _chosen(path, workload, device)
    groups = [records] if mixed else report.group(records)
    if plot is not None:
        _plot(groups, plot, what, budget)
        return
    if format_name not in FORMATS:
        raise UsageError(f"--format: {format_name!r} is none of: {', '.join(FORMATS)}.")
    if format_name == "json" and len(groups) > 1:
        raise UsageError("--format json writes one table, and these records need several. Add --workload or --device.")
    if techniques and mixed:
        raise UsageError("--techniques compares plans of one question and kind of figure. Leave out --mixed.")
    for number, members in enumerate(groups):
        made = report.rows(members, budget=budget, is_mixed_allowed=mixed)
        text = draw_table(
            made,
            format_name=format_name,
            columns=columns,
            budget=budget,
            techniques=techniques,
            records=members,
            is_continued=number > 0,
        )
        sys.stdout.write(text)


def _chosen(path: Path, workload: str | None, device: str | None) -> list[Record]:
    records, problems = read_records(path)
    for problem in problems:
        print(f"paretune show: {problem}", file=sys.stderr)
    kept = [r for r in records if workload is None or r.workload.get("name") == workload]
    kept = [r for r in kept if device is None or r.device == device]
    if not kept:
        there = sorted({f"{r.workload.get('name')} on {r.device}" for r in records})
        raise UsageError(f"{path}: no such records. There are: {'; '.join(there)}.")
    return kept


def _plot(groups: Sequence[list[Record]], target: Path, what: str, budget: str | None) -> None:
    from paretune.harness.report.plots import save

    if what not in PLOTS:
        raise UsageError(f"--what: {what!r} is none of: {', '.join(PLOTS)}.")
    if len(groups) > 1:
        raise UsageError(f"these records make {len(groups)} tables; a figure shows one. Add --workload or --device.")
    try:
        figure = PLOTS[what](groups[0], budget)
    except ValueError as error:
        raise UsageError(str(error)) from error
    print(save(figure, target))
