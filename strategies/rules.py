"""Rules between strategies: who excludes whom, who must come first, what a setting needs, and the reason why.

A rule stands in the file of the strategy that owns the knowledge and is known before anything runs. ``explain`` asks the
rules of every setting of a plan and returns one sentence per broken rule; an empty answer means the plan is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from paretune.strategies.plan import Setting

__all__ = ["Before", "Excludes", "Forbids", "Needs", "Requires", "Rule", "Surroundings", "explain"]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a rule may ask about the place a plan would run in; ``None`` means not known yet, and then nothing is refused.

    ``device_type`` is torch's name ("cuda", "cpu", "sim", ...); ``capabilities`` holds words such as "streams",
    "pinned_memory"; ``packages`` maps an installed distribution to its version; ``compute_capability`` is NVIDIA's pair.
    """

    device_type: str | None = None
    num_devices: int = 1
    capabilities: frozenset[str] | None = None
    compute_capability: tuple[int, int] | None = None
    packages: tuple[tuple[str, str], ...] | None = None


class Rule(Protocol):
    """A question asked of one setting, the other settings of its plan, and the place it would run in."""

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        """Yield one sentence (what, why, what next) for each way in which the rule is broken."""
        ...


def _overlap(one: Setting, other: Setting) -> bool:
    return one.component is None or other.component is None or one.component == other.component


@dataclass(frozen=True, kw_only=True)
class Excludes:
    """The other strategy must not be in the plan; ``anywhere`` also excludes it on other components.

    ``divides`` is for an owner that works on whatever components no other setting names: without a component of its own
    it then stands beside a setting that names one.
    """

    other: str
    because: str
    anywhere: bool = False
    divides: bool = False

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        for setting in others:
            if self.divides and own.component is None and setting.component is not None:
                continue
            if setting.strategy.name == self.other and (self.anywhere or _overlap(own, setting)):
                yield f"{own} and {setting} cannot be combined: {self.because}. Remove one."


@dataclass(frozen=True, kw_only=True)
class Requires:
    """The other strategy must be in the plan, on the same component."""

    other: str
    because: str

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        if not any(s.strategy.name == self.other and _overlap(own, s) for s in others):
            yield f"{own} requires {self.other}: {self.because}. Add it to the plan."


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The device or installation must offer something; ``when`` limits the rule to some parameters."""

    capability: str
    because: str
    when: Callable[[Any], bool] | None = None

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        if where.capabilities is None or (self.when is not None and not self.when(own.strategy)):
            return
        if self.capability not in where.capabilities:
            yield f"{own} needs {self.capability.replace('_', ' ')} on {where.device_type}: {self.because}."


@dataclass(frozen=True, kw_only=True)
class Forbids:
    """A combination of the setting's own parameters that is refused."""

    when: Callable[[Any], bool]
    because: str

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        if self.when(own.strategy):
            yield f"{own} is refused: {self.because}."


@dataclass(frozen=True, kw_only=True)
class Before:
    """The owner is applied before the other strategy; this rule orders a plan and refuses nothing."""

    other: str
    because: str

    def broken(self, own: Setting, others: Sequence[Setting], where: Surroundings) -> Iterator[str]:
        yield from ()


def explain(settings: Sequence[Setting], where: Surroundings | None = None) -> tuple[str, ...]:
    """Every reason why these settings cannot stand together, each once; empty when they can."""
    place = where or Surroundings()
    reasons: dict[frozenset[str] | str, str] = {}
    for index, own in enumerate(settings):
        others = [*settings[:index], *settings[index + 1 :]]
        if own in others:
            reasons.setdefault(f"twice {own}", f"{own} appears twice in the plan. Remove one.")
        for rule in own.strategy.rules:
            for sentence in rule.broken(own, others, place):
                reasons.setdefault(sentence, sentence)
    return tuple(reasons.values())
