"""Samplers that choose from the list of feasible plans: in order, at random, or one decision at a time."""

from __future__ import annotations

import threading
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler

from paretune.harness.search.encoding import Encoding
from paretune.harness.search.history import Seen, seen_in

__all__ = ["Coordinate", "InOrder", "ListedSampler", "RandomPlans"]


class ListedSampler(BaseSampler):  # type: ignore[misc]
    """An Optuna sampler that never proposes a plan twice. Subclasses say which of the remaining plans is next."""

    def __init__(self, encoding: Encoding, *, seed: int = 0) -> None:
        self.encoding = encoding
        self.rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed)
        self._lock = threading.Lock()
        self._proposed: set[str] = set()

    @abstractmethod
    def propose(self, remaining: Sequence[str], finished: Mapping[str, Seen]) -> str:
        """One of ``remaining``, which is never empty."""

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {name: CategoricalDistribution(values) for name, values in self.encoding.choices.items()}

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        with self._lock:
            finished, taken = seen_in(study.get_trials(deepcopy=False))
            busy = taken | self._proposed
            remaining = [plan for plan in self.encoding.plans if plan not in busy]
            if not remaining:
                return dict(self.encoding.params(self.encoding.plans[0]))
            plan = self.propose(remaining, finished)
            self._proposed.add(plan)
            return dict(self.encoding.params(plan))

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: BaseDistribution) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)


class InOrder(ListedSampler):
    """Every plan of the space in its order: a grid without repeats and without idle parameters."""

    def propose(self, remaining: Sequence[str], finished: Mapping[str, Seen]) -> str:
        return remaining[0]


class RandomPlans(ListedSampler):
    """Every plan once, in an order drawn from the seed."""

    def propose(self, remaining: Sequence[str], finished: Mapping[str, Seen]) -> str:
        return remaining[int(self.rng.integers(len(remaining)))]


class Coordinate(ListedSampler):
    """Coordinate descent: change one decision of the best plan so far; at random when none is left to change."""

    def propose(self, remaining: Sequence[str], finished: Mapping[str, Seen]) -> str:
        ranked = sorted(finished.values(), key=_rank)
        open_plans = {plan: self.encoding.params(plan) for plan in remaining}
        for seen in ranked[:3]:
            here = self.encoding.params(seen.plan)
            neighbours = [plan for plan, params in open_plans.items() if _num_changes(here, params) == 1]
            if neighbours:
                return neighbours[int(self.rng.integers(len(neighbours)))]
        return remaining[int(self.rng.integers(len(remaining)))]


def _rank(seen: Seen) -> tuple[bool, float, float]:
    """Feasible first, by latency; then the least infeasible."""
    latency = seen.latency_s if seen.latency_s is not None else float("inf")
    return (not seen.is_feasible, seen.excess if not seen.is_feasible else 0.0, latency)


def _num_changes(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    return sum(one[name] != other[name] for name in one)
