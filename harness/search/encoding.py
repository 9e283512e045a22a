"""Plans as Optuna parameters and back: one categorical per axis, whose choices are texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from paretune.harness.planner import Plans, canonical
from paretune.harness.search.features import Features, features_of
from paretune.strategies import Plan, Setting

__all__ = ["Encoding"]

_NOTHING = "-"
_LISTED = "plan"


class Encoding:
    """Maps every plan of a space to one set of parameters.

    ``choices``: the values of each parameter. An axis offers its alternatives as texts and ``-`` for nothing. Plans
    that are no combination of the axes are choices of a parameter of their own, ``plan``, which overrides the others.
    """

    def __init__(self, plans: Plans, components: Mapping[str, str]) -> None:
        self._plans = {str(plan): plan for plan in plans.feasible}
        self._components = dict(components)
        self._parts = {axis.name: {_text(alt): alt for alt in axis.alternatives} for axis in plans.axes}
        self._params: dict[str, dict[str, str]] = {}
        for plan in plans.feasible:
            found = self._split(plan)
            if found is not None:
                self._params[str(plan)] = found
        listed = [text for text in self._plans if text not in self._params]
        first = {axis: next(iter(parts)) for axis, parts in self._parts.items()}
        self.choices = {axis: tuple(parts) for axis, parts in self._parts.items()}
        if listed:
            self.choices[_LISTED] = (*((_NOTHING,) if self._params else ()), *listed)
            self._params = {text: {**params, _LISTED: _NOTHING} for text, params in self._params.items()}
            self._params |= {text: {**first, _LISTED: text} for text in listed}

    @property
    def plans(self) -> Sequence[str]:
        """Texts of the feasible plans, the empty plan first."""
        return tuple(self._plans)

    @cached_property
    def parsed(self) -> Sequence[Plan]:
        """The plans of ``plans``, in the same order."""
        return tuple(self._plans.values())

    @cached_property
    def features(self) -> Features:
        """The plans as rows of numbers, in the same order."""
        return features_of(self.parsed)

    def params(self, plan: str) -> dict[str, str]:
        """The parameters that mean this plan. Raises ``KeyError`` for a plan that is not in the space."""
        return dict(self._params[plan])

    def plan(self, params: Mapping[str, str]) -> str | None:
        """The feasible plan that parameters mean, ``None`` where the rules refuse it or the space has changed."""
        listed = params.get(_LISTED, _NOTHING)
        if listed != _NOTHING:
            return listed if listed in self._plans else None
        try:
            settings = [s for axis, parts in self._parts.items() for s in parts[params[axis]]]
        except KeyError:
            return None
        text = str(canonical(settings, self._components))
        return text if text in self._plans else None

    def _split(self, plan: Plan) -> dict[str, str] | None:
        """Parameters of a plan that is a combination of the axes; ``None`` if it is none."""
        left, params = set(plan), {}
        for axis, parts in self._parts.items():
            fitting = [(text, alt) for text, alt in parts.items() if left.issuperset(alt)]
            if not fitting:
                return None
            text, alternative = max(fitting, key=lambda pair: len(pair[1]))
            params[axis] = text
            left -= set(alternative)
        return None if left else params


def _text(alternative: Sequence[Setting]) -> str:
    return " + ".join(map(str, alternative)) or _NOTHING
