"""Summarise a validation: errors by kind of figure, by source and by strategy, ratios between strategies, and their order."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from paretune.harness.validation.compare import RowResult

__all__ = ["Errors", "Report", "errors_of", "kendall_tau", "ratios", "summarise", "vars_of"]


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Relative errors of a group of rows, as absolute values; bias is the median with its sign."""

    count: int
    median: float
    p90: float
    largest: float
    bias: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """Every row with its result, and summaries over them."""

    rows: tuple[RowResult, ...]
    unread: tuple[tuple[str, str], ...] = ()
    by_kind: dict[str, Errors] = field(default_factory=dict)
    by_kind_unexplained: dict[str, Errors] = field(default_factory=dict)
    by_part: dict[str, Errors] = field(default_factory=dict)
    by_source: dict[str, Errors] = field(default_factory=dict)
    by_strategy: dict[str, Errors] = field(default_factory=dict)
    time_ratios: Errors | None = None
    kendall_tau: float | None = None
    num_groups_ordered: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--format json`; rows carry id, metric, published, simulated, reason."""
        plain = {name: {key: vars_of(value) for key, value in getattr(self, name).items()} for name in _TABLES}
        return {
            "rows": [row.to_json() for row in self.rows],
            "unread": [{"id": name, "reason": reason} for name, reason in self.unread],
            **plain,
            "time_ratios": vars_of(self.time_ratios) if self.time_ratios else None,
            "kendall_tau": self.kendall_tau,
        }


_TABLES = ("by_kind", "by_kind_unexplained", "by_part", "by_source", "by_strategy")


def vars_of(errors: Errors) -> dict[str, float]:
    """An `Errors` as a mapping."""
    return {name: getattr(errors, name) for name in ("count", "median", "p90", "largest", "bias")}


def summarise(results: Iterable[RowResult], *, unread: Iterable[tuple[str, str]] = ()) -> Report:
    """Group results and count their errors. Times count as absolute only where the card is known."""
    rows = tuple(results)
    usable = [row for row in rows if row.error is not None and (row.kind != "time" or row.is_card_known)]
    pairs, taus = ratios(rows), _taus(rows)
    return Report(
        rows=rows,
        unread=tuple(unread),
        by_kind=_grouped(usable, lambda row: row.kind),
        by_kind_unexplained=_grouped([row for row in usable if not row.explained], lambda row: row.kind),
        by_part=_grouped(usable, lambda row: f"{row.kind} {row.part}"),
        by_source=_grouped(usable, lambda row: f"{row.kind} {row.family}"),
        by_strategy=_grouped(usable, lambda row: f"{row.kind} {row.strategy}"),
        time_ratios=errors_of(pairs) if pairs else None,
        kendall_tau=statistics.fmean(taus) if taus else None,
        num_groups_ordered=len(taus),
    )


def errors_of(errors: Iterable[float]) -> Errors:
    """Median, 90th percentile and largest of absolute errors, and the signed median."""
    signed = sorted(errors)
    sizes = sorted(abs(error) for error in signed)
    return Errors(
        count=len(sizes),
        median=statistics.median(sizes),
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        largest=sizes[-1],
        bias=statistics.median(signed),
    )


def ratios(rows: Iterable[RowResult]) -> list[float]:
    """Errors of the ratio of every time to the resident one of the same source, card and model."""
    found = []
    for group in _timed_groups(rows):
        base = next((row for row in group if row.strategy == "resident"), None)
        if base is None:
            continue
        for row in group:
            if row is not base and row.strategy != "resident":
                found.append((_simulated(row) / _simulated(base)) / (_published(row) / _published(base)) - 1.0)
    return found


def _taus(rows: Iterable[RowResult]) -> list[float]:
    taus = []
    for group in _timed_groups(rows):
        best = {row.strategy: row for row in group}
        if len(best) >= 3:
            members = list(best.values())
            taus.append(kendall_tau([_published(row) for row in members], [_simulated(row) for row in members]))
    return taus


def _timed_groups(rows: Iterable[RowResult]) -> list[list[RowResult]]:
    """Times that may be compared: one source, card, model and metric, and the same size of run."""
    groups: dict[Any, list[RowResult]] = {}
    for row in rows:
        if row.kind == "time" and row.error is not None:
            size = row.case.partition("}")[0]
            groups.setdefault((row.family, row.source, row.gpu, row.model, row.metric, size), []).append(row)
    return list(groups.values())


def kendall_tau(left: list[float], right: list[float]) -> float:
    """Rank agreement: 1 for the same order, -1 for the opposite one; ties count for neither."""
    agreeing = disagreeing = 0
    for first, second in itertools.combinations(range(len(left)), 2):
        sign = (left[first] - left[second]) * (right[first] - right[second])
        agreeing += sign > 0
        disagreeing += sign < 0
    total = agreeing + disagreeing
    return (agreeing - disagreeing) / total if total else 1.0


def _grouped(rows: Iterable[RowResult], key: Callable[[RowResult], str]) -> dict[str, Errors]:
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.error is not None:
            groups.setdefault(key(row), []).append(row.error)
    return {name: errors_of(errors) for name, errors in sorted(groups.items())}


def _published(row: RowResult) -> float:
    assert row.published is not None
    return row.published


def _simulated(row: RowResult) -> float:
    assert row.simulated is not None
    return row.simulated
