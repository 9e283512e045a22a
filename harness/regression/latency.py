"""Judge time from pairs of processes alternated call by call, and never from stored figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from paretune.harness.regression.findings import Finding, Status, Verdict
from paretune.harness.report.units import percent
from paretune.harness.stats import (
    Interval,
    Pair,
    detectable_effect,
    mann_whitney,
    pair_spread,
    paired_ratio,
    pairs_needed,
    ratio_interval,
)
from paretune.harness.usage import UsageError

__all__ = ["DEFAULT_SPREAD", "Judgement", "check_tolerance", "confirmed", "judge", "latency_finding"]

DEFAULT_SPREAD = 0.058
"""Standard deviation of the log-ratio of adjacent processes of equal code, measured with 40 pairs on a shared 2-core
guest without load. A machine's own figure comes from an A/A run."""

_CONFIDENCE = 0.98
_CONFIRMING_CONFIDENCE = 0.80
_SHARE_THAT_AGREES = 0.7


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict about head / base. ``interval`` is two-sided at 98 %, so that each bound alone holds at 99 %.

    p_value: Mann-Whitney over all samples, shown but not used. agreeing: share of pairs on the verdict's side.
    """

    verdict: Verdict
    interval: Interval
    num_pairs: int
    agreeing: float
    p_value: float


def check_tolerance(num_pairs: int, tolerance: float, *, spread: float = DEFAULT_SPREAD) -> float:
    """What ``num_pairs`` pairs can detect. Raises ``UsageError`` when ``tolerance`` asks for less than that."""
    effect = detectable_effect(num_pairs, spread)
    if tolerance < round(effect, 3):
        needed = pairs_needed(tolerance, spread) if tolerance > 0 else None
        more = f"Use --pairs {needed}, or" if needed else "Use"
        raise UsageError(
            f"--tolerance {percent(tolerance)}: {num_pairs} pairs of processes can only show {percent(effect)} "
            f"(equal code differs by {percent(spread)} between processes). {more} a tolerance of that size."
        )
    return effect


def judge(
    pairs: Sequence[Pair], *, tolerance: float, spread: float = DEFAULT_SPREAD, confidence: float = _CONFIDENCE
) -> Judgement:
    """SLOW when the lower bound is above 1 and the centre nearer to the tolerance than to nothing; FAST mirrored.

    SAME needs evidence too: the whole interval within the tolerance. Everything else is AMBIGUOUS.
    ``spread`` is the least the pairs are taken to differ by, because few pairs may agree by accident.
    """
    interval = _interval(pairs, spread, confidence)
    ratios = [paired_ratio(pair) for pair in pairs]
    bases = [value for base, _ in pairs for value in base]
    heads = [value for _, head in pairs for value in head]
    verdict, agreeing = _verdict(interval, ratios, tolerance)
    return Judgement(
        verdict=verdict,
        interval=interval,
        num_pairs=len(pairs),
        agreeing=agreeing,
        p_value=mann_whitney(bases, heads),
    )


def confirmed(
    first: Sequence[Pair], measure: Callable[[], Sequence[Pair]], *, tolerance: float, spread: float = DEFAULT_SPREAD
) -> Judgement:
    """Judge; a verdict of SLOW or FAST must be seen again in fresh processes, and in both runs together.

    measure: takes as many pairs again; called only when there is something to confirm. Raises what it raises.
    """
    judgement = judge(first, tolerance=tolerance, spread=spread)
    if judgement.verdict not in (Verdict.SLOW, Verdict.FAST):
        return judgement
    again = list(measure())
    alone = judge(again, tolerance=tolerance, spread=spread, confidence=_CONFIRMING_CONFIDENCE)
    together = judge([*first, *again], tolerance=tolerance, spread=spread)
    if alone.verdict is judgement.verdict is together.verdict:
        return together
    return Judgement(
        verdict=Verdict.AMBIGUOUS,
        interval=together.interval,
        num_pairs=together.num_pairs,
        agreeing=together.agreeing,
        p_value=together.p_value,
    )


def latency_finding(where: str, judgement: Judgement, *, tolerance: float) -> Finding:
    """The judgement as a finding: SLOW blocks, AMBIGUOUS is inconclusive, FAST is an improvement."""
    statuses = {
        Verdict.SLOW: Status.REGRESSION,
        Verdict.FAST: Status.IMPROVEMENT,
        Verdict.SAME: Status.PASS,
        Verdict.AMBIGUOUS: Status.INCONCLUSIVE,
    }
    interval = judgement.interval
    said = (
        f"latency {judgement.verdict.upper()}: head / base {interval.centre:.3f}, "
        f"{interval.low:.3f} to {interval.high:.3f} at {percent(interval.confidence)}, {judgement.num_pairs} pairs of "
        f"processes, tolerance {percent(tolerance)}, Mann-Whitney p {judgement.p_value:.2g}"
    )
    return Finding(
        where=where,
        metric="latency",
        verdict=judgement.verdict,
        status=statuses[judgement.verdict],
        sentence=said,
        baseline=1.0,
        head=interval.centre,
    )


def _interval(pairs: Sequence[Pair], spread: float, confidence: float) -> Interval:
    """The wider of the hierarchical bootstrap's range and the one that ``spread`` between pairs implies."""
    drawn = ratio_interval(pairs, confidence=confidence)
    seen = pair_spread(pairs) if len(pairs) > 1 else spread
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    reach = math.exp(quantile * max(seen, spread) / math.sqrt(len(pairs)))
    low, high = min(drawn.low, drawn.centre / reach), max(drawn.high, drawn.centre * reach)
    return Interval(centre=drawn.centre, low=low, high=high, confidence=confidence)


def _verdict(interval: Interval, ratios: Sequence[float], tolerance: float) -> tuple[Verdict, float]:
    half = math.sqrt(1 + tolerance)
    slower = sum(ratio > 1 for ratio in ratios) / len(ratios)
    if interval.low > 1 and interval.centre > half and slower >= _SHARE_THAT_AGREES:
        return Verdict.SLOW, slower
    if interval.high < 1 and interval.centre < 1 / half and 1 - slower >= _SHARE_THAT_AGREES:
        return Verdict.FAST, 1 - slower
    if interval.high < 1 + tolerance and interval.low > 1 / (1 + tolerance):
        return Verdict.SAME, max(slower, 1 - slower)
    return Verdict.AMBIGUOUS, max(slower, 1 - slower)
