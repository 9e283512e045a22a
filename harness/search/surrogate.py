"""A small Gaussian process: main effects of features plus a smooth remainder, with scales chosen by the evidence."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from paretune.harness.search.features import Matrix

__all__ = ["Scales", "Surrogate"]


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Standard deviations in the log: of one main effect, of the remainder, of noise; and the remainder's reach."""

    effect: float
    remainder: float
    noise: float
    reach: float = 3.0


_INTERCEPT = 1.0
_GRID = tuple(
    Scales(effect=effect, remainder=remainder, noise=noise, reach=reach)
    for effect, remainder, noise, reach in itertools.product(
        (0.03, 0.1, 0.25, 0.6), (0.0, 0.03, 0.1, 0.3), (0.01, 0.03), (2.0, 5.0)
    )
)


class Surrogate:
    """Learns a number per plan from few observations, in the log.

    The covariance of two plans is a constant (a bias common to all), plus the main effects they share, plus a remainder
    that falls off with the number of features in which they differ. ``main_effects_only`` leaves the remainder out.
    """

    def __init__(self, rows: Matrix, *, main_effects_only: bool = False) -> None:
        self._rows = rows
        self._squares = (rows**2).sum(axis=1)
        self._grid = tuple(s for s in _GRID if s.remainder == 0) if main_effects_only else _GRID

    def predict(self, seen: list[int], values: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation at every row, given ``values`` at the rows ``seen``."""
        if not seen:
            scale = self._grid[len(self._grid) // 2]
            return np.zeros(len(self._rows)), np.sqrt(self._own_variance(scale))
        scales = self._best_scales(seen, values)
        factor = self._factor(seen, scales)
        cross = self._covariance(seen, None, scales)
        half = np.linalg.solve(factor, cross)
        mean = half.T @ np.linalg.solve(factor, values)
        variance = self._own_variance(scales) - (half**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, scales.noise**2 * 1e-2))

    def _own_variance(self, scales: Scales) -> Matrix:
        own: Matrix = _INTERCEPT**2 + scales.effect**2 * self._squares + scales.remainder**2
        return own

    def _covariance(self, left: list[int], right: list[int] | None, scales: Scales) -> Matrix:
        one = self._rows[left]
        other = self._rows if right is None else self._rows[right]
        squares = self._squares if right is None else self._squares[right]
        inner = one @ other.T
        result = _INTERCEPT**2 + scales.effect**2 * inner
        if scales.remainder:
            distance = np.maximum(self._squares[left][:, None] + squares[None, :] - 2 * inner, 0)
            result = result + scales.remainder**2 * np.exp(-distance / scales.reach)
        return np.asarray(result)

    def _factor(self, seen: list[int], scales: Scales) -> Matrix:
        own = self._covariance(seen, seen, scales) + (scales.noise**2 + 1e-9) * np.eye(len(seen))
        return np.asarray(np.linalg.cholesky(own), dtype=np.float64)

    def _best_scales(self, seen: list[int], values: Matrix) -> Scales:
        return max(self._grid, key=lambda scales: self._evidence(seen, values, scales))

    def _evidence(self, seen: list[int], values: Matrix, scales: Scales) -> float:
        """Log marginal likelihood, with a mild preference for middling scales while observations are few."""
        factor = self._factor(seen, scales)
        half = np.linalg.solve(factor, values)
        prior = -0.5 * (np.log(scales.effect / 0.15) / 1.0) ** 2 - (2.0 if scales.remainder > 0.2 else 0.0)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum() + prior)
