"""Warnings as values: what in a record deserves a second look, and what to change."""

from __future__ import annotations

from collections.abc import Iterator

from paretune.harness.records import Record

__all__ = ["advise"]


def advise(record: Record) -> Iterator[str]:
    """Yield one sentence, with figures and a remedy, for each thing that looks wrong with a measurement."""
    median = record.median_latency_s
    if median and record.latency_s[0] > 1.5 * median:
        times = record.latency_s[0] / median
        yield f"the first timed call took {times:.1f} times the median: raise procedure.num_warmup."
