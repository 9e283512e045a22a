"""What refinements of a recommended plan share: the plan to start from, what the space leaves open, one value changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from paretune.harness.question import Question
from paretune.harness.recommend import recommend
from paretune.harness.records import Record
from paretune.strategies import Plan, Setting
from paretune.strategies.base import Strategy

__all__ = ["best_of", "choices", "changed", "value_in"]


def best_of(question: Question, records: Sequence[Record]) -> Record | None:
    """The record of the plan that the question's budget recommends; ``None`` when none fits."""
    spec = question.spec
    return recommend(records, question.budget, allow_lossy=spec.allow_lossy, objective=spec.objective).chosen


def choices(question: Question, kind: type[Strategy], name: str) -> set[Any]:
    """The values of one parameter of a strategy that the space lets the search choose from."""
    settings = (setting for axis in question.plans.axes for each in axis.alternatives for setting in each)
    return {getattr(setting.strategy, name) for setting in settings if isinstance(setting.strategy, kind)}


def value_in(plan: Plan, kind: type[Strategy], name: str) -> Any:
    """The parameter's value in a plan; ``None`` unless the plan holds the strategy exactly once."""
    values = [getattr(setting.strategy, name) for setting in plan if isinstance(setting.strategy, kind)]
    return values[0] if len(values) == 1 else None


def changed(plan: Plan, kind: type[Strategy], **values: Any) -> Plan:
    """The plan with other values of one strategy's parameters, everything else as it was."""

    def replaced(setting: Setting) -> Setting:
        if not isinstance(setting.strategy, kind):
            return setting
        return dataclasses.replace(setting, strategy=dataclasses.replace(setting.strategy, **values))

    return Plan(tuple(replaced(setting) for setting in plan))
