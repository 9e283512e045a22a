"""Say what samples show and how sure that is: robust centre and spread, intervals, tests, what is detectable at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

__all__ = [
    "Interval",
    "Pair",
    "bootstrap_interval",
    "detectable_effect",
    "is_narrow",
    "mad",
    "mann_whitney",
    "median",
    "outliers",
    "pair_spread",
    "paired_ratio",
    "pairs_needed",
    "ratio_interval",
    "spread_bound",
]

_MAD_TO_SIGMA = 1.4826
_TUKEY_FAR = 3.0
_NUM_RESAMPLES = 2000

Pair = tuple[Sequence[float], Sequence[float]]
"""Samples of base and head from one pair of processes alternated call by call; position i belongs to position i."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with the range that holds it at ``confidence``; unit of the samples, or a ratio."""

    centre: float
    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half of the range, relative to the centre; infinite around zero."""
        return (self.high - self.low) / 2 / abs(self.centre) if self.centre else math.inf


def median(samples: Sequence[float]) -> float:
    """Median. Raises ``ValueError`` for no samples and for samples that are not finite."""
    return float(np.median(_checked(samples)))


def mad(samples: Sequence[float]) -> float:
    """Median absolute deviation scaled by 1.4826, which estimates the standard deviation of normal samples."""
    values = _checked(samples)
    return _MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def outliers(samples: Sequence[float]) -> tuple[int, ...]:
    """Positions beyond three interquartile ranges from the quartiles (Tukey's far fences): to tag, never to delete."""
    values = _checked(samples)
    low, high = np.percentile(values, [25, 75])
    reach = _TUKEY_FAR * (high - low)
    return tuple(int(i) for i in np.flatnonzero((values < low - reach) | (values > high + reach)))


def bootstrap_interval(
    samples: Sequence[float],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    statistic: Callable[..., np.ndarray] = np.median,
) -> Interval:
    """Percentile bootstrap around ``statistic`` (called with ``axis=1``); same samples and seed, same range."""
    values = _checked(samples)
    draws = np.random.default_rng(seed).integers(0, len(values), size=(_NUM_RESAMPLES, len(values)))
    drawn = statistic(values[draws], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    centre = float(statistic(values[None, :], axis=1)[0])
    return Interval(centre=centre, low=float(low), high=float(high), confidence=confidence)


def is_narrow(samples: Sequence[float], *, target_spread: float, confidence: float = 0.95) -> bool:
    """Whether half the interval around the median is below ``target_spread`` of it: time to stop repeating.

    Fewer than three samples are never narrow: two equal ones would be, by accident.
    """
    return len(samples) >= 3 and bootstrap_interval(samples, confidence=confidence).half_width <= target_spread


def mann_whitney(base: Sequence[float], head: Sequence[float]) -> float:
    """Two-sided p-value that neither side tends to be larger. Assumes independent samples, which drift breaks."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(_checked(base), _checked(head), alternative="two-sided").pvalue)


def paired_ratio(pair: Pair) -> float:
    """Centre over positions of log(head / base) of one pair of processes, as a ratio: 1.1 is ten percent slower.

    The centre is the mean of the middle half: as deaf to outliers as needed, and a sixth less noisy than a median.
    """
    return math.exp(float(_middle_mean(_log_ratios(pair))))


def pair_spread(pairs: Sequence[Pair]) -> float:
    """How much pairs differ among themselves: standard deviation of their log-ratios. Raises below two pairs."""
    if len(pairs) < 2:
        raise ValueError(f"the spread between pairs needs at least two pairs, there are {len(pairs)}")
    return float(np.std([math.log(paired_ratio(pair)) for pair in pairs], ddof=1))


def spread_bound(pairs: Sequence[Pair], *, confidence: float = 0.8) -> float:
    """The spread between pairs that few of them leave possible: the upper bound of ``pair_spread`` at ``confidence``.

    Taken for normal log-ratios: standard deviation x sqrt((n - 1) / chi-square quantile). Raises below two pairs.
    """
    from scipy.stats import chi2

    least = float(chi2.ppf(1 - confidence, len(pairs) - 1)) if len(pairs) > 1 else math.nan
    return pair_spread(pairs) * math.sqrt((len(pairs) - 1) / least)


def ratio_interval(pairs: Sequence[Pair], *, confidence: float = 0.98, seed: int = 0) -> Interval:
    """Hierarchical paired bootstrap of head / base: resample pairs of processes, then positions within each.

    ``confidence`` is two-sided, so each bound alone holds at (1 + confidence) / 2. Over few pairs a bootstrap is too
    narrow, because it never sees a pair it lacks: judge with a least spread between pairs beside it.
    """
    if not pairs:
        raise ValueError("no pairs of processes were measured")
    logs = [_log_ratios(pair) for pair in pairs]
    generator = np.random.default_rng(seed)
    drawn = _resampled_centres(logs, generator)
    centre = float(np.mean([_middle_mean(values) for values in logs]))
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(centre=math.exp(centre), low=math.exp(low), high=math.exp(high), confidence=confidence)


def detectable_effect(num_pairs: int, spread: float, *, confidence: float = 0.99, power: float = 0.8) -> float:
    """Smallest slowdown that ``num_pairs`` pairs show, as a fraction (0.05 is five percent).

    One-sided test on the mean log-ratio with standard deviation ``spread`` between pairs:
    effect = exp((z(confidence) + z(power)) x spread / sqrt(pairs)) - 1.
    """
    if num_pairs < 1:
        raise ValueError("no pairs, nothing is detectable")
    normal = NormalDist()
    return math.exp((normal.inv_cdf(confidence) + normal.inv_cdf(power)) * spread / math.sqrt(num_pairs)) - 1


def pairs_needed(effect: float, spread: float, *, confidence: float = 0.99, power: float = 0.8) -> int:
    """Smallest number of pairs whose ``detectable_effect``, to a tenth of a percent, is at most ``effect``."""
    if effect <= 0:
        raise ValueError(f"an effect to detect must be above zero, got {effect}")
    normal = NormalDist()
    reach = (normal.inv_cdf(confidence) + normal.inv_cdf(power)) * spread / math.log1p(effect)
    least = max(1, math.floor(reach**2))
    shown = detectable_effect(least, spread, confidence=confidence, power=power)
    return least if round(shown, 3) <= effect else least + 1


def _resampled_centres(logs: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """Centres of hierarchical resamples, shape (resamples,): each picks pairs, each pick resamples positions."""
    middles = np.stack([_resampled_middles(values, generator) for values in logs])
    shape = (_NUM_RESAMPLES, len(logs))
    picked, which = generator.integers(0, len(logs), size=shape), generator.integers(0, _NUM_RESAMPLES, size=shape)
    return np.asarray(middles[picked, which].mean(axis=1))


def _resampled_middles(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    draws = generator.integers(0, len(values), size=(_NUM_RESAMPLES, len(values)))
    return _middle_mean(values[draws])


def _middle_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis."""
    cut = values.shape[-1] // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1))


def _log_ratios(pair: Pair) -> np.ndarray:
    base, head = _checked(pair[0]), _checked(pair[1])
    if len(base) != len(head):
        raise ValueError(f"a pair needs as many base as head samples, got {len(base)} and {len(head)}")
    if (base <= 0).any() or (head <= 0).any():
        raise ValueError("a duration of zero or less was measured: the clock does not wait for the work")
    return np.asarray(np.log(head) - np.log(base))


def _checked(samples: Sequence[float]) -> np.ndarray:
    values = np.asarray(samples, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError("no samples")
    if not np.isfinite(values).all():
        raise ValueError("samples are not finite")
    return values
