"""Every way a table or a figure can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from paretune.harness.records import Record
from paretune.harness.report.caption import headline
from paretune.harness.report.columns import COLUMNS, DEFAULT, column
from paretune.harness.report.exports import as_csv, as_json, as_latex
from paretune.harness.report.ladder import rungs
from paretune.harness.report.markdown import markdown
from paretune.harness.report.overruns import budget_of
from paretune.harness.report.table import Row, rows
from paretune.harness.report.techniques import techniques as techniques_of
from paretune.harness.report.techniques_table import techniques_markdown, techniques_text
from paretune.harness.report.text import text
from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "PLOTS", "draw_table"]

FORMATS = ("text", "markdown", "csv", "json", "latex")


def draw_table(
    made: Sequence[Row],
    *,
    format_name: str = "text",
    columns: str | None = None,
    budget: str | None = None,
    techniques: bool = False,
    records: Sequence[Record] | None = None,
) -> str:
    """One table in one of ``FORMATS``; text and Markdown answer in a sentence first. Raises ``UsageError``.

    records: all that are known about the question, for the answer; by default those of the rows.
    """
    if techniques:
        found = techniques_of([row.record for row in made])
        return techniques_markdown(found) if format_name == "markdown" else techniques_text(found)
    if format_name in ("csv", "json"):
        return as_csv(made) if format_name == "csv" else as_json(made)
    names = _columns(columns)
    if format_name == "latex":
        return as_latex(made, names)
    draw = markdown if format_name == "markdown" else text
    return f"{headline(made, budget=budget, records=records)}\n\n{draw(made, names)}"


def _columns(wanted: str | None) -> tuple[str, ...]:
    if wanted is None:
        return DEFAULT
    if wanted == "all":
        return tuple(c.name for c in COLUMNS)
    try:
        return tuple(column(name.strip()).name for name in wanted.split(","))
    except KeyError as error:
        raise UsageError(f"--columns: {error.args[0]}") from error


def _budgets(budget: str | None) -> tuple[int, ...]:
    size_bytes = budget_of(budget).device_memory
    return () if size_bytes is None else (size_bytes,)


def _pareto(records: Sequence[Record], budget: str | None) -> Figure:
    from paretune.harness.report.plots import pareto_plot

    return pareto_plot(rows(records, budget=budget), budgets_bytes=_budgets(budget))


def _phases(records: Sequence[Record], budget: str | None) -> Figure:
    from paretune.harness.report.plots import phases_plot

    return phases_plot(rows(records, budget=budget), budgets_bytes=_budgets(budget))


def _stages(records: Sequence[Record], budget: str | None) -> Figure:
    from paretune.harness.report.plots import stages_plot

    return stages_plot(rows(records, budget=budget))


def _ladder(records: Sequence[Record], budget: str | None) -> Figure:
    from paretune.harness.report.caption import caption
    from paretune.harness.report.plots import ladder_plot

    return ladder_plot(rungs(records), title=caption(rows(records)))


def _importance(records: Sequence[Record], budget: str | None) -> Figure:
    from paretune.harness.report.caption import caption
    from paretune.harness.report.importance import importances
    from paretune.harness.report.plots import importance_plot

    return importance_plot(importances(records), metric="latency", title=caption(rows(records)))


PLOTS: Mapping[str, Callable[[Sequence[Record], str | None], Figure]] = {
    "pareto": _pareto,
    "phases": _phases,
    "stages": _stages,
    "ladder": _ladder,
    "importance": _importance,
}
"""Figures by name; each takes the records of one question and the budget as text."""
