"""Measure base and head in pairs of live processes, alternated call by call: both see the same drift of the machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from paretune.harness.regression.live_process import CLOCKS, LiveProcess
from paretune.harness.regression.preloaded import PairError, PairParent, Side
from paretune.harness.stats import Pair, mad

__all__ = ["PairError", "PairParent", "Pairs", "Rounds", "Side", "interleave", "measure_pair"]

Pairs = dict[str, list[Pair]]
"""Samples of every pair, by clock."""

_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)
"""How much wider the error of a median is than that of a mean, for normal samples."""

Calls = list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How often the two processes of a pair are called: rounds of base, head, head, base.

    At least ``least``; then until the pair's own ratio on ``clock`` is known to ``precision``, or ``most`` rounds or
    ``most_s`` seconds are over. What stops a pair is how precise it is, never what it shows, so no verdict gains by it.
    """

    least: int = 10
    most: int = 50
    most_s: float = 20.0
    precision: float = 0.015
    clock: str = "wall"
    timeout_s: float = 600.0


def interleave(base: Side, head: Side, *, parent: PairParent, num_pairs: int, rounds: Rounds) -> Pairs:
    """``num_pairs`` pairs of fresh processes, by clock; every other one starts with the head. Raises ``PairError``."""
    found: Pairs = {clock: [] for clock in CLOCKS}
    for index in range(num_pairs):
        measured = measure_pair(base, head, parent=parent, rounds=rounds, is_swapped=index % 2 == 1)
        for clock, pair in measured.items():
            found[clock].append(pair)
    return found


def measure_pair(
    base: Side, head: Side, *, parent: PairParent, rounds: Rounds, is_swapped: bool = False
) -> dict[str, Pair]:
    """One pair: both processes live, calls in the order base, head, head, base (mirrored when swapped).

    Raises ``PairError``.
    """
    order = (head, base) if is_swapped else (base, head)
    calls: tuple[Calls, Calls] = ([], [])
    with ExitStack() as stack:
        live = [stack.enter_context(LiveProcess(side, parent, rounds.timeout_s)) for side in order]
        for process in live:
            process.wait_until_ready()
        began = time.monotonic()
        while not _is_enough(calls, rounds, time.monotonic() - began):
            for index in (0, 1, 1, 0):
                calls[index].append(live[index].call())
    first, second = calls
    bases, heads = (second, first) if is_swapped else (first, second)
    return {clock: (_of(clock, bases), _of(clock, heads)) for clock in CLOCKS}


def _is_enough(calls: tuple[Calls, Calls], rounds: Rounds, elapsed_s: float) -> bool:
    done = len(calls[0]) // 2
    if done < rounds.least:
        return False
    if done >= rounds.most or elapsed_s > rounds.most_s:
        return True
    one, other = (_of(rounds.clock, side) for side in calls)
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    return _MEDIAN_OVER_MEAN * mad(logs) / math.sqrt(len(logs)) <= rounds.precision


def _of(clock: str, calls: Sequence[dict[str, float]]) -> tuple[float, ...]:
    return tuple(call[clock] for call in calls)
