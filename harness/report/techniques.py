"""What each technique alone costs and saves against the reference: the trade-off, one line per setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paretune.harness.records import Record
from paretune.harness.report.settings import settings_of
from paretune.harness.report.table import Row, rows
from paretune.strategies.errors import PlanError

__all__ = ["Technique", "techniques"]


@dataclass(frozen=True, kw_only=True)
class Technique:
    """The effect of one setting: from the plan without it to the plan with it, everything else equal.

    num_comparisons: pairs of plans that differ in this setting only; the figures are the medians over them.
    relative_latency: above 1 is slower. saved_bytes: peak allocated, above 0 is smaller.
    rescued: plans that complete with it and ran out of memory without it. example: one plan that has it.
    """

    setting: str
    num_comparisons: int
    relative_latency: float | None
    saved_bytes: float | None
    relative_memory: float | None
    fidelity_db: float | None
    is_lossy: bool
    rescued: int
    example: str


def techniques(records: Iterable[Record]) -> tuple[Technique, ...]:
    """Every setting that occurs, the largest saving first. Raises ``MixedRecords`` as ``rows`` does."""
    made = rows(records)
    by_settings = {frozenset(_texts(row.plan)): row for row in made}
    names = dict.fromkeys(text for row in made for text in _texts(row.plan))
    found = [_technique(name, by_settings) for name in names]
    known = [technique for technique in found if technique is not None]
    return tuple(sorted(known, key=lambda t: (-(t.saved_bytes or 0), t.relative_latency or 0.0, t.setting)))


def _texts(plan: str) -> list[str]:
    made = []
    try:
        settings = settings_of(plan)
    except PlanError:  # recorded by hand or by another tool: it stays whole, like a single setting
        return [plan]
    for setting in settings:
        arguments = ",".join(f"{name}={value}" for name, value in setting.arguments.items())
        made.append(f"{setting.place}({arguments})" if arguments else setting.place)
    return made


def _technique(name: str, by_settings: dict[frozenset[str], Row]) -> Technique | None:
    pairs = []
    for settings, row in by_settings.items():
        without = by_settings.get(settings - {name}) if name in settings else None
        if without is not None and row.outcome == "complete":
            pairs.append((without, row))
    if not pairs:
        return None
    both = [(before, after) for before, after in pairs if before.outcome == "complete"]
    fidelities = [row.fidelity for _, row in pairs if row.fidelity is not None]
    return Technique(
        setting=name,
        num_comparisons=len(both),
        relative_latency=_median([_share(a.latency_s, b.latency_s) for b, a in both]),
        saved_bytes=_median([_saved(b, a) for b, a in both]),
        relative_memory=_median([_share(a.peak_allocated_bytes, b.peak_allocated_bytes) for b, a in both]),
        fidelity_db=min(fidelities, default=None),
        is_lossy=any(after.is_lossy and not before.is_lossy for before, after in pairs),
        rescued=sum(before.outcome == "oom" for before, _ in pairs),
        example=min((row.plan for _, row in pairs), key=len),
    )


def _share(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _saved(before: Row, after: Row) -> float | None:
    if before.peak_allocated_bytes is None or after.peak_allocated_bytes is None:
        return None
    return float(before.peak_allocated_bytes - after.peak_allocated_bytes)


def _median(values: Sequence[float | None]) -> float | None:
    from paretune.harness.stats import median

    known = [value for value in values if value is not None]
    return median(known) if known else None
