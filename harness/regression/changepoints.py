"""Find where a series changed: split by the largest energy distance, keep splits that a test and a least size confirm.

The split is E-divisive's (Matteson and James 2014), the significance test Student's instead of permutations, and the
two passes (a looser threshold first, then the strict one) are the rule of Apache Otava.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ChangePoint", "change_points"]

_STRICT, _LOOSE = 0.001, 0.01
_LEAST_MAGNITUDE = 0.02
_WINDOW = 50
_LEAST_SIDE = 3


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """``index`` is the first position after the change; before and after are the medians of the two stretches."""

    index: int
    before: float
    after: float
    p_value: float

    @property
    def change(self) -> float:
        """Relative change; 0.1 is ten percent more."""
        return (self.after - self.before) / self.before if self.before else math.inf


def change_points(
    series: Sequence[float], *, p_below: float = _STRICT, least_magnitude: float = _LEAST_MAGNITUDE
) -> list[ChangePoint]:
    """Positions at which the level of ``series`` changed, in order.

    p_below: a change must be this unlikely. least_magnitude: smallest relative change worth telling.
    Raises ``ValueError`` when a value is not finite. Fewer than six values hold no change point.
    """
    values = np.asarray(series, dtype=float)
    if not np.isfinite(values).all():
        raise ValueError("the series holds values that are not finite")
    splits = _splits(values, 0, len(values), max(p_below, _LOOSE))
    return _kept(values, sorted(splits), p_below, least_magnitude)


def _splits(values: np.ndarray, start: int, end: int, p_below: float) -> list[int]:
    found: list[int] = []
    for low in range(start, max(start + 1, end - _LEAST_SIDE), _WINDOW // 2):
        high = min(end, low + _WINDOW)
        split = _best_split(values[low:high])
        if split is not None and _p_value(values[low : low + split], values[low + split : high]) < p_below:
            place = low + split
            return [*_splits(values, start, place, p_below), place, *_splits(values, place, end, p_below)]
        if high == end:
            break
    return found


def _best_split(values: np.ndarray) -> int | None:
    """Where the energy distance between left and right is largest."""
    count = len(values)
    if count < 2 * _LEAST_SIDE:
        return None
    distances = np.abs(values[:, None] - values[None, :])
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = distances.cumsum(axis=0).cumsum(axis=1)
    places = np.arange(_LEAST_SIDE, count - _LEAST_SIDE + 1)
    left, right = places, count - places
    inner_left = np.array([sums[k, k] for k in places])
    across = np.array([sums[k, count] - sums[k, k] for k in places])
    inner_right = sums[count, count] - inner_left - 2 * across
    energy = 2 * across / (left * right) - inner_left / left**2 - inner_right / right**2
    scored = energy * left * right / count
    return int(places[int(np.argmax(scored))])


def _p_value(left: np.ndarray, right: np.ndarray) -> float:
    """Student's test with one variance for both sides, times the number of places the split was chosen from.

    One variance, because three runs after a change cannot tell their own; its floor is far below any clock.
    """
    from scipy.stats import ttest_ind_from_stats

    floor = 1e-9 * max(abs(float(left.mean())), abs(float(right.mean())), 1e-300)
    sides = [(float(side.mean()), max(float(side.std(ddof=1)), floor), len(side)) for side in (left, right)]
    alone = float(ttest_ind_from_stats(*sides[0], *sides[1]).pvalue)
    return min(1.0, alone * max(1, len(left) + len(right) - 2 * _LEAST_SIDE + 1))


def _kept(values: np.ndarray, splits: list[int], p_below: float, least_magnitude: float) -> list[ChangePoint]:
    """Drop the weakest split until all that remain are strict and large enough."""
    while splits:
        points = _points(values, splits)
        weak = [p for p in points if p.p_value >= p_below or abs(p.change) < least_magnitude]
        if not weak:
            return points
        splits.remove(max(weak, key=lambda point: point.p_value).index)
    return []


def _points(values: np.ndarray, splits: list[int]) -> list[ChangePoint]:
    edges = [0, *splits, len(values)]
    found = []
    for before, index, after in zip(edges, edges[1:], edges[2:]):
        left, right = values[before:index], values[index:after]
        found.append(
            ChangePoint(
                index=index,
                before=float(np.median(left)),
                after=float(np.median(right)),
                p_value=_p_value(left, right),
            )
        )
    return found
