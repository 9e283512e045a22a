"""Add pairs of processes while what they show is ambiguous: quiet machines answer soon, busy ones get more evidence."""

from __future__ import annotations

from collections.abc import Callable

from paretune.harness.regression.findings import Verdict
from paretune.harness.regression.interleave import Pairs
from paretune.harness.regression.latency import Sensitivity, judge

__all__ = ["Draw", "settled"]

Draw = Callable[[int], Pairs]
"""Measure so many more pairs."""


def settled(
    draw: Draw, *, clock: str, num_pairs: int, max_pairs: int, sensitivity: Sensitivity, confidence: float | None = None
) -> Pairs:
    """``num_pairs`` pairs, then as many again while ``clock`` is ambiguous, up to ``max_pairs``. Raises what ``draw`` does.

    Looking several times raises the chance of a false alarm; that is why an alarm counts only once a second, fresh
    series has confirmed it. confidence: two-sided, of each look; ``None`` for that of a verdict.
    """
    pairs = draw(num_pairs)
    while (missing := max_pairs - len(pairs[clock])) > 0:
        if judge(pairs[clock], sensitivity, confidence=confidence).verdict is not Verdict.AMBIGUOUS:
            break
        more = draw(min(num_pairs, missing))
        pairs = {name: [*pairs[name], *more[name]] for name in pairs}
    return pairs
