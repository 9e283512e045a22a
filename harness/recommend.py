"""Choose one plan for a budget from records; say why, and why each plan that looks better was not taken."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paretune.harness.constraints import Need, is_feasible, need_of, violations
from paretune.harness.records import Kind, Outcome, Record
from paretune.harness.spec import Budget
from paretune.strategies.sizes import format_gib

__all__ = ["VERIFICATION", "Rejected", "Recommendation", "best_evidence", "ladder", "recommend"]

VERIFICATION = "verification"
"""Value of the trial option ``purpose`` of a run that re-measures a recommended plan under its cap."""

_TIE = 0.01
_MAX_RUNNERS_UP = 8
_KINDS = (Kind.MEASURED, Kind.EMULATED, Kind.SIMULATED)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A plan that was not taken and the reason."""

    record: Record
    because: str


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The answer for one budget. When nothing fits ``chosen`` is ``None`` and ``closest`` lacks ``missing_bytes``.

    status: ``verified`` (ran again in a fresh process under the enforced cap), ``measured`` or ``predicted``
    (simulated).
    sentence: the answer in words. runners_up: faster plans that were rejected, then the next best.
    advice: what a larger budget or lossy plans would buy.
    """

    budget: Budget
    sentence: str
    status: str
    chosen: Record | None = None
    need: Need | None = None
    runners_up: tuple[Rejected, ...] = ()
    advice: tuple[str, ...] = ()
    closest: Record | None = None
    missing_bytes: int | None = None
    num_considered: int = 0


def recommend(
    records: Iterable[Record], budget: Budget, *, allow_lossy: bool = False, objective: str = "latency"
) -> Recommendation:
    """The fastest plan (or the smallest one, by ``objective``) that is known to fit the budget.

    Plans whose latency is within 1 % of the best (or within the spread of its samples) count as tied; of those the one
    with fewest settings, then least memory, is taken. A plan that failed its verification under this cap is out. Only
    records of the strongest kind present are compared; simulated figures never stand beside measured ones.
    """
    everything = list(records)
    candidates = best_evidence(everything)
    trials = _Verifications(everything, budget)
    judged = [(record, _why_not(record, budget, allow_lossy, trials)) for record in candidates]
    fitting = sorted((record for record, why in judged if why is None), key=_latency)
    if not fitting:
        return _nothing_fits(judged, budget, allow_lossy, len(candidates))
    chosen = _simplest_of_ties(fitting) if objective == "latency" else min(fitting, key=_need_bytes)
    need = need_of(chosen)
    status = trials.status(chosen)
    answer = Recommendation(
        budget=budget,
        sentence="",
        status=status,
        chosen=chosen,
        need=need,
        runners_up=_runners_up(chosen, judged),
        advice=_advice(chosen, candidates, budget, allow_lossy),
        num_considered=len(candidates),
    )
    return replace(answer, sentence=_sentence(answer))


def ladder(
    records: Iterable[Record], caps: Iterable[int], budget: Budget | None = None, *, allow_lossy: bool = False
) -> tuple[Recommendation, ...]:
    """One recommendation per memory size, smallest first, with the other limits of ``budget``."""
    everything, base = list(records), budget or Budget()
    budgets = (base.model_copy(update={"device_memory": cap}) for cap in sorted(caps))
    return tuple(recommend(everything, each, allow_lossy=allow_lossy) for each in budgets)


def best_evidence(records: Iterable[Record]) -> list[Record]:
    """The newest record of each plan, of the strongest kind that has a completed trial; verifications apart.

    What a short call showed of a plan, or follows from other plans, counts only where nothing fuller is known of it.
    """
    own = [r for r in records if r.options.get("purpose") != VERIFICATION]
    own.sort(key=lambda record: (record.kind is not Kind.INFERRED, record.outcome is not Outcome.STOPPED))
    for kind in _KINDS:
        of_kind = [record for record in own if record.kind is kind or record.kind is Kind.INFERRED]
        if any(record.is_complete and record.kind is kind for record in of_kind):
            return list({record.plan: record for record in of_kind}.values())
    return list({record.plan: record for record in own if record.kind is not Kind.PUBLISHED}.values())


class _Verifications:
    """What re-measuring under this cap has shown about plans."""

    def __init__(self, records: Sequence[Record], budget: Budget) -> None:
        cap = budget.device_memory
        told = [r for r in records if r.options.get("purpose") == VERIFICATION]
        self._good = {r.plan for r in told if r.is_complete and r.device_memory_bytes == cap}
        self._bad = {r.plan: r for r in told if not r.is_complete and _at_least(r.device_memory_bytes, cap)}

    def failure(self, record: Record) -> Record | None:
        return None if record.plan in self._good else self._bad.get(record.plan)

    def status(self, record: Record) -> str:
        if record.plan in self._good:
            return "verified"
        return "predicted" if record.kind is Kind.SIMULATED else "measured"


def _at_least(had: int | None, cap: int | None) -> bool:
    return had is None or (cap is not None and had >= cap)


def _why_not(record: Record, budget: Budget, allow_lossy: bool, trials: _Verifications) -> str | None:
    if not record.is_complete:
        return f"{record.outcome}: {record.reason or 'no reason recorded'}"
    if record.kind is Kind.INFERRED:
        return "never ran; what is said of it follows from other plans"
    if record.median_latency_s is None:
        return "has no timed call"
    if record.is_lossy and not allow_lossy:
        return "may change the output; allow lossy plans to take it"
    failed = trials.failure(record)
    if failed is not None:
        return f"failed when it was run again under the cap: {failed.outcome}"
    broken = [name for name, value in violations(record, budget).items() if value > 0]
    return _over_what(record, budget, broken[0]) if broken else None


def _over_what(record: Record, budget: Budget, name: str) -> str:
    if name == "device_memory" and budget.device_memory is not None:
        need = need_of(record)
        if need is None:
            return "its device memory is not known"
        return f"needs {format_gib(need.total_bytes)}, {format_gib(need.total_bytes - budget.device_memory)} too much"
    limits = {"host_memory": "host memory", "pinned": "pinned host memory", "latency": "time", "fidelity": "fidelity"}
    return f"breaks the limit on {limits[name]}"


def _latency(record: Record) -> float:
    value = record.median_latency_s
    return math.inf if value is None else value


def _need_bytes(record: Record) -> float:
    need = need_of(record)
    return math.inf if need is None else need.total_bytes


def _spread(record: Record) -> float:
    """Half the range of the timed calls around their median, relative; at least 1 %."""
    median = record.median_latency_s
    if not median or len(record.latency_s) < 2:
        return _TIE
    return max(_TIE, (max(record.latency_s) - min(record.latency_s)) / 2 / median)


def _simplest_of_ties(fitting: Sequence[Record]) -> Record:
    best = fitting[0]
    limit = _latency(best) * (1 + min(_spread(best), 0.05))
    tied = [record for record in fitting if _latency(record) <= limit]
    return min(tied, key=lambda r: (_num_settings(r), _need_bytes(r), _latency(r)))


def _num_settings(record: Record) -> int:
    return 0 if record.plan == "resident" else record.plan.count(" + ") + 1


def _runners_up(chosen: Record, judged: Sequence[tuple[Record, str | None]]) -> tuple[Rejected, ...]:
    others = [(record, why) for record, why in judged if record is not chosen]
    fails = (Outcome.OOM, Outcome.OOM_HOST)
    faster = [(r, why) for r, why in others if why and (_latency(r) < _latency(chosen) or r.outcome in fails)]
    slower = [(r, _compared(r, chosen)) for r, why in others if why is None]
    half = _MAX_RUNNERS_UP // 2
    ranked = sorted(faster, key=lambda pair: _latency(pair[0]))[:half]
    ranked += sorted(slower, key=lambda pair: _latency(pair[0]))[: _MAX_RUNNERS_UP - len(ranked)]
    return tuple(Rejected(record=record, because=why) for record, why in ranked)


def _compared(record: Record, chosen: Record) -> str:
    ratio = _latency(record) / _latency(chosen)
    saved = _need_bytes(chosen) - _need_bytes(record)
    memory = f"{format_gib(abs(saved))} {'less' if saved >= 0 else 'more'}"
    if abs(ratio - 1) <= _spread(chosen):
        return f"as fast within the spread, needs {memory}"
    return f"{ratio:.2f}x the time, needs {memory}"


def _advice(chosen: Record, records: Sequence[Record], budget: Budget, allow_lossy: bool) -> tuple[str, ...]:
    said = []
    cap = budget.device_memory
    free = budget.model_copy(update={"device_memory": None})
    usable = [r for r in records if is_feasible(r, free) and (allow_lossy or not r.is_lossy)]
    faster = [r for r in usable if cap and _need_bytes(r) > cap and _latency(r) < 0.95 * _latency(chosen)]
    if faster and cap:
        nearest = min(faster, key=_need_bytes)
        more, gain = _need_bytes(nearest) - cap, _latency(chosen) / _latency(nearest)
        said.append(f"{format_gib(more)} more memory buys {gain:.2f}x: {nearest.plan}.")
    lossy = [r for r in records if r.is_lossy and is_feasible(r, budget) and _latency(r) < 0.95 * _latency(chosen)]
    if lossy and not allow_lossy:
        best = min(lossy, key=_latency)
        said.append(f"Allowing lossy plans buys {_latency(chosen) / _latency(best):.2f}x: {best.plan}.")
    return tuple(said)


def _nothing_fits(
    judged: Sequence[tuple[Record, str | None]], budget: Budget, allow_lossy: bool, num_considered: int
) -> Recommendation:
    complete = [r for r, _ in judged if r.is_complete and (allow_lossy or not r.is_lossy)]
    closest = min(complete, key=lambda r: _distance(r, budget), default=None)
    limit = f" {format_gib(budget.device_memory)} of device memory" if budget.device_memory else " the budget"
    missing = None
    if closest is None:
        sentence = f"No plan is known to fit{limit}: none of {num_considered} plans completed."
        sentence += _most_common_failure([record for record, _ in judged])
    else:
        if budget.device_memory is not None and math.isfinite(_need_bytes(closest)):
            missing = max(0, int(_need_bytes(closest)) - budget.device_memory)
        lacks = f"{format_gib(missing)} is missing" if missing else _first_reason(closest, judged)
        sentence = f"No plan fits{limit}. The closest is {closest.plan}: {lacks}."
    rejected = [Rejected(record=r, because=why or "") for r, why in judged if r is not closest]
    rejected.sort(key=lambda entry: _distance(entry.record, budget))
    return Recommendation(
        budget=budget,
        sentence=sentence,
        status="none",
        closest=closest,
        missing_bytes=missing,
        runners_up=tuple(rejected[:_MAX_RUNNERS_UP]),
        num_considered=num_considered,
    )


def _most_common_failure(records: Sequence[Record]) -> str:
    counts = Counter(f"{r.outcome}: {(r.reason or 'no reason recorded').splitlines()[0]}" for r in records)
    return f" Most of them: {counts.most_common(1)[0][0]}" if counts else ""


def _first_reason(record: Record, judged: Sequence[tuple[Record, str | None]]) -> str:
    return next((why for r, why in judged if r is record and why), "it breaks a limit")


def _distance(record: Record, budget: Budget) -> tuple[float, float]:
    over = max(violations(record, budget).values(), default=0.0)
    return (over, _latency(record)) if record.is_complete else (math.inf, math.inf)


def _place(record: Record) -> str:
    if record.kind is Kind.SIMULATED:
        return f"in simulation of {record.device.removeprefix('sim:').partition(',')[0]}"
    held_back = " with spare memory held back" if record.kind is Kind.EMULATED else ""
    return f"on {record.device}{held_back}"


def _sentence(answer: Recommendation) -> str:
    chosen = answer.chosen
    assert chosen is not None
    fits = ""
    if answer.budget.device_memory is not None and answer.need is not None:
        spare = answer.budget.device_memory - answer.need.total_bytes
        fits = f" fits {format_gib(answer.budget.device_memory)} with {format_gib(spare)} to spare"
    quality = "may change the output" if chosen.is_lossy else "output unchanged"
    where = f"{answer.status} {_place(chosen)}"
    others = f"the fastest of {answer.num_considered} plans known"
    return f"{chosen.plan}{fits}: {_latency(chosen):.3g} s a call, {quality}, {others}, {where}."
