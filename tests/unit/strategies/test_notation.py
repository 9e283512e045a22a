"""Plans are written and read in one notation, and reading back what was written gives the same plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.strategies import ComponentStrategy, Plan, PlanError, Setting, tunable
from paretune.strategies.notation import format_value, split_outside, strategy_from_text, value_from_text


@dataclass(frozen=True, kw_only=True)
class Toy(ComponentStrategy):
    """A strategy that does nothing."""

    name = "toy"
    level: str = tunable(default="block_level", choices=("block_level", "leaf_level"), alias="offload_type")
    number: int = tunable(default=1, choices=(1, 2, 4), when=lambda s: s.level == "block_level")
    path: str | None = tunable(default=None, choices=(None,), free=True)
    names: tuple[str, ...] = tunable(default=(), free=True)
    flag: bool = tunable(default=False, choices=(False, True))
    free_flag: bool = tunable(default=True, choices=(True,), free=True)
    count: int | None = tunable(default=None, free=True)
    share: float = tunable(default=0.0, free=True)
    table: Mapping[str, int | bool] | None = tunable(default=None, free=True)
    any_of: bool | int | float | str = tunable(default=1, choices=(1, True, 1.0, "1"))

    def apply(self, model, device, undo):
        return None


KNOWN = {"toy": Toy}


def read(text: str) -> Plan:
    return Plan.parse(text, KNOWN)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("toy", "toy"),
        ("resident", "resident"),
        ("", "resident"),
        (" vae : toy ( flag = true ) + toy", "vae:toy(flag=true) + toy"),
        ("toy(flag=false,number=1)", "toy"),
        ("toy(offload_type=leaf_level)", "toy(level=leaf_level)"),
        ('toy(path="a b+c,(d")', 'toy(path="a b+c,(d")'),
        ("toy(path=/data/x-1.bin)", "toy(path=/data/x-1.bin)"),
        ('toy(path="6GiB")', "toy(path=6GiB)"),
        ('toy(path="12")', 'toy(path="12")'),
        ('toy(path="NaN")', 'toy(path="NaN")'),
        ('toy(path="true")', 'toy(path="true")'),
        ("toy(names=[norm,pos_embed])", "toy(names=[norm,pos_embed])"),
        ('toy(names=["a,b", x])', 'toy(names=["a,b",x])'),
        ("toy(path=null)", "toy"),
    ],
)
def test_one_spelling_for_each_plan(text, written):
    plan = read(text)
    assert str(plan) == written
    assert read(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tyo", "Did you mean 'toy'"),
        ("toy(flog=true)", "Did you mean 'flag'"),
        ("toy(number=3)", "toy.number: 3 is not a choice"),
        ("toy(flag=1)", "toy.flag: 1 is not a choice"),
        ("toy(number=true)", "toy.number: True is not a choice"),
        ("toy(flag)", "not `name=value`"),
        ("toy(flag=true,flag=false)", "given twice"),
        ("toy(flag=true", "a bracket is not closed"),
        ('toy(path="x)', "a quote is not closed"),
        ("toy)", "a bracket is not closed"),
        ("toy + ", "empty piece"),
        ("toy + resident", "cannot be combined"),
        ("a:b:toy", "is not `strategy`"),
        ("toy(names=[a", "not closed"),
        ("toy(free_flag=1)", "toy.free_flag: 1 is not of its type, bool"),
        ("toy(free_flag=null)", "toy.free_flag: None is not of its type, bool"),
        ("toy(count=true)", "toy.count: True is not of its type, int | None"),
        ("toy(count=1.0)", "toy.count: 1.0 is not of its type, int | None"),
        ("toy(share=true)", "toy.share: True is not of its type, float"),
        ("toy(names=true)", "toy.names: True is not of its type"),
        ("toy(path=7)", "toy.path: 7 is not of its type, str | None"),
        ('toy(table={"a":1,"a":2})', 'the key "a" stands twice'),
    ],
)
def test_what_cannot_be_read_is_named(text, told):
    with pytest.raises(PlanError, match=r"(?s).+") as caught:
        read(text)
    assert told in str(caught.value)


TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)
VALUES = st.one_of(st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)


@given(st.one_of(VALUES, st.lists(VALUES, max_size=4).map(tuple)))
def test_every_value_survives_writing_and_reading(value):
    read_back = value_from_text(format_value(value))
    assert read_back == value and type(read_back) is type(value)


@given(TEXTS, st.lists(TEXTS, max_size=3))
def test_every_setting_survives_writing_and_reading(path, names):
    plan = Plan((Setting(component="vae", strategy=Toy(path=path, names=tuple(names))), Setting(strategy=Toy())))
    assert read(str(plan)) == plan


def test_idle_parameters_are_not_parameters():
    assert "number" not in Toy(level="leaf_level").parameters() and "level" in Toy(level="leaf_level").parameters()
    assert strategy_from_text("toy(number=4)", KNOWN).parameters()["number"] == 4


def test_splitting_respects_brackets_and_quotes():
    assert split_outside('a(b,"c,)"),[d,e],f', ",") == ['a(b,"c,)")', "[d,e]", "f"]


@pytest.mark.parametrize("values", [(1, True, 1.0, "1"), (0, False, 0.0, "0", None), ((1, 2), (True, 2), (1.0, 2))])
def test_values_that_are_equal_to_python_are_different_settings(values):
    alike = [Toy(names=(value,)) for value in values]
    assert (
        len(set(alike)) == len({str(one) for one in alike}) == len({Setting(strategy=s) for s in alike}) == len(values)
    )
    assert all((one == other) is (one is other) for one in alike for other in alike)
    assert Toy(names=(values[0],)) == alike[0] and hash(Toy(names=(values[0],))) == hash(alike[0])


def test_choices_that_are_equal_to_python_are_written_apart_and_stay_what_they_are():
    spelled = {str(Toy(any_of=value)): value for value in (1, True, 1.0, "1")}
    assert list(spelled) == ["toy", "toy(any_of=true)", "toy(any_of=1.0)", 'toy(any_of="1")']
    for text, value in spelled.items():
        (setting,) = read(text)
        assert type(setting.strategy.any_of) is type(value) and str(read(text)) == text


def test_a_mapping_in_a_setting_is_a_value_whatever_its_order():
    one, other, third = (Toy(table=table) for table in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": True, "b": 2}))
    assert one == other and hash(one) == hash(other) and one != third


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_a_whole_number_is_a_share_too(value):
    assert read(f"toy(share={value})").settings[0].strategy.share == value
