"""Judge the time of every measured plan of a baseline, base against head, and say what this machine can detect."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from paretune.harness.records import Kind, Record
from paretune.harness.regression.findings import Finding, Status, Verdict
from paretune.harness.regression.identity import name_of
from paretune.harness.regression.interleave import PairError, PairParent, Pairs, Rounds, interleave
from paretune.harness.regression.latency import CONFIRMING, Sensitivity, confirmed, latency_finding
from paretune.harness.regression.preloaded import LIBRARIES, OF_PIPELINES
from paretune.harness.regression.sequential import settled
from paretune.harness.regression.sides import side
from paretune.harness.report.units import percent
from paretune.harness.stats import Pair, detectable_effect, pair_spread, spread_bound

__all__ = ["Measure", "Settings", "findings_of", "time_findings"]

Tell = Callable[[str], None]
Measure = Callable[[float | None], Pairs]
"""A series of pairs in fresh processes, each look at it at the given two-sided confidence."""

_METRICS = {"wall": "latency", "processor": "processor_time"}


class Settings(Protocol):
    """How pairs are made and judged."""

    @property
    def num_pairs(self) -> int: ...
    @property
    def max_pairs(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def sensitivity(self) -> Sensitivity: ...
    @property
    def is_self_test(self) -> bool: ...


def time_findings(
    before: Sequence[Record], settings: Settings, *, base: Path | None, scratch: Path, tell: Tell
) -> list[Finding]:
    """A finding per clock for every plan that completed on a real device; none at all is a finding too.

    base: the folder of the base, ``None`` for the head itself.
    """
    timed = [record for record in before if record.is_complete and record.kind is not Kind.SIMULATED]
    if not timed:
        return [_unmeasured("every plan", "the baseline holds none that completed on a real device")]
    with PairParent(libraries=_libraries(timed)) as parent:
        places = (base, scratch)
        return [finding for record in timed for finding in _timed(record, settings, places, parent, tell)]


def findings_of(record: Record, measure: Measure, settings: Settings, tell: Tell = lambda line: None) -> list[Finding]:
    """Judge each clock; what must be confirmed is measured again once, for both clocks together.

    On the CPU processor time decides how many pairs there are, since waiting for a busy machine makes the wall clock
    ambiguous; when processor time says SAME there, that is noted and does not make the gate inconclusive.
    """
    first, again = measure(None), functools.cache(lambda: measure(CONFIRMING))
    made = {}
    for clock in _clocks(record):
        judged = confirmed(first[clock], lambda clock=clock: again()[clock], settings.sensitivity)  # type: ignore[misc]
        tolerance = settings.sensitivity.tolerance
        made[clock] = latency_finding(name_of(record), judged, tolerance=tolerance, metric=_METRICS[clock])
    wall, processor = made["wall"], made.get("processor")
    if wall.verdict is Verdict.AMBIGUOUS and processor is not None and processor.verdict is Verdict.SAME:
        made["wall"] = dataclasses.replace(wall, status=Status.NOTE)
    if settings.is_self_test:
        for clock in made:
            _tell_spread(f"{name_of(record)}, {clock} clock", first[clock], tell)
    return list(made.values())


def _timed(
    record: Record, settings: Settings, places: tuple[Path | None, Path], parent: PairParent, tell: Tell
) -> list[Finding]:
    base, head = (side(record, checkout=place, scratch=places[1]) for place in (places[0], None))
    precision = settings.sensitivity.spread / 2  # finer than that, the processes' own differences hide it
    rounds = Rounds(least=settings.num_rounds, clock=_clocks(record)[0], precision=precision)

    def draw(num_pairs: int) -> Pairs:
        tell(f"{name_of(record)}: {num_pairs} pairs of processes")
        return interleave(base, head, parent=parent, num_pairs=num_pairs, rounds=rounds)

    def measure(confidence: float | None) -> Pairs:
        return settled(
            draw,
            clock=rounds.clock,
            num_pairs=settings.num_pairs,
            max_pairs=settings.max_pairs,
            sensitivity=settings.sensitivity,
            confidence=confidence,
        )

    try:
        return findings_of(record, measure, settings, tell)
    except PairError as error:
        return [_unmeasured(name_of(record), str(error))]


def _libraries(records: Sequence[Record]) -> tuple[str, ...]:
    """What the parent imports: all of it when a pipeline is among the plans, torch alone for the user's own functions."""
    is_pipeline = any(":" not in str(record.workload.get("name", "")) for record in records)
    return (*LIBRARIES, *OF_PIPELINES) if is_pipeline else LIBRARIES


def _clocks(record: Record) -> tuple[str, ...]:
    """The clocks that count there; the first decides."""
    return ("processor", "wall") if record.device == "cpu" else ("wall",)


def _unmeasured(where: str, why: str) -> Finding:
    return Finding(
        where=where,
        metric="latency",
        verdict=Verdict.MISSING,
        status=Status.INCONCLUSIVE,
        sentence=f"time could not be compared: {why}",
    )


def _tell_spread(what: str, pairs: Sequence[Pair], tell: Tell) -> None:
    if len(pairs) < 2:
        return
    bound = spread_bound(pairs)
    effect = detectable_effect(len(pairs), bound)
    tell(
        f"{what}: equal code differed by {percent(pair_spread(pairs))} between processes, by up to {percent(bound)} as "
        f"far as {len(pairs)} pairs can tell; they show a slowdown of {percent(effect)} here. Use --spread {bound:.3f}."
    )
