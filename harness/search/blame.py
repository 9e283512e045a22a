"""Learn from crashes which setting, or which pair of settings, is to blame, and how likely a plan is to crash."""

from __future__ import annotations

import numpy as np

from paretune.harness.search.features import Matrix

__all__ = ["survival"]

_SINGLE_SHARE = 3.0
"""A single setting is that much likelier to be at fault than one particular pair."""


def survival(rows: Matrix, worked: list[int], crashed: list[int]) -> Matrix:
    """Probability, for every row, that the plan does not crash.

    Each crashed plan has suspects: features and pairs of features that no plan that worked contains. Blame is shared
    out among them; a plan crashes with the share of the blame that it contains. A crash without suspects was bad luck
    and says something only about that very plan.
    """
    present = (rows > 0).astype(float)
    alive = np.ones(len(rows))
    good = present[worked]
    together = (good.T @ good) > 0 if len(worked) else np.zeros((rows.shape[1],) * 2, dtype=bool)
    for index in crashed:
        weights = _suspects(present[index], together)
        total = weights.sum()
        share = (present @ weights * present).sum(axis=1) / total if total else np.zeros(len(rows))
        alive *= 1 - 0.95 * share
        alive[index] *= 0.05
    return alive


def _suspects(plan: Matrix, together: Matrix) -> Matrix:
    weights = np.triu(np.outer(plan, plan) * ~together.astype(bool))
    diagonal = np.diag_indices_from(weights)
    weights[diagonal] *= _SINGLE_SHARE
    return np.asarray(weights)
