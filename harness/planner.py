"""Expand a space into plans: every combination once, refused ones with their reasons, the untouched model first."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paretune.harness.space import Alternative, Axis
from paretune.strategies import (
    ComponentStrategy,
    Excludes,
    Forbids,
    Needs,
    Plan,
    Setting,
    Surroundings,
    explain,
    ordered,
)
from paretune.strategies.rules import Before

__all__ = ["MAX_PLANS", "Plans", "Refused", "canonical", "expand"]

MAX_PLANS = 200_000
"""The largest space that is listed; a larger one must be narrowed."""

_LASTING = (Excludes, Forbids, Needs)
"""Rules that stay broken whatever else a plan adds."""

_LOCAL = (*_LASTING, Before)
"""Rules that pairs of settings decide."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A combination that rules refuse, why, and how many plans of the space contain it."""

    settings: str
    reasons: tuple[str, ...]
    num_plans: int


@dataclass(frozen=True, kw_only=True)
class Plans:
    """What a space holds. ``feasible``: canonical plans, each once, the empty plan first, then fewer settings first."""

    feasible: tuple[Plan, ...]
    refused: tuple[Refused, ...] = ()
    axes: tuple[Axis, ...] = field(default=(), repr=False)

    @property
    def num_refused(self) -> int:
        return sum(entry.num_plans for entry in self.refused)


def canonical(plan: Plan | str | Iterable[Setting], components: Mapping[str, str]) -> Plan:
    """The one way to write a plan for this model: components named, settings in the order they are applied.

    ``components`` maps names to roles in the order they run. A setting whose component cannot be told stays as it is;
    the model refuses it when it is applied.
    """
    found = [named for setting in Plan.of(plan) for named in _named(setting, components)]
    place = {name: index for index, name in enumerate(components)}
    found.sort(key=lambda s: (place.get(s.component or "", -1), s.strategy.name))
    return Plan(tuple(ordered(found)))


def _named(setting: Setting, components: Mapping[str, str]) -> Iterator[Setting]:
    strategy = setting.strategy
    if setting.component is not None or not isinstance(strategy, ComponentStrategy):
        yield setting
        return
    names = [name for name, role in components.items() if role in strategy.roles]
    if len(components) == 1:
        names = list(components)
    if len(names) == 1 or (names and strategy.everywhere):
        yield from (Setting(strategy=strategy, component=name) for name in names)
    else:
        yield setting


def expand(
    axes: Sequence[Axis],
    components: Mapping[str, str],
    where: Surroundings | None = None,
    *,
    plans: Iterable[Plan | str] = (),
) -> Plans:
    """Every plan of the product of ``axes`` and every one of ``plans``, always with the empty plan.

    Raises ``ValueError`` when more than ``MAX_PLANS`` plans would remain.
    """
    place, refusals = where or Surroundings(), _Refusals()
    feasible: dict[str, Plan] = {str(Plan()): Plan()}
    listed = ((canonical(plan, components), False) for plan in plans)
    made = ((canonical(settings, components), True) for settings in _product(axes, place, refusals))
    for plan, pairs_are_checked in itertools.chain(listed, made):
        known = pairs_are_checked and _pairs_decide(plan)
        why = () if known else explain(plan.settings, place)
        if why:
            refusals.add(_smallest(plan.settings, why, place), why)
        else:
            feasible[str(plan)] = plan
        if len(feasible) > MAX_PLANS:
            raise ValueError(f"the space holds more than {MAX_PLANS} plans. Give fewer values or exclude a strategy.")
    simplest_first = tuple(sorted(feasible.values(), key=len))
    return Plans(feasible=simplest_first, refused=refusals.listed(), axes=tuple(axes))


class _Refusals:
    """Counts what was refused, one entry per smallest refused combination."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._reasons: dict[str, tuple[str, ...]] = {}

    def add(self, settings: Sequence[Setting], why: Sequence[str], num_plans: int = 1) -> None:
        text = " + ".join(map(str, settings))
        self._counts[text] += num_plans
        self._reasons[text] = tuple(why)

    def listed(self) -> tuple[Refused, ...]:
        return tuple(Refused(settings=t, reasons=self._reasons[t], num_plans=n) for t, n in self._counts.items())


def _smallest(settings: Sequence[Setting], why: Sequence[str], place: Surroundings) -> Sequence[Setting]:
    """The one setting or the pair that is refused for the same reason by itself, or all of them."""
    for number in (1, 2):
        for few in itertools.combinations(settings, number):
            if set(explain(few, place)) & set(why):
                return few
    return settings


def _pairs_decide(plan: Plan) -> bool:
    return all(isinstance(rule, _LOCAL) for setting in plan for rule in setting.strategy.rules)


def _product(axes: Sequence[Axis], place: Surroundings, refusals: _Refusals) -> Iterator[Alternative]:
    """Depth first over the axes; a pair that rules refuse cuts off everything that would contain it."""
    sizes = [len(axis.alternatives) for axis in axes]
    lasting = functools.cache(functools.partial(_lasting_reasons, place=place))

    def walk(depth: int, chosen: tuple[Alternative, ...]) -> Iterator[Alternative]:
        if depth == len(axes):
            yield tuple(itertools.chain(*chosen))
            return
        for alternative in axes[depth].alternatives:
            for other in ((), *chosen):
                if why := lasting(alternative, other):
                    refusals.add((*other, *alternative), why, math.prod(sizes[depth + 1 :]))
                    break
            else:
                yield from walk(depth + 1, (*chosen, alternative))

    yield from walk(0, ())


def _lasting_reasons(one: Alternative, other: Alternative, *, place: Surroundings) -> tuple[str, ...]:
    both = (*other, *one)
    found: dict[str, None] = {}
    for index, own in enumerate(both):
        rest = [*both[:index], *both[index + 1 :]]
        for rule in own.strategy.rules:
            if isinstance(rule, _LASTING):
                found.update(dict.fromkeys(rule.broken(own, rest, place)))
    return tuple(found)
