"""One race: how many trials a sampler needs on a landscape to come within 5 % and 1 % of the best plan that fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.harness.bench._landscape import Ground, Landscape
from paretune.harness.search.residual import Residual
from paretune.harness.search.samplers import sampler_for
from paretune.harness.spec import Search

__all__ = ["Finish", "race"]

_MAX_REPEATS = 300


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Trials until within 5 % and 1 % (infinite if never), and how many of the trials did not fit."""

    within_5: float
    within_1: float
    num_wasted: int


def race(name: str, place: Ground, truth: Landscape, cap: float, *, seed: int, max_trials: int = 60) -> Finish:
    """Run one sampler; repeats are free, as they are in a study, and the untouched model comes first."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(sampler=_sampler(name, place, truth, cap, seed))
        study.enqueue_trial(place.encoding.params("resident"))
        return _run(study, place, truth, cap, (seed, max_trials))


def _sampler(name: str, place: Ground, truth: Landscape, cap: float, seed: int) -> Any:
    if name != "residual":
        return sampler_for(Search.model_construct(sampler=name, seed=seed), place.encoding)
    forecast = truth.forecast
    return Residual(place.encoding, prior=lambda: forecast, caps=[int(cap)], allow_lossy=True, seed=seed)


def _run(study: Any, place: Ground, truth: Landscape, cap: float, limits: Sequence[int]) -> Finish:
    index = {plan: row for row, plan in enumerate(place.encoding.plans)}
    fits = (truth.need_bytes <= cap) & (truth.crashes == 0)
    goal, noise = float(truth.latency_s[fits].min()), np.random.default_rng(limits[0] + 1)
    seen, best, repeats, worst, reached = set[str](), math.inf, 0, 1.0, [math.inf, math.inf]
    while len(seen) < limits[1] and repeats < _MAX_REPEATS and reached[1] == math.inf:
        trial = study.ask()
        params = {key: trial.suggest_categorical(key, values) for key, values in place.encoding.choices.items()}
        plan = place.encoding.plan(params)
        repeats = repeats + 1 if plan is None or plan in seen else 0
        if plan is None:
            _tell(study, trial, worst, {"device_memory": 0.0, "outcome": 1.0}, None)
            continue
        seen.add(plan)
        row = index[plan]
        seconds = float(truth.latency_s[row]) * math.exp(noise.normal(0, 0.01))
        works = not truth.crashes[row]
        worst = max(worst, seconds) if works else worst
        over = math.log(truth.need_bytes[row] / cap) if works else 0.0
        told = _told(plan, seconds if works else None, float(truth.need_bytes[row]) if works else None, over)
        _tell(study, trial, seconds if works else worst, {"device_memory": over, "outcome": float(not works)}, told)
        best = min(best, float(truth.latency_s[row])) if fits[row] else best
        reached = [r if r < math.inf or best > goal * (1 + s) else len(seen) for r, s in zip(reached, (0.05, 0.01))]
    wasted = sum(not fits[index[plan]] for plan in seen)
    return Finish(within_5=reached[0], within_1=reached[1], num_wasted=wasted)


def _told(plan: str, seconds: float | None, need: float | None, over: float) -> dict[str, Any]:
    outcome = "complete" if seconds is not None else "crashed"
    excess = over if seconds is not None else 1.0
    return {"plan": plan, "outcome": outcome, "latency_s": seconds, "need_bytes": need, "excess": excess}


def _tell(study: Any, trial: Any, value: float, broken: dict[str, float], told: dict[str, Any] | None) -> None:
    for name, amount in broken.items():
        trial.set_constraint(name, amount)
    if told is not None:
        trial.set_user_attr("told", told)
    study.tell(trial, value)
