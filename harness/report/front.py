"""Which records no other beats in both time and device memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paretune.harness.records import Record

__all__ = ["on_front"]


def on_front(records: Sequence[Record]) -> list[Record]:
    """Records with a latency and a size that none dominates, smallest first; equal ones all stay."""
    points = [r for r in records if r.median_latency_s is not None and r.needed_bytes is not None]
    points.sort(key=lambda record: (record.needed_bytes or 0, record.median_latency_s or 0.0))
    kept: list[Record] = []
    best_s = math.inf
    for record in points:
        latency_s = record.median_latency_s or 0.0
        is_tie = bool(kept) and (kept[-1].needed_bytes, kept[-1].median_latency_s) == (record.needed_bytes, latency_s)
        if latency_s < best_s or is_tie:
            kept.append(record)
            best_s = min(best_s, latency_s)
    return kept
