"""What can go wrong before a model is touched: a plan that cannot be read, is not allowed, or cannot be done here."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["InfeasiblePlan", "PlanError", "Unsupported"]


class PlanError(ValueError):
    """A plan or setting that cannot be read: unknown strategy, unknown parameter, value outside its choices."""


class InfeasiblePlan(ValueError):
    """A plan that the rules between strategies refuse; ``reasons`` holds one sentence per broken rule."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n".join(self.reasons))


class Unsupported(RuntimeError):
    """A setting that this model, device or installation cannot do; the text says what is missing and what to do."""
