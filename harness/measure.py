"""Call a workload again and again: warm-up kept apart, then timed calls until their spread is small enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paretune.harness.devices.base import Session
from paretune.harness.records import Procedure

__all__ = ["Timed", "half_interval", "measure"]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Samples in seconds, in the order taken, and what the first and the last call returned."""

    warmup_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    first_output: Any
    last_output: Any


def measure(call: Callable[[], Any], session: Session, procedure: Procedure, *, once: bool = False) -> Timed:
    """Time whole calls. ``once``: the device is deterministic, one timed call after the warm-up tells everything."""
    warmup: list[float] = []
    samples: list[float] = []
    first = last = None
    for _ in range(procedure.num_warmup):
        seconds, output = _timed(call, session)
        first = output if first is None else first
        warmup.append(seconds)
        del output
    began = time.monotonic()
    while not _enough(samples, began, procedure, once=once):
        last = None  # the output of the call before must not stand in the peak of the next
        seconds, last = _timed(call, session)
        samples.append(seconds)
    return Timed(
        warmup_s=tuple(warmup),
        latency_s=tuple(samples),
        first_output=last if first is None else first,
        last_output=last,
    )


def _timed(call: Callable[[], Any], session: Session) -> tuple[float, Any]:
    session.start_call()
    before = session.now_s()
    output = call()
    return session.now_s() - before, output


def _enough(samples: list[float], began: float, procedure: Procedure, *, once: bool) -> bool:
    if once:
        return len(samples) >= 1
    if len(samples) < procedure.min_iterations:
        return len(samples) >= 1 and time.monotonic() - began > procedure.max_seconds
    if len(samples) >= procedure.max_iterations or time.monotonic() - began > procedure.max_seconds:
        return True
    median = sorted(samples)[len(samples) // 2]
    return half_interval(samples) <= procedure.target_spread * median


def half_interval(samples: list[float]) -> float:
    """Half the 95 % interval of the median, from order statistics (binomial); the whole range below six samples."""
    ranked, count = sorted(samples), len(samples)
    if count < 6:
        return (ranked[-1] - ranked[0]) / 2
    reach = 0.98 * count**0.5
    low = max(0, int(count / 2 - reach))
    high = min(count - 1, int(count / 2 + reach))
    return (ranked[high] - ranked[low]) / 2
