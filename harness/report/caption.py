"""The words over a table: what was asked, where the figures come from, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paretune.harness.recommend import recommend
from paretune.harness.records import Kind, Record
from paretune.harness.report.overruns import budget_of
from paretune.harness.report.table import Row
from paretune.harness.spec import Budget

__all__ = ["caption", "headline", "workload_text"]

_MEANING = {
    Kind.MEASURED: "measured",
    Kind.EMULATED: "measured on a larger card with its spare memory held back",
    Kind.SIMULATED: "simulated: predictions, nothing was measured",
    Kind.PUBLISHED: "published by others",
    Kind.INFERRED: "inferred: never ran",
}

_SHOWN = ("height", "width", "num_frames", "steps", "batch_size", "dtype", "seed")


def caption(rows: Sequence[Row]) -> str:
    """One line: workload, device, kind of figures."""
    if not rows:
        return "no records"
    asked = {(workload_text(row.record.workload), row.record.device) for row in rows}
    kinds = [kind for kind in Kind if any(row.kind == kind for row in rows)]
    figures = [kind for kind in kinds if kind is not Kind.INFERRED] or kinds
    where = "; ".join(f"{workload} on {device}" for workload, device in sorted(asked))
    mark = "MIXED figures: " if len(figures) > 1 else ""
    return f"{where}. {mark}{' and '.join(_MEANING[kind] for kind in figures)}."


def workload_text(workload: Mapping[str, Any]) -> str:
    """Name and the settings of the call that decide time and size."""
    said = [f"{name}={workload[name]}" for name in _SHOWN if workload.get(name) is not None]
    return " ".join([str(workload.get("name", workload.get("source", "workload"))), *said])


def headline(
    rows: Sequence[Row], *, budget: Budget | int | str | None = None, records: Sequence[Record] | None = None
) -> str:
    """The answer in one sentence: the fastest exact plan that fits, or what comes closest; then what would buy more.

    records: all that are known, verifications among them; by default those of the rows.
    """
    if not rows:
        return "There are no records."
    known = [row.record for row in rows] if records is None else records
    if all(record.kind in (Kind.PUBLISHED, Kind.INFERRED) for record in known):
        return "No plan of these was run here, so none is recommended."
    answer = recommend(known, budget_of(budget))
    return " ".join([answer.sentence, *answer.advice])
