"""What the page says about one question, as plain values: everything a template needs and nothing it must compute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.harness.records import Kind, Record
from paretune.harness.report.bars import phases_drawing, stages_drawing
from paretune.harness.report.caption import caption, headline, workload_text
from paretune.harness.report.columns import COLUMNS, Column
from paretune.harness.report.drawings import pareto_drawing, timeline_drawing
from paretune.harness.report.ladder import Rung, rungs
from paretune.harness.report.overruns import budget_of
from paretune.harness.report.stages import stalled_s
from paretune.harness.report.table import Row, kinds_of, rows
from paretune.harness.report.techniques import techniques
from paretune.harness.report.techniques_table import technique_cells
from paretune.harness.report.units import gib_text, seconds
from paretune.harness.spec import Budget

__all__ = ["Section", "section"]

_MOST_TIMELINES = 3


@dataclass(frozen=True, kw_only=True)
class Section:
    """One question. Drawings are SVG or ``None``; cells are drawn texts with the raw value to sort by."""

    workload: str
    kind: str
    caption: str
    headline: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    techniques: tuple[tuple[str, ...], ...]
    ladder: tuple[Mapping[str, str], ...]
    pareto: str | None
    phases: str | None
    stages: str | None
    has_stalls: bool
    timelines: tuple[Mapping[str, str], ...]
    advice: tuple[Mapping[str, Any], ...]
    method: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def section(records: Sequence[Record], *, budget: Budget | int | str | None = None) -> Section:
    """Everything about the records of one question and kind. Raises ``MixedRecords`` for others."""
    made, allowed = rows(records, budget=budget), budget_of(budget)
    columns = tuple(column for column in COLUMNS if _is_known(column, made))
    budgets = () if allowed.device_memory is None else (allowed.device_memory,)
    return Section(
        workload=workload_text(made[0].record.workload),
        kind=_kind(records),
        caption=caption(made),
        headline=headline(made, budget=budget, records=records),
        columns=columns,
        rows=tuple(_line(row, columns) for row in made),
        techniques=tuple(technique_cells(technique) for technique in techniques(records)),
        ladder=tuple(map(_rung, rungs(records))) if any(row.needed_bytes for row in made) else (),
        pareto=pareto_drawing(made, budgets),
        phases=phases_drawing(made),
        stages=stages_drawing(made),
        has_stalls=any(stalled_s(row) for row in made),
        timelines=tuple(_timelines(made)),
        advice=tuple(_advice(records)),
        method=tuple(_method(made)),
        environment=tuple(_flat(_newest_environment(records))),
    )


def _is_known(column: Column, made: Sequence[Row]) -> bool:
    return any(column.text(getattr(row, column.name)) not in ("", "-") for row in made)


def _kind(records: Sequence[Record]) -> str:
    found = sorted(kind.value for kind in kinds_of(records)) or [Kind.INFERRED.value]
    return found[0] if len(found) == 1 else "mixed"


def _line(row: Row, columns: Sequence[Column]) -> Mapping[str, Any]:
    css = ["reference"] * row.is_reference + ["front"] * row.is_on_front + ["unfit"] * (not row.is_feasible)
    return {"css": " ".join(css), "cells": [_cell(column, getattr(row, column.name)) for column in columns]}


def _cell(column: Column, value: Any) -> Mapping[str, Any]:
    raw = "" if value is None else str(int(value) if isinstance(value, bool) else value)
    if isinstance(value, float) and math.isinf(value):
        raw = "1e999"
    return {"text": column.text(value), "value": raw, "is_number": column.is_number}


def _rung(rung: Rung) -> Mapping[str, str]:
    latency = "-" if rung.row is None else seconds(rung.row.latency_s or 0.0)
    plan = "nothing fits" if rung.row is None else rung.row.plan
    return {"size": gib_text(rung.device_memory_bytes), "latency": latency, "plan": plan}


def _timelines(made: Sequence[Row]) -> Sequence[Mapping[str, str]]:
    found = []
    for row in made:
        samples = row.record.counters.get("memory_timeline")
        drawing = timeline_drawing(samples, row.plan) if isinstance(samples, Sequence) and samples else None
        if drawing:
            found.append({"plan": row.plan, "drawing": drawing})
    return found[:_MOST_TIMELINES]


def _method(made: Sequence[Row]) -> list[str]:
    timed = [len(row.record.latency_s) for row in made if row.record.latency_s]
    warm = [len(row.record.warmup_s) for row in made if row.record.latency_s]
    said = ["Every plan ran in a process of its own; memory and time are apart where one slows the other."]
    if timed:
        calls = f"{min(timed)} to {max(timed)}, after {min(warm)} to {max(warm)} warm-up calls"
        said.append(f"Timed calls per plan: {calls}.")
        said.append("Latency is the median of whole calls; its spread is the scaled median absolute deviation.")
    if any(row.kind == Kind.SIMULATED for row in made):
        said.append("Simulated: the real pipeline ran on a device without data; bytes are counted, time is calculated.")
    if any(row.kind == Kind.INFERRED for row in made):
        said.append("Inferred plans never ran: a plan that needs less had already run out of memory.")
    said.append("Needed memory is the allocator's peak, what lies outside it, and the margin of this kind of figure.")
    return said


def _advice(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """What to try, each once with the plans it is said of: many plans share the same way out."""
    by_next: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        for line in record.advice:
            seen, colon, to_try = line.partition(": ")
            by_next.setdefault(to_try if colon else line, []).append((record.plan, seen if colon else ""))
    return [{"next": to_try, "seen": seen} for to_try, seen in by_next.items()]


def _newest_environment(records: Sequence[Record]) -> Mapping[str, Any]:
    return next((record.environment for record in reversed(records) if record.environment), {})


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", str(value)))
    return found
