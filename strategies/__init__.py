"""Every way paretune knows to run a model in less memory; plain PyTorch, usable without the rest of the package."""

from __future__ import annotations

from typing import Any

from paretune.strategies.applied import Applied
from paretune.strategies.base import ComponentStrategy, PipelineStrategy, Strategy, tunable
from paretune.strategies.errors import InfeasiblePlan, PlanError, Unsupported
from paretune.strategies.plan import RESIDENT, Plan, Setting, ordered
from paretune.strategies.registry import registry
from paretune.strategies.rules import Before, Excludes, Forbids, Needs, Requires, Surroundings, explain

__all__ = [
    "RESIDENT",
    "Applied",
    "Before",
    "ComponentStrategy",
    "Excludes",
    "Forbids",
    "InfeasiblePlan",
    "Needs",
    "PipelineStrategy",
    "Plan",
    "PlanError",
    "Requires",
    "Setting",
    "Strategy",
    "Surroundings",
    "Unsupported",
    "explain",
    "ordered",
    "registry",
    "tunable",
]


def __getattr__(name: str) -> Any:
    """Strategy classes by their class name: ``from paretune.strategies import GroupOffload``."""
    for cls in registry().values():
        if cls.__name__ == name:
            return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
