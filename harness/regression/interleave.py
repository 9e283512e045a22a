"""Measure base and head in pairs of live processes, alternated call by call: both see the same drift of the machine."""

from __future__ import annotations

from contextlib import ExitStack

from paretune.harness.regression.live_process import LiveProcess, PairError, Side
from paretune.harness.stats import Pair

__all__ = ["PairError", "Side", "interleave", "measure_pair"]


def interleave(base: Side, head: Side, *, num_pairs: int, num_rounds: int, timeout_s: float = 600.0) -> list[Pair]:
    """``num_pairs`` pairs of fresh processes, each with ``num_rounds`` rounds of two calls per side.

    Raises ``PairError``.
    """
    sides = [(base, head, index % 2 == 1) for index in range(num_pairs)]
    return [measure_pair(b, h, num_rounds=num_rounds, timeout_s=timeout_s, is_swapped=odd) for b, h, odd in sides]


def measure_pair(
    base: Side, head: Side, *, num_rounds: int, timeout_s: float = 600.0, is_swapped: bool = False
) -> Pair:
    """One pair: both processes live, calls in the order base, head, head, base (mirrored when swapped).

    Raises ``PairError``.
    """
    with ExitStack() as stack:
        order = (head, base) if is_swapped else (base, head)
        live = [stack.enter_context(LiveProcess(side, timeout_s)) for side in order]
        for worker in live:
            worker.wait_until_ready()
        samples: tuple[list[float], list[float]] = ([], [])
        for _ in range(num_rounds):
            for index in (0, 1, 1, 0):
                samples[index].append(live[index].call())
    return (samples[1], samples[0]) if is_swapped else samples
