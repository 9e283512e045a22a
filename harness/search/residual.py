"""The default sampler: forecast every plan, learn the error of the forecast, try what promises the most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from paretune.harness.search.blame import survival
from paretune.harness.search.encoding import Encoding
from paretune.harness.search.features import Matrix
from paretune.harness.search.history import FAILED_SIZES, Seen
from paretune.harness.search.listed import ListedSampler
from paretune.harness.search.surrogate import MEMORY, TIME, Surrogate

__all__ = ["Forecast", "Prior", "Residual"]

_UNLIKELY = 0.02
_LOSSY_EVERY = 6


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a prior says of one plan before it runs; ``None`` where it says nothing."""

    latency_s: float | None = None
    need_bytes: float | None = None


Prior = Callable[[], Mapping[str, Forecast]]
"""Forecasts by plan; asked before every proposal, so it may grow while the study runs."""


class Residual(ListedSampler):
    """Enumerate, forecast, learn the forecast's error from this study's own trials, take the largest

        expected improvement x P(fits) x P(does not crash).

    The error is learnt in the log, by effects of settings, of pairs, and a smooth remainder (``main_effects_only``: by
    the first alone). A share ``explore`` of the proposals goes to the least known plan among those that may fit and may
    yet be the fastest, so a wrong forecast is found out. ``caps`` are the memory sizes that the study must answer;
    proposals take turns among them.
    """

    def __init__(
        self,
        encoding: Encoding,
        *,
        prior: Prior | None = None,
        caps: Sequence[int] = (),
        explore: float = 0.1,
        allow_lossy: bool = False,
        main_effects_only: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(encoding, seed=seed)
        self._prior = prior or (lambda: {})
        self._caps = [float(cap) for cap in caps] or [math.inf]
        self._explore = explore
        self._index = {plan: row for row, plan in enumerate(encoding.plans)}
        self._rows = encoding.features.rows
        self._wanted = np.array([allow_lossy or not plan.is_lossy for plan in encoding.parsed])
        self._latency = Surrogate(self._rows, scales=TIME, main_effects_only=main_effects_only)
        self._need = Surrogate(self._rows, scales=MEMORY if prior else TIME, main_effects_only=main_effects_only)
        self._num_proposed = 0

    def forecast(self) -> Mapping[str, Forecast]:
        """What the prior says of each plan; empty without one."""
        return self._prior()

    def propose(self, remaining: Sequence[str], finished: Mapping[str, Seen]) -> str:
        self._num_proposed += 1
        remaining = self._eligible(remaining)
        rows = np.array([self._index[plan] for plan in remaining])
        known = {plan: seen for plan, seen in finished.items() if plan in self._index}
        forecast = self._prior()
        latency = self._learn(self._latency, known, forecast, "latency_s")
        need = self._learn(self._need, known, forecast, "need_bytes")
        alive = self._survival(known)
        cap = self._caps[self._num_proposed % len(self._caps)]
        fits = _chance_below(math.log(cap), *need) * alive
        gain = (self._uncertainty if self._explores() else self._improvement)(latency, known, cap)
        score = gain * fits
        if not (score[rows] > 0).any():
            score = fits * 1e-9 - need[0] * 1e-12
        return remaining[int(np.argmax(score[rows]))]

    def _eligible(self, remaining: Sequence[str]) -> Sequence[str]:
        """Plans that may be recommended; now and then the others, to know what allowing them would buy."""
        wanted = [plan for plan in remaining if self._wanted[self._index[plan]]]
        others = [plan for plan in remaining if not self._wanted[self._index[plan]]]
        return others if others and (not wanted or self._num_proposed % _LOSSY_EVERY == 0) else wanted

    def _explores(self) -> bool:
        every = round(1 / self._explore) if self._explore else 0
        return bool(every) and self._num_proposed % every == 0

    def _learn(
        self, surrogate: Surrogate, known: Mapping[str, Seen], forecast: Mapping[str, Forecast], figure: str
    ) -> tuple[Matrix, Matrix]:
        """Mean and deviation of a figure's log for every plan: the forecast plus the learnt error of the forecast."""
        base = self._base(forecast, known, figure)
        rows, errors = [], []
        for plan, seen in known.items():
            value, row = _figure(seen, figure), self._index[plan]
            if value is not None and value > 0:
                error = math.log(value) - float(base[row])
                rows.append(row)
                errors.append(error if seen.is_complete or seen.is_stopped else max(error, 0.0))
        mean, deviation = surrogate.predict(rows, np.array(errors))
        return base + mean, deviation

    def _base(self, forecast: Mapping[str, Forecast], known: Mapping[str, Seen], figure: str) -> Matrix:
        """The forecast's log by row; where there is none, the middle of what is known."""
        base = np.full(len(self._rows), math.nan)
        for plan, told in forecast.items():
            value = getattr(told, figure)
            if value is not None and value > 0 and plan in self._index:
                base[self._index[plan]] = math.log(value)
        gaps = np.isnan(base)
        if gaps.any():
            values = [math.log(v) for seen in known.values() if (v := _figure(seen, figure))]
            base[gaps] = np.nanmedian(base) if not gaps.all() else (np.median(values) if values else 0.0)
        return base

    def _survival(self, known: Mapping[str, Seen]) -> Matrix:
        worked = [self._index[p] for p, s in known.items() if _ran(s)]
        crashed = [self._index[p] for p, s in known.items() if not _ran(s)]
        return survival(self._rows, worked, crashed)

    def _uncertainty(self, latency: tuple[Matrix, Matrix], known: Mapping[str, Seen], cap: float) -> Matrix:
        """How little is known of each plan's time, and next to nothing for plans that are hardly the fastest."""
        mean, deviation = latency
        best = self._best(known, cap)
        may_win = mean - 2 * deviation < (math.inf if best is None else best)
        return np.asarray(np.where(may_win, deviation, deviation * 1e-3))

    def _improvement(self, latency: tuple[Matrix, Matrix], known: Mapping[str, Seen], cap: float) -> Matrix:
        mean, deviation = latency
        best = self._best(known, cap)
        if best is None:
            best = float(np.max(mean[self._wanted])) if self._wanted.any() else float(np.max(mean))
        gap = (best - mean) / deviation
        density = np.exp(-0.5 * gap**2) / math.sqrt(2 * math.pi)
        return np.asarray(deviation * (gap * ndtr(gap) + density))

    def _best(self, known: Mapping[str, Seen], cap: float) -> float | None:
        fitting = [
            math.log(seen.latency_s)
            for plan, seen in known.items()
            if seen.is_complete
            and seen.latency_s
            and self._wanted[self._index[plan]]
            and (seen.need_bytes or math.inf) <= cap
            and (len(self._caps) > 1 or seen.is_feasible)
        ]
        return min(fitting, default=None)


def _figure(seen: Seen, figure: str) -> float | None:
    value: float | None = getattr(seen, figure)
    return value if figure == "need_bytes" or seen.is_complete or seen.is_stopped else None


def _ran(seen: Seen) -> bool:
    """Whether the combination works, whatever its size and speed."""
    return seen.is_complete or seen.is_stopped or seen.outcome in FAILED_SIZES


def _chance_below(limit: float, mean: Matrix, deviation: Matrix) -> Matrix:
    if limit == math.inf:
        return np.ones_like(mean)
    chance = ndtr((limit - mean) / np.maximum(deviation, 1e-6))
    return np.asarray(np.where(chance < _UNLIKELY, chance * 1e-3, chance))
