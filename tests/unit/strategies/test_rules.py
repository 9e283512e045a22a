"""Rules refuse plans with a sentence that says why, and order what may be combined."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from paretune.strategies import (
    Before,
    ComponentStrategy,
    Excludes,
    Forbids,
    Needs,
    Plan,
    Requires,
    Setting,
    Surroundings,
    explain,
    ordered,
    tunable,
)


class _Idle(ComponentStrategy):
    def apply(self, model, device, undo):
        return None


@dataclass(frozen=True, kw_only=True)
class First(_Idle):
    """Goes first."""

    name = "first"
    rules: ClassVar = (Before(other="second", because="it changes what is moved"),)


@dataclass(frozen=True, kw_only=True)
class Second(_Idle):
    """Has every kind of rule."""

    name = "second"
    stream: bool = tunable(default=False, choices=(False, True))
    rules: ClassVar = (
        Excludes(other="third", because="both move the weights"),
        Requires(other="first", because="it needs small weights"),
        Needs(capability="streams", because="copies overlap", when=lambda s: s.stream),
    )


@dataclass(frozen=True, kw_only=True)
class Third(_Idle):
    """Forbids a value."""

    name = "third"
    number: int = tunable(default=1, choices=(1, 2))
    rules: ClassVar = (Forbids(when=lambda s: s.number == 2, because="two is too many"),)


def on(component: str | None, strategy: object) -> Setting:
    return Setting(component=component, strategy=strategy)


def test_exclusion_holds_on_one_component_and_where_a_name_is_left_out():
    assert explain([on("a", First()), on("a", Second()), on("a", Third())])[0].endswith(
        "both move the weights. Remove one."
    )
    assert explain([on("a", First()), on("a", Second()), on("b", Third())]) == ()
    assert len(explain([on("a", First()), on("a", Second()), on(None, Third())])) == 1


def test_requirement_is_looked_for_on_the_same_component():
    assert "requires first" in explain([on("a", Second()), on("b", First())])[0]


def test_needs_asks_the_place_and_refuses_nothing_when_it_is_unknown():
    plan = [on("a", First()), on("a", Second(stream=True))]
    assert explain(plan) == ()
    assert explain(plan, Surroundings(device_type="cuda", capabilities=frozenset({"streams"}))) == ()
    (reason,) = explain(plan, Surroundings(device_type="cpu", capabilities=frozenset()))
    assert reason == "a:second(stream=true) needs streams on cpu: copies overlap."
    assert (
        explain([on("a", First()), on("a", Second())], Surroundings(device_type="cpu", capabilities=frozenset())) == ()
    )


def test_values_are_refused_with_the_reason():
    assert explain([on("a", Third(number=2))]) == ("a:third(number=2) is refused: two is too many.",)


def test_a_setting_twice_is_refused_once():
    assert explain([on("a", Third()), on("a", Third())]) == ("a:third appears twice in the plan. Remove one.",)


def test_before_orders_whatever_was_written():
    one, two, three = on("a", First()), on("a", Second()), on("b", Third())
    assert ordered([two, three, one]) == [three, one, two]
    assert Plan((two, one)) != Plan((one, two))


def test_a_circle_is_a_fault_of_the_strategies():
    @dataclass(frozen=True, kw_only=True)
    class Other(_Idle):
        """Goes before first."""

        name = "second"
        rules: ClassVar = (Before(other="first", because="circle"),)

    with pytest.raises(ValueError, match="circle"):
        ordered([on("a", First()), on("a", Other())])
