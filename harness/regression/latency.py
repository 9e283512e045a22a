"""Judge time from pairs of processes alternated call by call, and never from stored figures."""

from __future__ import annotations

import dataclasses
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

__all__ = [
    "CONFIRMING",
    "DEFAULT_SPREAD",
    "Judgement",
    "Sensitivity",
    "check_tolerance",
    "confirmed",
    "judge",
    "latency_finding",
]

DEFAULT_SPREAD = 0.03
"""Least standard deviation that the log-ratios of pairs are taken to have.

Measured in processor time on a shared 2-core guest under a load of 5 to 9, of pairs forked from one parent: 1.2 % over
12 pairs of a small function, 4.6 % over 8 pairs of a toy pipeline. What pairs are seen to differ by counts where it is
more; a machine's own figure comes from ``paretune check --self-test``.
"""

CONFIRMING = 0.80
"""Two-sided confidence at which a second, fresh series has to show the same as the first."""

_CONFIDENCE = 0.98
_SHARE_THAT_AGREES = 0.7


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What is looked for: a change of ``tolerance``, between processes that differ by at least ``spread`` anyhow."""

    tolerance: float = 0.10
    spread: float = DEFAULT_SPREAD


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict about head / base. ``interval`` is two-sided at 98 %, so that each bound alone holds at 99 %.

    p_value: Mann-Whitney over all samples, shown but not used. agreeing: share of pairs on the verdict's side.
    spread: by how much the pairs differ among themselves, ``None`` for a single one.
    """

    verdict: Verdict
    interval: Interval
    num_pairs: int
    agreeing: float
    p_value: float
    spread: float | None


def check_tolerance(num_pairs: int, sensitivity: Sensitivity) -> float:
    """What ``num_pairs`` pairs can detect. Raises ``UsageError`` when the tolerance asks for less than that."""
    tolerance, spread = sensitivity.tolerance, sensitivity.spread
    effect = detectable_effect(num_pairs, spread)
    if tolerance < round(effect, 3):
        needed = pairs_needed(tolerance, spread) if tolerance > 0 else None
        more = f"Use --max-pairs {needed}, or" if needed else "Use"
        raise UsageError(
            f"--tolerance {percent(tolerance)}: {num_pairs} pairs of processes can only show {percent(effect)} "
            f"(equal code differs by {percent(spread)} between processes). {more} a tolerance of that size."
        )
    return effect


def judge(pairs: Sequence[Pair], sensitivity: Sensitivity, *, confidence: float | None = None) -> Judgement:
    """SLOW when the lower bound is above 1 and the centre nearer to the tolerance than to nothing; FAST mirrored.

    SAME needs evidence too: the whole interval within the tolerance. Everything else is AMBIGUOUS.
    confidence: two-sided; ``None`` for the 98 % of a verdict.
    """
    interval = _interval(pairs, sensitivity.spread, confidence or _CONFIDENCE)
    ratios = [paired_ratio(pair) for pair in pairs]
    bases = [value for base, _ in pairs for value in base]
    heads = [value for _, head in pairs for value in head]
    verdict, agreeing = _verdict(interval, ratios, sensitivity.tolerance)
    return Judgement(
        verdict=verdict,
        interval=interval,
        num_pairs=len(pairs),
        agreeing=agreeing,
        p_value=mann_whitney(bases, heads),
        spread=pair_spread(pairs) if len(pairs) > 1 else None,
    )


def confirmed(first: Sequence[Pair], measure: Callable[[], Sequence[Pair]], sensitivity: Sensitivity) -> Judgement:
    """Judge; a verdict of SLOW or FAST must be seen again in fresh processes, and in both series together.

    measure: takes the second series; called only when there is something to confirm. Raises what it raises.
    """
    judgement = judge(first, sensitivity)
    if judgement.verdict not in (Verdict.SLOW, Verdict.FAST):
        return judgement
    again = list(measure())
    alone = judge(again, sensitivity, confidence=CONFIRMING)
    together = judge([*first, *again], sensitivity)
    if alone.verdict is judgement.verdict is together.verdict:
        return together
    return dataclasses.replace(together, verdict=Verdict.AMBIGUOUS)


def latency_finding(where: str, judgement: Judgement, *, tolerance: float, metric: str = "latency") -> Finding:
    """The judgement as a finding: SLOW blocks, AMBIGUOUS is inconclusive, FAST is an improvement."""
    statuses = {
        Verdict.SLOW: Status.REGRESSION,
        Verdict.FAST: Status.IMPROVEMENT,
        Verdict.SAME: Status.PASS,
        Verdict.AMBIGUOUS: Status.INCONCLUSIVE,
    }
    interval = judgement.interval
    said = (
        f"{metric.replace('_', ' ')} {judgement.verdict.upper()}: head / base {interval.centre:.3f}, "
        f"{interval.low:.3f} to {interval.high:.3f} at {percent(interval.confidence)}, {judgement.num_pairs} pairs of "
        f"processes, tolerance {percent(tolerance)}, Mann-Whitney p {judgement.p_value:.2g}"
    )
    if judgement.verdict is Verdict.AMBIGUOUS and judgement.spread is not None:
        shown = detectable_effect(judgement.num_pairs, judgement.spread)
        said += f"; the pairs differed by {percent(judgement.spread)}, so that many show no less than {percent(shown)}"
    return Finding(
        where=where,
        metric=metric,
        verdict=judgement.verdict,
        status=statuses[judgement.verdict],
        sentence=said,
        baseline=1.0,
        head=interval.centre,
    )


def _interval(pairs: Sequence[Pair], spread: float, confidence: float) -> Interval:
    """The widest of three: the hierarchical bootstrap's range, and those that the assumed and the seen spread imply.

    The seen spread of few pairs is itself uncertain, which Student's quantile covers.
    """
    drawn = ratio_interval(pairs, confidence=confidence)
    reach = math.exp(_reach(pairs, spread, (1 + confidence) / 2))
    low, high = min(drawn.low, drawn.centre / reach), max(drawn.high, drawn.centre * reach)
    return Interval(centre=drawn.centre, low=low, high=high, confidence=confidence)


def _reach(pairs: Sequence[Pair], spread: float, level: float) -> float:
    """Half of the interval of the mean log-ratio."""
    from scipy.stats import t

    assumed = NormalDist().inv_cdf(level) * spread
    seen = float(t.ppf(level, len(pairs) - 1)) * pair_spread(pairs) if len(pairs) > 1 else 0.0
    return max(assumed, seen) / math.sqrt(len(pairs))


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
