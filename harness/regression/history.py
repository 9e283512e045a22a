"""A figure over many runs: one series per plan and machine, with its change points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paretune.harness.records import Record
from paretune.harness.regression.changepoints import ChangePoint, change_points
from paretune.harness.regression.identity import fingerprint, identity, name_of
from paretune.harness.regression.metrics import figures

__all__ = ["Run", "Series", "value_of", "series"]

_VERSIONS = ("torch", "diffusers", "transformers", "accelerate")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One value and when it was measured."""

    created: str
    value: float
    versions: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """Runs of one plan on one machine in the order measured. ``where`` names the plan and the kind of its figures;
    skipped: records that hold no such figure."""

    where: str
    metric: str
    runs: tuple[Run, ...]
    changes: tuple[ChangePoint, ...]
    skipped: int


def series(records: Iterable[Record], metric: str, *, least_magnitude: float = 0.02) -> list[Series]:
    """Series of every plan, sorted by plan. Versions may differ along a series, machines may not."""
    by_place: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_place.setdefault((identity(record), _machine(record)), []).append(record)
    made = [_series(members, metric, least_magnitude) for members in by_place.values()]
    return sorted(made, key=lambda found: found.where)


def value_of(record: Record, metric: str) -> float | None:
    """The figure ``metric`` (such as ``latency_s`` or ``transfers.h2d_bytes``), ``None`` where there is none."""
    if not record.is_complete:
        return None
    value = record.median_latency_s if metric == "latency_s" else figures(record).get(metric)
    return float(value) if isinstance(value, int | float) else None


def _series(members: Sequence[Record], metric: str, least_magnitude: float) -> Series:
    ordered = sorted(members, key=lambda record: record.created)
    known = [(record, value) for record in ordered if (value := value_of(record, metric)) is not None]
    runs = tuple(Run(created=record.created, value=value, versions=_versions(record)) for record, value in known)
    return Series(
        where=f"{name_of(members[0])} ({members[0].kind})",
        metric=metric,
        runs=runs,
        changes=tuple(change_points([run.value for run in runs], least_magnitude=least_magnitude)),
        skipped=len(members) - len(known),
    )


def _machine(record: Record) -> str:
    stable = {name: value for name, value in fingerprint(record).items() if name not in _VERSIONS}
    return f"{record.kind} {sorted(stable.items())}"


def _versions(record: Record) -> str:
    known = record.environment.get("versions", {})
    return " ".join(f"{name} {known[name]}" for name in _VERSIONS if name in known)
