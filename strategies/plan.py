"""A plan: an ordered set of settings, each a strategy placed on a component (or on whatever it applies to)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paretune.strategies.base import Strategy
from paretune.strategies.errors import PlanError
from paretune.strategies.notation import split_outside, strategy_from_text
from paretune.strategies.rules import Before

__all__ = ["RESIDENT", "Plan", "Setting", "ordered"]

RESIDENT = "resident"
"""How the empty plan is written: every component on the device, nothing changed."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A strategy with its parameters, on ``component``; ``None`` lets the strategy find what it applies to."""

    strategy: Strategy
    component: str | None = None

    def __str__(self) -> str:
        return f"{self.component}:{self.strategy}" if self.component else str(self.strategy)


@dataclass(frozen=True)
class Plan:
    """Settings in the order they were written; two plans with the same text are equal."""

    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, plan: Plan | str | Iterable[Strategy | Setting]) -> Plan:
        """Take a plan however it is given: a plan, its text, or an iterable of strategies and settings."""
        if isinstance(plan, Plan):
            return plan
        if isinstance(plan, str):
            return cls.parse(plan)
        return cls(tuple(s if isinstance(s, Setting) else Setting(strategy=s) for s in plan))

    @classmethod
    def parse(cls, text: str, known: Mapping[str, type[Strategy]] | None = None) -> Plan:
        """Read a plan. Raises ``PlanError`` that names the piece which cannot be read."""
        if known is None:
            from paretune.strategies import registry

            known = registry()
        if text.strip() in ("", RESIDENT):
            return cls()
        return cls(tuple(_setting(piece, known) for piece in split_outside(text, "+")))

    def __str__(self) -> str:
        return " + ".join(map(str, self.settings)) or RESIDENT

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def is_lossy(self) -> bool:
        """Whether any setting may change the output."""
        return any(setting.strategy.is_lossy for setting in self.settings)


def _setting(piece: str, known: Mapping[str, type[Strategy]]) -> Setting:
    match = re.match(r"(?:([A-Za-z_][A-Za-z0-9_.]*)\s*:)?(.+)\Z", piece.strip(), re.DOTALL)
    if match is None:
        raise PlanError("a plan has an empty piece between two '+'. Write `strategy + strategy`.")
    if match[2].strip() == RESIDENT:
        raise PlanError(f"{RESIDENT!r} is the empty plan and cannot be combined. Remove it.")
    return Setting(component=match[1], strategy=strategy_from_text(match[2], known))


def ordered(settings: Iterable[Setting]) -> list[Setting]:
    """Settings in the order they are applied: ``Before`` rules first, otherwise as written.

    Raises ``ValueError`` when the rules contradict each other, which is a fault in the strategies, not in the plan.
    """
    waiting, done = list(settings), list[Setting]()
    while waiting:
        for candidate in waiting:
            if not any(_precedes(other, candidate) for other in waiting if other is not candidate):
                break
        else:
            raise ValueError(f"Before rules form a circle among: {', '.join(map(str, waiting))}")
        waiting.remove(candidate)
        done.append(candidate)
    return done


def _precedes(first: Setting, second: Setting) -> bool:
    wanted = second.strategy.name
    return any(isinstance(rule, Before) and rule.other == wanted for rule in first.strategy.rules)
