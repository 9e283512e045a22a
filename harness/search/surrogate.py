"""A small Gaussian process: effects of settings, of pairs of settings, and a smooth remainder, at scales that are learnt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from paretune.harness.search.features import Matrix

IntArray = NDArray[np.intp]

__all__ = ["MEMORY", "TIME", "Scales", "Surrogate"]


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Standard deviations in the log: of one main effect, of the effect of a pair beyond its two, of the remainder, of
    noise; and the remainder's reach."""

    effect: float
    pair: float
    remainder: float
    noise: float
    reach: float


def _grid(
    effects: Sequence[float], pairs: Sequence[float], remainders: Sequence[float], noises: Sequence[float]
) -> Matrix:
    every = itertools.product(effects, pairs, remainders, noises, (2.0, 5.0))
    return np.array([scales for scales in every if scales[2] or scales[4] == 2.0])  # no remainder has no reach


TIME = _grid((0.03, 0.1, 0.25, 0.6), (0.0, 0.02, 0.05, 0.12), (0.0, 0.03, 0.1, 0.3), (0.01, 0.03))
"""Scales that suit seconds, one row each: effects of tens of per cent, noise of a per cent."""
MEMORY = _grid((0.005, 0.015, 0.05, 0.15, 0.5), (0.0, 0.005, 0.02), (0.0, 0.01, 0.03, 0.1), (0.002, 0.01))
"""Scales that suit bytes: peaks repeat, and a forecast of them is a few per cent off."""

_INTERCEPT = 1.0
_TYPICAL_EFFECT = 0.5
"""Of the largest effect in the grid's middle: the mild preference for small effects while observations are few."""
_NUM_AVERAGED = 8
_LEAST_WEIGHT = 0.01
_SETTLED = (32, 128)
"""From so many observations on the likeliest scales are kept until the number has doubled, beyond the second for good:
trying all costs the cube of the number."""


class Surrogate:
    """Learns a number per plan from few observations, in the log.

    The covariance of two plans is a constant (a bias common to all), plus the main effects they share, plus the pairs
    of settings they share, plus a remainder that falls off with the number of features in which they differ.
    ``scales``: which are thinkable (``TIME`` or ``MEMORY``). The likeliest are averaged by how likely they are: few
    observations rarely tell which are right. ``main_effects_only`` leaves pairs and remainder out.
    """

    def __init__(self, rows: Matrix, *, scales: Matrix = TIME, main_effects_only: bool = False) -> None:
        self._rows = rows
        self._squares = (rows**2).sum(axis=1)
        self._own_pairs = (self._squares**2 - (rows**4).sum(axis=1)) / 2
        self._grid = scales[(scales[:, 1:3] == 0).all(axis=1)] if main_effects_only else scales
        self._likeliest, self._fitted_to = np.arange(len(self._grid)), 0
        self._middle = _TYPICAL_EFFECT * float(np.median(np.unique(scales[:, 0])))

    def predict(self, seen: list[int], values: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation at every row, given ``values`` at the rows ``seen``."""
        if not seen:
            return np.zeros(len(self._rows)), np.sqrt(self._own_variance(_named(self._grid[len(self._grid) // 2])))
        grid = self._grid[self._candidates(len(seen))]
        factors, halves, fit = self._fits(grid, seen, values)
        likeliest = np.argsort(fit)[::-1][:_NUM_AVERAGED]
        self._settle(likeliest, len(seen))
        weights = np.exp(fit[likeliest] - fit[likeliest[0]])
        weights = np.where(weights < _LEAST_WEIGHT * weights.sum(), 0.0, weights)
        shared, mean, second = self._shared(seen, None), np.zeros(len(self._rows)), np.zeros(len(self._rows))
        for row, weight in zip(likeliest, weights / weights.sum()):
            if weight:
                scales = _named(grid[row])
                half = solve_triangular(factors[row], _covariance(shared, scales), lower=True)
                guess = half.T @ halves[row]
                variance = np.maximum(self._own_variance(scales) - (half**2).sum(axis=0), scales.noise**2 * 1e-2)
                mean, second = mean + weight * guess, second + weight * (variance + guess**2)
        return mean, np.sqrt(np.maximum(second - mean**2, 1e-8))

    def _candidates(self, num_seen: int) -> IntArray:
        few, many = _SETTLED
        is_settled = self._fitted_to >= few and (num_seen < 2 * self._fitted_to or self._fitted_to >= many)
        return self._likeliest if is_settled and num_seen >= self._fitted_to else np.arange(len(self._grid))

    def _settle(self, likeliest: IntArray, num_seen: int) -> None:
        """Remember the likeliest of all scales, and how many observations say so."""
        candidates = self._candidates(num_seen)
        if len(candidates) == len(self._grid):
            self._likeliest, self._fitted_to = candidates[likeliest], num_seen

    def _fits(self, grid: Matrix, seen: list[int], values: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """For all scales at once: Cholesky factors, whitened values, log marginal likelihood with a mild prior."""
        scales = [_named(row) for row in grid]
        shared = self._shared(seen, seen)
        own = np.stack([_covariance(shared, each) + (each.noise**2 + 1e-9) * np.eye(len(seen)) for each in scales])
        factors = np.linalg.cholesky(own)
        stacked = np.broadcast_to(np.asarray(values)[:, None], (len(factors), len(seen), 1))
        halves = np.linalg.solve(factors, stacked)[..., 0]
        fit = -0.5 * (halves**2).sum(axis=1) - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        fit = fit - 0.5 * np.log(grid[:, 0] / self._middle) ** 2
        return np.asarray(factors, dtype=np.float64), np.asarray(halves, dtype=np.float64), np.asarray(fit)

    def _shared(self, left: list[int], right: list[int] | None) -> tuple[Matrix, Matrix, Matrix]:
        """What two plans share (weighted): settings, pairs of settings; and in how much they differ."""
        one, other = self._rows[left], self._rows if right is None else self._rows[right]
        squares = self._squares if right is None else self._squares[right]
        inner = one @ other.T
        pairs = (inner**2 - (one**2) @ (other**2).T) / 2
        return inner, pairs, np.maximum(self._squares[left][:, None] + squares[None, :] - 2 * inner, 0)

    def _own_variance(self, scales: Scales) -> Matrix:
        effects = scales.effect**2 * self._squares + scales.pair**2 * self._own_pairs
        return np.asarray(_INTERCEPT**2 + effects + scales.remainder**2)


def _named(row: Matrix) -> Scales:
    effect, pair, remainder, noise, reach = map(float, row)
    return Scales(effect=effect, pair=pair, remainder=remainder, noise=noise, reach=reach)


def _covariance(shared: tuple[Matrix, Matrix, Matrix], scales: Scales) -> Matrix:
    inner, pairs, distance = shared
    smooth = scales.remainder**2 * np.exp(-distance / scales.reach)
    return np.asarray(_INTERCEPT**2 + scales.effect**2 * inner + scales.pair**2 * pairs + smooth)
