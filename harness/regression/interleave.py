"""Measure base and head in pairs of live processes, alternated call by call: both see the same drift of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from paretune.harness.regression.live_process import CLOCKS, LiveProcess, PairError, Side
from paretune.harness.stats import Pair

__all__ = ["PairError", "Pairs", "Side", "interleave", "measure_pair"]

Pairs = dict[str, list[Pair]]
"""Samples of every pair, by clock."""


def interleave(base: Side, head: Side, *, num_pairs: int, num_rounds: int, timeout_s: float = 600.0) -> Pairs:
    """``num_pairs`` pairs of fresh processes, each with ``num_rounds`` rounds of two calls per side, by clock.

    Raises ``PairError``.
    """
    found: Pairs = {clock: [] for clock in CLOCKS}
    for index in range(num_pairs):
        measured = measure_pair(base, head, num_rounds=num_rounds, timeout_s=timeout_s, is_swapped=index % 2 == 1)
        for clock, pair in measured.items():
            found[clock].append(pair)
    return found


def measure_pair(
    base: Side, head: Side, *, num_rounds: int, timeout_s: float = 600.0, is_swapped: bool = False
) -> dict[str, Pair]:
    """One pair: both processes live, calls in the order base, head, head, base (mirrored when swapped).

    Raises ``PairError``.
    """
    order = (head, base) if is_swapped else (base, head)
    samples: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    with ExitStack() as stack:
        live = [stack.enter_context(LiveProcess(side, timeout_s)) for side in order]
        for process in live:
            process.wait_until_ready()
        for _ in range(num_rounds):
            for index in (0, 1, 1, 0):
                samples[index].append(live[index].call())
    first, second = samples
    bases, heads = (second, first) if is_swapped else (first, second)
    return {clock: (_of(clock, bases), _of(clock, heads)) for clock in CLOCKS}


def _of(clock: str, calls: Sequence[dict[str, float]]) -> tuple[float, ...]:
    return tuple(call[clock] for call in calls)
