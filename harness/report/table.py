"""Turn the records of one question into rows: reference on top, feasible first, front marked, relative to the first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.harness.constraints import need_of
from paretune.harness.pareto import pareto
from paretune.harness.recommend import VERIFICATION
from paretune.harness.records import Kind, Outcome, Peaks, Record
from paretune.harness.report.overruns import budget_of, overruns
from paretune.harness.report.reasons import reason_of
from paretune.harness.spec import Budget
from paretune.harness.usage import UsageError
from paretune.strategies.plan import RESIDENT

__all__ = ["MixedRecords", "Row", "group", "kinds_of", "newest", "question_of", "rows", "without_verifications"]


_MEMORY = re.compile(r",memory=[^,]+")


class MixedRecords(UsageError):
    """Records that must not share a table: figures of different kinds, or answers to different questions."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One plan of a table; bytes, seconds and ratios unrounded, ``None`` is not known. ``record``: its source.

    is_feasible: complete, and within the budget where one was given.
    peak_host_bytes, pinned_bytes: over all phases, loading included.
    needed_bytes: what must be there for it to run: allocator, context, and the margin of its kind of figure.
    relative_latency, relative_memory: over the reference plan; memory compares peak allocated bytes.
    """

    plan: str
    outcome: str
    kind: str
    is_reference: bool
    is_feasible: bool
    is_on_front: bool
    latency_s: float | None
    spread: float | None
    relative_latency: float | None
    needed_bytes: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_used_bytes: int | None
    relative_memory: float | None
    saved_bytes: int | None
    peak_host_bytes: int | None
    pinned_bytes: int | None
    copied_bytes: int | None
    stall_share: float | None
    first_call_s: float | None
    compile_s: float | None
    fidelity: float | None
    is_lossy: bool
    device_memory_bytes: int | None
    margin_bytes: int | None
    reason: str | None
    record: Record


def rows(
    records: Iterable[Record],
    *,
    budget: Budget | int | str | None = None,
    reference: Record | None = None,
    is_mixed_allowed: bool = False,
) -> tuple[Row, ...]:
    """Rows of one table, in drawing order.

    budget: what the answer may use, or only its device memory in bytes or as text; rows above it are not feasible.
    reference: the record to be relative to; by default the resident plan's of the same question and kind, whichever way
    it ended.
    Raises ``MixedRecords`` when kinds or questions differ and ``is_mixed_allowed`` is false; each row names its kind.
    """
    listed = newest(without_verifications(records))
    if not is_mixed_allowed:
        _refuse_mixed(listed)
    allowed = budget_of(budget)
    made = [row for some in group(listed) for row in _rows_of_one(some, reference or _reference_among(some), allowed)]
    return tuple(sorted(made, key=_drawing_order))


def _rows_of_one(records: Sequence[Record], base: Record | None, budget: Budget) -> list[Row]:
    """Rows of one question and kind: nothing is relative to figures of another kind, nor on a front with them."""
    feasible = [r for r in records if r.is_complete and not overruns(r, budget)]
    front = {id(record) for record in pareto(feasible)}
    return [_row(record, base=base, budget=budget, is_on_front=id(record) in front) for record in records]


def without_verifications(records: Iterable[Record]) -> list[Record]:
    """Records without re-measurements of a recommended plan under its cap, where the plan has a record of its own."""
    listed = list(records)
    own = {record.plan for record in listed if record.options.get("purpose") != VERIFICATION}
    return [r for r in listed if r.options.get("purpose") != VERIFICATION or r.plan not in own]


def newest(records: Iterable[Record]) -> list[Record]:
    """One record per trial: where a trial was repeated under the same key, the newest."""
    kept: dict[Any, Record] = {}
    for record in records:
        identity = (record.key, record.plan, record.device_memory_bytes, record.kind, question_of(record))
        kept.pop(identity, None)
        kept[identity] = record
    return list(kept.values())


def question_of(record: Record) -> tuple[str, str]:
    """What was asked: the workload with its overrides, and the device."""
    return json.dumps(dict(record.workload), sort_keys=True, default=str), record.device


def kinds_of(records: Iterable[Record]) -> set[Kind]:
    """Kinds of figure among the records. An inferred record carries no figure of its own, so it does not count."""
    return {record.kind for record in records if record.kind is not Kind.INFERRED}


def group(records: Iterable[Record]) -> list[list[Record]]:
    """Records by question and kind, in order of appearance; inferred ones stay with the question they belong to, and
    what was run again under a smaller memory with the plans among which it was chosen."""
    listed = list(records)
    groups: dict[Any, list[Record]] = {}
    for record in sorted(listed, key=lambda record: record.options.get("purpose") == VERIFICATION):
        if record.kind is not Kind.INFERRED:
            _with_its_choice(groups, record).append(record)
    for record in listed:
        if record.kind is Kind.INFERRED:
            _home(groups, record).append(record)
    return list(groups.values())


def _with_its_choice(groups: dict[Any, list[Record]], record: Record) -> list[Record]:
    question = question_of(record)
    if record.options.get("purpose") == VERIFICATION:
        for ((workload, device), kind), members in groups.items():
            if (workload, kind) == (question[0], record.kind) and _card(device) == _card(question[1]):
                return members
    return groups.setdefault((question, record.kind), [])


def _card(device: str) -> str:
    """The device without the memory that it is simulated with."""
    return _MEMORY.sub("", device)


def _home(groups: dict[Any, list[Record]], record: Record) -> list[Record]:
    question = question_of(record)
    for (asked, _), members in groups.items():
        if asked == question:
            return members
    return groups.setdefault((question, record.kind), [])


def _refuse_mixed(records: Sequence[Record]) -> None:
    kinds = sorted(kind.value for kind in kinds_of(records))
    if len(kinds) > 1:
        raise MixedRecords(
            f"{' and '.join(kinds)} figures cannot share a table: they would be read as one kind. "
            "Show them apart, or ask for a mixed table, which marks every row."
        )
    questions = {question_of(record) for record in records}
    if len(questions) > 1:
        raise MixedRecords(
            f"the records answer {len(questions)} questions (workload and device differ), so their times and sizes "
            "cannot be ranked. Make one table per question, or ask for a mixed table."
        )


def _reference_among(records: Sequence[Record]) -> Record | None:
    found = [record for record in records if record.plan == RESIDENT]
    complete = [record for record in found if record.is_complete]
    return next(iter(complete or found), None)


def _row(record: Record, *, base: Record | None, budget: Budget, is_on_front: bool) -> Row:
    latency_s, needed = record.median_latency_s, _needed(record)
    transfers = record.transfers or {}
    over = overruns(record, budget) if record.is_complete else ()
    over_all = Peaks.over([record, *record.phases.values()])
    return Row(
        plan=record.plan,
        outcome=record.outcome.value,
        kind=record.kind.value,
        is_reference=record is base or (base is not None and record.plan == RESIDENT),
        is_feasible=record.is_complete and not over,
        is_on_front=is_on_front,
        latency_s=latency_s,
        spread=_spread(record),
        relative_latency=_over(latency_s, base.median_latency_s if base else None),
        needed_bytes=needed,
        peak_allocated_bytes=record.peak_allocated_bytes,
        peak_reserved_bytes=record.peak_reserved_bytes,
        peak_used_bytes=record.peak_used_bytes,
        relative_memory=_over(record.peak_allocated_bytes, base.peak_allocated_bytes if base else None),
        saved_bytes=_less(base.peak_allocated_bytes if base else None, record.peak_allocated_bytes),
        peak_host_bytes=over_all.peak_host_bytes,
        pinned_bytes=over_all.pinned_bytes,
        copied_bytes=_sum(transfers.get("h2d_bytes"), transfers.get("d2h_bytes")),
        stall_share=transfers.get("stall_share"),
        first_call_s=record.first_call_s,
        compile_s=record.compile_s,
        fidelity=_fidelity(record),
        is_lossy=record.is_lossy,
        device_memory_bytes=record.device_memory_bytes,
        margin_bytes=_less(budget.device_memory, needed),
        reason="; ".join(over) or reason_of(record),
        record=record,
    )


def _needed(record: Record) -> int | None:
    need = need_of(record) if record.is_complete else None
    return need.total_bytes if need else None


def _spread(record: Record) -> float | None:
    if len(record.latency_s) < 2:
        return None
    from paretune.harness.stats import mad, median

    return mad(record.latency_s) / median(record.latency_s)


def _fidelity(record: Record) -> float | None:
    found = record.fidelity or {}
    if found.get("is_exact"):
        return math.inf
    value = found.get("psnr_db")
    return float(value) if value is not None else None


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_ORDER = (Outcome.COMPLETE, Outcome.OOM, Outcome.OOM_HOST, Outcome.WRONG_OUTPUT, Outcome.TIMEOUT, Outcome.CRASHED)


def _drawing_order(row: Row) -> tuple[int, int, float, float, str]:
    outcome = Outcome(row.outcome)
    place = _ORDER.index(outcome) if outcome in _ORDER else len(_ORDER)
    group_number = 0 if row.is_reference else 1 if row.is_feasible else 2 + place
    size = row.needed_bytes if row.needed_bytes is not None else math.inf
    first = row.latency_s if row.latency_s is not None else math.inf
    return group_number, 0, first, size, row.plan
