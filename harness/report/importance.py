"""How much each parameter of the plans decides time or memory, estimated by Optuna's fANOVA over the records."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from paretune.harness.records import Record
from paretune.harness.report.settings import settings_of

__all__ = ["LEAST_RECORDS", "importances"]

LEAST_RECORDS = 8
"""Below this many complete plans a forest of trees tells nothing."""

_NUM_TREES = 32
_OFF = "off"


def importances(records: Iterable[Record], *, metric: str = "median_latency_s", seed: int = 0) -> dict[str, float]:
    """Shares of variance by parameter, largest first, summing to one. Parameters that never change are left out.

    metric: an attribute of a record, such as ``median_latency_s`` or ``needed_bytes``.
    Raises ``ValueError`` when fewer than ``LEAST_RECORDS`` records have the figure or nothing varies.
    """
    known = [(_parameters(r.plan), getattr(r, metric)) for r in records if r.is_complete]
    known = [(parameters, value) for parameters, value in known if value is not None]
    if len(known) < LEAST_RECORDS:
        raise ValueError(f"importance needs at least {LEAST_RECORDS} complete plans, there are {len(known)}")
    choices = _choices([parameters for parameters, _ in known])
    if not choices or len({value for _, value in known}) < 2:
        raise ValueError("no parameter or no figure varies among the plans, so none can be important")
    return _fanova(known, choices, seed)


def _choices(plans: list[dict[str, str]]) -> dict[str, list[str]]:
    names = sorted({name for plan in plans for name in plan})
    seen = {name: sorted({plan.get(name, _OFF) for plan in plans}) for name in names}
    return {name: values for name, values in seen.items() if len(values) > 1}


def _fanova(known: list[tuple[dict[str, str], Any]], choices: Mapping[str, list[str]], seed: int) -> dict[str, float]:
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study()
        space = {name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()}
        for plan, value in known:
            parameters = {name: plan.get(name, _OFF) for name in choices}
            made = optuna.trial.create_trial(params=parameters, distributions=space, value=float(value))
            study.add_trial(made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_NUM_TREES, seed=seed)
            return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
    finally:
        optuna.logging.set_verbosity(verbosity)


def _parameters(plan: str) -> dict[str, str]:
    """``transformer:group_offload`` is on, ``transformer:group_offload.level`` is leaf_level."""
    found: dict[str, str] = {}
    for setting in settings_of(plan):
        found[setting.place] = "on"
        found |= {f"{setting.place}.{key}": value for key, value in setting.arguments.items()}
    return found
