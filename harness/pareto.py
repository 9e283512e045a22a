"""The front: records that no other beats in every figure at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paretune.harness.constraints import need_of
from paretune.harness.records import Record

__all__ = ["latency_and_need", "pareto"]

Figures = Callable[[Record], tuple[float, ...] | None]
"""The figures of a record that count, smaller is better; ``None`` for a record that takes no part."""


def latency_and_need(record: Record) -> tuple[float, ...] | None:
    """Seconds of a call and bytes of device memory that must be there; ``None`` unless it completed with both."""
    need, latency = need_of(record), record.median_latency_s
    if not record.is_complete or need is None or latency is None:
        return None
    return latency, float(need.total_bytes)


def pareto(records: Sequence[Record], figures: Figures = latency_and_need) -> list[Record]:
    """The records that none dominates, fastest first; records with equal figures all stay.

    One dominates another when it is nowhere worse and somewhere better.
    """
    valued = [(values, record) for record in records if (values := figures(record)) is not None]
    valued.sort(key=lambda pair: pair[0])
    front: list[tuple[tuple[float, ...], Record]] = []
    for values, record in valued:
        if not any(_dominates(other, values) for other, _ in front):
            front.append((values, record))
    return [record for _, record in front]


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
