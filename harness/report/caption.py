"""The words over a table: what was asked, where the figures come from, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paretune.harness.records import Kind
from paretune.harness.report.overruns import budget_of
from paretune.harness.report.table import Row
from paretune.harness.report.units import gib_text, percent, ratio, seconds
from paretune.harness.spec import Budget

__all__ = ["caption", "headline", "workload_text"]

_MEANING = {
    Kind.MEASURED: "measured",
    Kind.EMULATED: "measured on a larger card with its spare memory held back",
    Kind.SIMULATED: "simulated: predictions, nothing was measured",
    Kind.PUBLISHED: "published by others",
    Kind.INFERRED: "inferred: never ran",
}

_WORTH_SAYING = 1.02
"""A lossy plan that gains less than this is not worth a sentence."""

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


def headline(rows: Sequence[Row], *, budget: Budget | int | str | None = None) -> str:
    """The answer: the fastest exact plan that fits, what a lossy one would gain, or what comes closest."""
    budget_bytes = budget_of(budget).device_memory
    feasible = sorted((r for r in rows if r.is_feasible and r.latency_s is not None), key=_speed)
    if not feasible:
        return _nothing(rows, budget_bytes)
    exact = [row for row in feasible if not row.is_lossy]
    if not exact:
        return _fastest(feasible[0], budget_bytes)
    said = _fastest(exact[0], budget_bytes)
    lossy = feasible[0]
    gain = (exact[0].latency_s or 0.0) / (lossy.latency_s or 1.0)
    if gain < _WORTH_SAYING:
        return said
    return f"{said} Lossy {lossy.plan} would be {ratio(gain)} as fast ({seconds(lossy.latency_s or 0.0)})."


def _speed(row: Row) -> tuple[float, int]:
    return (row.latency_s or 0.0, row.needed_bytes or 0)


def _nothing(rows: Sequence[Row], budget_bytes: int | None) -> str:
    closest = [row for row in rows if row.outcome == "complete" and row.needed_bytes is not None]
    if budget_bytes is not None and closest:
        row = min(closest, key=lambda row: row.needed_bytes or 0)
        missing = (row.needed_bytes or 0) - budget_bytes
        return f"Nothing fits {gib_text(budget_bytes)}. Closest: {row.plan}, {gib_text(missing)} too much."
    return f"None of {len(rows)} plans completed." if rows else "There are no records."


def _fastest(row: Row, budget_bytes: int | None) -> str:
    quality = "plan, and lossy" if row.is_lossy else "exact plan"
    said = f"{row.plan} is the fastest {quality}: {seconds(row.latency_s or 0.0)}"
    if row.relative_latency is not None and not row.is_reference:
        said += f", {ratio(row.relative_latency)} the reference"
    if row.needed_bytes is None:
        return f"{said}."
    if budget_bytes is None:
        return f"{said}, needs {gib_text(row.needed_bytes)}."
    spare = (budget_bytes - row.needed_bytes) / budget_bytes
    return f"{said}, fits {gib_text(budget_bytes)} with {percent(spare)} to spare."
