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
from paretune.harness.regression.interleave import PairError, Pairs, interleave
from paretune.harness.regression.latency import confirmed, latency_finding
from paretune.harness.regression.sides import side
from paretune.harness.report.units import percent
from paretune.harness.stats import detectable_effect, pair_spread

__all__ = ["Settings", "findings_of", "time_findings"]

Tell = Callable[[str], None]


class Settings(Protocol):
    """How pairs are made and judged."""

    @property
    def base(self) -> Path | None: ...
    @property
    def num_pairs(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def known_spread(self) -> float: ...
    @property
    def is_self_test(self) -> bool: ...


def time_findings(before: Sequence[Record], settings: Settings, *, scratch: Path, tell: Tell) -> list[Finding]:
    """A finding per clock for every plan that completed on a real device; base and head are given by ``settings``."""
    timed = [record for record in before if record.is_complete and record.kind is not Kind.SIMULATED]
    found: list[Finding] = []
    for record in timed:
        measure = functools.partial(_pairs_of, record, settings, scratch)
        try:
            first = measure()
            found += findings_of(record, first, measure, settings)
        except PairError as error:
            found.append(_unmeasured(record, error))
            continue
        if settings.is_self_test:
            _tell_spread(record, first, settings, tell)
    return found


def findings_of(record: Record, first: Pairs, measure: Callable[[], Pairs], settings: Settings) -> list[Finding]:
    """Judge each clock; what must be confirmed is measured again once, for both clocks together.

    On the CPU, waiting for a busy machine makes the wall clock ambiguous; when processor time says SAME there, that is
    noted and does not make the gate inconclusive.
    """
    again = functools.cache(measure)
    clocks = ("wall", "processor") if record.device == "cpu" else ("wall",)
    made = {}
    for clock in clocks:
        judged = confirmed(
            first[clock],
            lambda clock=clock: again()[clock],  # type: ignore[misc]
            tolerance=settings.tolerance,
            spread=settings.known_spread,
        )
        finding = latency_finding(name_of(record), judged, tolerance=settings.tolerance)
        made[clock] = dataclasses.replace(finding, metric="latency" if clock == "wall" else "processor_time")
    wall, processor = made["wall"], made.get("processor")
    if wall.verdict is Verdict.AMBIGUOUS and processor is not None and processor.verdict is Verdict.SAME:
        made["wall"] = dataclasses.replace(wall, status=Status.NOTE)
    return list(made.values())


def _pairs_of(record: Record, settings: Settings, scratch: Path) -> Pairs:
    base = side(record, checkout=settings.base, scratch=scratch)
    head = side(record, checkout=None, scratch=scratch)
    return interleave(base, head, num_pairs=settings.num_pairs, num_rounds=settings.num_rounds)


def _unmeasured(record: Record, error: PairError) -> Finding:
    return Finding(
        where=name_of(record),
        metric="latency",
        verdict=Verdict.MISSING,
        status=Status.INCONCLUSIVE,
        sentence=f"time could not be compared: {error}",
    )


def _tell_spread(record: Record, pairs: Pairs, settings: Settings, tell: Tell) -> None:
    if settings.num_pairs < 2:
        return
    for clock, measured in pairs.items():
        seen = pair_spread(measured)
        effect = detectable_effect(settings.num_pairs, seen)
        tell(
            f"{name_of(record)}: equal code differed by {percent(seen)} between processes ({clock} clock), so "
            f"{settings.num_pairs} pairs show {percent(effect)} here. Use --spread {seen:.3f}."
        )
