"""Read a recorded plan as text: component, strategy and arguments, also when the strategy is no longer known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paretune.strategies.notation import split_outside
from paretune.strategies.plan import RESIDENT

__all__ = ["SettingText", "settings_of"]


@dataclass(frozen=True, kw_only=True)
class SettingText:
    """One setting as it was written; ``arguments`` are those that differed from the default."""

    component: str | None
    strategy: str
    arguments: Mapping[str, str]

    @property
    def place(self) -> str:
        """Component and strategy, as plans write them."""
        return f"{self.component}:{self.strategy}" if self.component else self.strategy


def settings_of(plan: str) -> tuple[SettingText, ...]:
    """The settings of a plan; none for ``resident``. Raises ``PlanError`` when a bracket or quote is left open."""
    if plan.strip() in ("", RESIDENT):
        return ()
    return tuple(_setting(piece.strip()) for piece in split_outside(plan, "+"))


def _setting(piece: str) -> SettingText:
    head, bracket, rest = piece.partition("(")
    component, colon, strategy = head.rpartition(":")
    inner = rest.strip().removesuffix(")") if bracket else ""
    pairs = [argument.partition("=") for argument in split_outside(inner, ",") if argument.strip()]
    return SettingText(
        component=component.strip() if colon else None,
        strategy=strategy.strip(),
        arguments={name.strip(): value.strip() for name, _, value in pairs},
    )
