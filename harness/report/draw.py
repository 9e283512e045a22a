"""Every way a table or a figure can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from paretune.harness.records import Record
from paretune.harness.report.caption import caption, headline
from paretune.harness.report.columns import COLUMNS, DEFAULT, column
from paretune.harness.report.exports import as_csv, as_json, as_latex
from paretune.harness.report.ladder import rungs
from paretune.harness.report.markdown import escape, markdown
from paretune.harness.report.overruns import budget_of
from paretune.harness.report.table import Row, rows
from paretune.harness.report.techniques import techniques as techniques_of
from paretune.harness.report.techniques_table import (
    techniques_csv,
    techniques_json,
    techniques_latex,
    techniques_markdown,
    techniques_text,
)
from paretune.harness.report.text import one_line, text
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
    is_continued: bool = False,
) -> str:
    """One table in one of ``FORMATS``; text and Markdown answer in a sentence first. Raises ``UsageError``.

    records: all that are known about the question, for the answer; by default those of the rows.
    is_continued: another table stands above: CSV goes on without a second header, the others after an empty line.
    """
    apart = "\n" if is_continued and format_name != "csv" else ""
    if techniques:
        return apart + _techniques(made, format_name, header=not is_continued)
    chosen = None if columns is None else _columns(columns)
    if format_name == "csv":
        return as_csv(made, chosen, header=not is_continued)
    if format_name == "json":
        return as_json(made, chosen)
    names = chosen or DEFAULT
    if format_name == "latex":
        return apart + as_latex(made, names)
    answer = headline(made, budget=budget, records=records)
    if format_name == "markdown":
        return f"{apart}{escape(answer)}\n\n{markdown(made, names)}"
    return f"{apart}{one_line(answer)}\n\n{text(made, names)}"


def _techniques(made: Sequence[Row], format_name: str, *, header: bool) -> str:
    found, title = techniques_of([row.record for row in made]), caption(made)
    if format_name == "csv":
        record = made[0].record
        name = str(record.workload.get("name", ""))
        about = {"workload": name, "device": record.device, "kind": made[0].kind}
        return techniques_csv(found, about, header=header)
    if format_name == "json":
        return techniques_json(found, title)
    if format_name == "latex":
        return techniques_latex(found, title)
    if format_name == "markdown":
        return f"{escape(title)}\n\n{techniques_markdown(found)}"
    return f"{one_line(title)}\n\n{techniques_text(found)}"


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
    from paretune.harness.report.plots import ladder_plot

    return ladder_plot(rungs(records), title=caption(rows(records)))


def _importance(records: Sequence[Record], budget: str | None) -> Figure:
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
