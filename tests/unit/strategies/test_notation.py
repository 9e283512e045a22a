"""Plans are written and read in one notation, and reading back what was written gives the same plan."""

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
    assert Toy(level="leaf_level").parameters().keys() == {"level", "path", "names", "flag"}
    assert strategy_from_text("toy(number=4)", KNOWN).parameters()["number"] == 4


def test_splitting_respects_brackets_and_quotes():
    assert split_outside('a(b,"c,)"),[d,e],f', ",") == ['a(b,"c,)")', "[d,e]", "f"]
