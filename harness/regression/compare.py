"""Compare head records with a baseline, plan by plan and metric by metric, and close whenever it cannot tell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from paretune.harness.records import Outcome, Record
from paretune.harness.regression.causes import causes
from paretune.harness.regression.findings import Finding, Status, Verdict
from paretune.harness.regression.identity import foreign_because, identity, name_of
from paretune.harness.regression.metrics import Metric, figures, metric_of
from paretune.harness.report.reasons import reason_of
from paretune.harness.report.units import percent, seconds, size_text
from paretune.harness.usage import UsageError

__all__ = ["by_identity", "compare"]

Judged = tuple[Verdict, Status]


def compare(baseline: Iterable[Record], head: Iterable[Record]) -> list[Finding]:
    """Findings for every plan of either side. Stored times of real devices are never compared: they gate nothing.

    Raises ``UsageError`` when one side holds two records of the same plan.
    """
    before, after = by_identity(baseline, "the baseline"), by_identity(head, "the head")
    findings: list[Finding] = []
    for key, record in before.items():
        findings += _compared(record, after[key]) if key in after else [_unmeasured(record)]
    return [*findings, *(_new(record) for key, record in after.items() if key not in before)]


def by_identity(records: Iterable[Record], side: str) -> dict[str, Record]:
    """Records by what was run. Raises ``UsageError`` for a second one of the same, which would hide the first."""
    found: dict[str, Record] = {}
    for record in records:
        key = identity(record)
        if key in found:
            raise UsageError(f"{side} holds {name_of(record)!r} twice. Keep one record of each plan.")
        found[key] = record
    return found


def _unmeasured(record: Record) -> Finding:
    said = "was not measured: the baseline expects it. A gate that did not measure cannot pass."
    return _finding(record, "outcome", (Verdict.MISSING, Status.INCONCLUSIVE), said)


def _new(record: Record) -> Finding:
    said = "has no baseline, so nothing guards it. Add it with --update."
    return _finding(record, "outcome", (Verdict.MISSING, Status.INCONCLUSIVE), said)


def _compared(before: Record, after: Record) -> list[Finding]:
    if before.outcome is after.outcome and not before.is_complete:
        said = f"still {before.outcome}, as expected"
        return [_finding(before, "outcome", (Verdict.SAME, Status.PASS), said)]
    if not after.is_complete:
        return [_broken(before, after)]
    foreign = foreign_because(before, after)
    if foreign is not None:
        said = f"no comparable baseline: {foreign}. Measure the base revision in the same job, or --update."
        return [_finding(before, "outcome", (Verdict.FOREIGN, Status.INCONCLUSIVE), said)]
    if not before.is_complete:
        said = f"completes now, was {before.outcome}"
        values = (before.outcome.value, after.outcome.value)
        return [_finding(before, "outcome", (Verdict.FIXED, Status.IMPROVEMENT), said, values)]
    return _figures(before, after)


def _figures(before: Record, after: Record) -> list[Finding]:
    old, new = figures(before), figures(after)
    if not old:
        said = "the baseline holds no figure, so nothing can be compared. Make it anew with --update."
        return [_finding(before, "outcome", (Verdict.MISSING, Status.INCONCLUSIVE), said)]
    return [_metric(before, after, name, (old.get(name), new.get(name))) for name in {**old, **new}]


def _broken(before: Record, after: Record) -> Finding:
    if before.is_complete and after.outcome is Outcome.OOM:
        said = f"used to fit, now out of memory: {reason_of(after)}"
    else:
        said = f"was {before.outcome}, is {after.outcome} now: {reason_of(after) or 'no reason recorded'}"
    values = (before.outcome.value, after.outcome.value)
    return _finding(before, "outcome", (Verdict.BROKEN, Status.REGRESSION), said, values)


def _metric(before: Record, after: Record, name: str, sides: tuple[float | str | None, float | str | None]) -> Finding:
    metric, (old, new) = metric_of(name, before.kind), sides
    closed = _why_closed(metric, old, new)
    if closed is not None:
        status = Status.INCONCLUSIVE if metric.is_gating else Status.NOTE
        return _finding(before, name, (Verdict.MISSING, status), closed, (old, new))
    if isinstance(old, str) or isinstance(new, str) or old is None or new is None:
        return _text_metric(before, after, metric, (str(old), str(new)))
    return _number_metric(before, after, metric, (float(old), float(new)))


def _why_closed(metric: Metric, old: float | str | None, new: float | str | None) -> str | None:
    if old is None:
        return f"{metric.name} has no baseline. Add it with --update."
    if new is None:
        return f"{metric.name} was not measured, the baseline has it. A gate that did not measure cannot pass."
    for side, value in (("baseline", old), ("measured figure", new)):
        if isinstance(value, str):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and not metric.may_be_zero):
            return f"{metric.name}: the {side} is {value:g}, which is no figure: nothing was measured then."
    return None


def _text_metric(before: Record, after: Record, metric: Metric, values: tuple[str, str]) -> Finding:
    if values[0] == values[1]:
        return _finding(before, metric.name, (Verdict.SAME, Status.PASS), f"{metric.name} unchanged", values)
    status = Status.REGRESSION if metric.is_gating else Status.NOTE
    said = f"{metric.name} changed: {values[0]} -> {values[1]}"
    found = _finding(before, metric.name, (Verdict.CHANGED, status), said, values)
    return dataclasses.replace(found, causes=causes(before, after, metric.name))


def _number_metric(before: Record, after: Record, metric: Metric, values: tuple[float, float]) -> Finding:
    old, new = values
    if abs(new - old) <= metric.tolerance * old:
        return _finding(before, metric.name, (Verdict.SAME, Status.PASS), f"{metric.name} unchanged", values)
    is_more = new > old
    worse = Status.REGRESSION if metric.is_gating else Status.NOTE
    status = worse if is_more else Status.IMPROVEMENT if metric.is_gating else Status.NOTE
    verdict = _verdict(metric.name, is_more)
    said = f"{metric.name} {_drawn(metric.name, old, new)}"
    found = _finding(before, metric.name, (verdict, status), said, values)
    return dataclasses.replace(found, causes=causes(before, after, metric.name))


def _verdict(name: str, is_more: bool) -> Verdict:
    if name == "latency_s":
        return Verdict.SLOW if is_more else Verdict.FAST
    return Verdict.MORE if is_more else Verdict.LESS


def _drawn(name: str, old: float, new: float) -> str:
    share = f" ({(new - old) / old * 100:+.2f}%)" if old else ""
    if name.endswith("_bytes"):
        sign = "+" if new > old else "-"
        return f"{size_text(old)} -> {size_text(new)}, {sign}{size_text(abs(new - old))}{share}"
    if name.endswith("_s"):
        return f"{seconds(old)} -> {seconds(new)}{share}"
    if name.endswith("_share"):
        return f"{percent(old)} -> {percent(new)}"
    return f"{old:,.10g} -> {new:,.10g}{share}"


def _finding(
    record: Record, metric: str, judged: Judged, sentence: str, values: Sequence[float | str | None] = (None, None)
) -> Finding:
    return Finding(
        where=name_of(record),
        metric=metric,
        verdict=judged[0],
        status=judged[1],
        sentence=sentence,
        baseline=values[0],
        head=values[1],
    )
