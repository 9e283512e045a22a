"""``paretune history``: a figure over many runs, with the points at which it changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.regression.history import Series, series
from paretune.harness.report.reading import read_records
from paretune.harness.report.units import gib_text, percent, seconds
from paretune.harness.usage import UsageError

__all__ = ["command"]


def command(
    paths: Annotated[list[Path], typer.Argument(help="Study folders or .jsonl files; runs are ordered by their date.")],
    metric: Annotated[str, typer.Option(help="Such as peak_allocated_bytes or transfers.h2d_bytes.")] = "latency_s",
    least: Annotated[float, typer.Option(min=0.0, help="Smallest relative change worth telling.")] = 0.02,
    plot: Annotated[Path | None, typer.Option(help="Write a figure (png, svg or pdf) there.")] = None,
) -> None:
    """Tell slow creep from noise. Never fails a build: it says which runs to look at."""
    records = []
    for path in paths:
        found, problems = read_records(path)
        records += found
        for problem in problems:
            print(f"paretune history: {problem}", file=sys.stderr)
    made = [one for one in series(records, metric, least_magnitude=least) if one.runs]
    if not made:
        raise UsageError(f"--metric: no complete record has {metric!r}.")
    for one in made:
        print(_text(one))
    if plot is not None:
        from paretune.harness.report.plots import save
        from paretune.harness.report.plots.history import history_plot

        print(save(history_plot(made), plot))


def _text(one: Series) -> str:
    values = [run.value for run in one.runs]
    which = "the only run" if len(values) == 1 else f"the last of {len(values)} runs"
    head = f"{one.where}: {one.metric} {_drawn(one.metric, values[-1])} in {which}"
    if not one.changes:
        return f"{head}; no change point."
    times = "once" if len(one.changes) == 1 else f"{len(one.changes)} times"
    lines = [f"{head}; changed {times}:"]
    for change in one.changes:
        run, before = one.runs[change.index], one.runs[change.index - 1]
        moved = "" if run.versions == before.versions else f" ({before.versions} -> {run.versions})"
        level = f"{_drawn(one.metric, change.before)} -> {_drawn(one.metric, change.after)}"
        lines.append(f"  between {before.created} and {run.created}: {level}, {percent(change.change)}{moved}")
    return "\n".join(lines)


def _drawn(metric: str, value: float) -> str:
    if metric.endswith("_bytes"):
        return gib_text(value)
    return seconds(value) if metric.endswith("_s") else f"{value:g}"
