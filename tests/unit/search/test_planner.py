"""A space becomes plans: each combination once, conditional parameters, refusals explained and counted."""

from __future__ import annotations

import math

import pytest
from support.toy_space import COMPONENTS, STRATEGIES, WHERE, question

from paretune.harness.config import ConfigError
from paretune.harness.planner import canonical, expand
from paretune.harness.space import axes_of
from paretune.strategies import Plan, Surroundings

ROLES = COMPONENTS.roles


def test_size_of_the_toy_space() -> None:
    plans = question().plans
    # Transformer: nothing, 8 x keep, stream: leaf x 2, block x (3 + 1 with overlap); turns excludes the 6 streams.
    placements = 1 + 8 + 6
    assert len(plans.feasible) == (placements + 9) * 2 * 3
    total = math.prod(len(axis.alternatives) for axis in plans.axes)
    assert len(plans.feasible) + plans.num_refused == total


def test_first_is_the_untouched_model_and_every_plan_comes_once() -> None:
    texts = [str(plan) for plan in question().plans.feasible]
    assert texts[0] == "resident"
    assert len(texts) == len(set(texts))


def test_idle_parameters_do_not_multiply() -> None:
    (axis,) = axes_of({"denoiser": {"stream": True}}, ROLES)
    leaf = [alt for alt in axis.alternatives if alt and alt[0].strategy.level == "leaf"]
    assert len(leaf) == 2
    assert len(axis.alternatives) == 1 + 2 + 6


def test_refusals_say_why_and_how_many() -> None:
    refused = question().plans.refused
    why = {entry.settings: entry for entry in refused}
    forbidden = [entry for entry in refused if "prefetch needs groups of one" in entry.reasons[0]]
    assert {entry.num_plans for entry in forbidden} == {12}
    assert any("both move the same weights" in reason for entry in why.values() for reason in entry.reasons)


def test_what_the_device_cannot_do_is_refused() -> None:
    axes = axes_of({"denoiser": {"stream": {"overlap": [False, True]}}}, ROLES)
    nowhere = Surroundings(device_type="cpu", capabilities=frozenset())
    plans = expand(axes, ROLES, nowhere)
    assert [str(plan) for plan in plans.feasible] == ["resident", "transformer:stream"]
    assert "needs streams on cpu" in plans.refused[0].reasons[0]
    assert len(expand(axes, ROLES, None).feasible) == 3


def test_a_requirement_is_judged_on_whole_plans() -> None:
    axes = axes_of({"denoiser": {"fast": {"backend": ["a", "b"]}, "cast": True}}, ROLES)
    plans = expand(axes, ROLES, WHERE)
    assert {str(plan) for plan in plans.feasible} == {
        "resident",
        "transformer:cast",
        "transformer:cast + transformer:fast",
        "transformer:cast + transformer:fast(backend=b)",
    }
    assert {entry.settings for entry in plans.refused} == {"transformer:fast", "transformer:fast(backend=b)"}


def test_order_and_missing_components_do_not_make_new_plans() -> None:
    one = canonical("tile + transformer:cast + turns", ROLES)
    other = canonical("turns + transformer:cast + vae:tile", ROLES)
    assert str(one) == str(other) == "turns + transformer:cast + vae:tile"
    listed = question(space={"plans": ["tile", "vae:tile", "resident", "vae:tile(size=512)"]})
    assert [str(plan) for plan in listed.plans.feasible] == ["resident", "vae:tile"]


def test_a_role_means_all_its_components_together() -> None:
    roles = {"transformer": "denoiser", "transformer_2": "denoiser"}
    plans = expand(axes_of({"denoiser": {"cast": True}}, roles), roles)
    assert [str(plan) for plan in plans.feasible] == ["resident", "transformer:cast + transformer_2:cast"]


def test_always_leaves_out_the_alternative_without() -> None:
    plans = expand(axes_of({"vae": {"tile": {"size": 256, "always": True}}}, ROLES), ROLES)
    assert {str(plan) for plan in plans.feasible} == {"resident", "vae:tile(size=256)"}


@pytest.mark.parametrize(
    ("strategies", "said"),
    [
        ({"transformr": {"cast": True}}, "the model has no such component"),
        ({"vae": {"tille": True}}, "Did you mean `tile`"),
        ({"vae": {"tile": {"sise": 3}}}, "Did you mean 'size'"),
        ({"vae": {"tile": {"size": 300}}}, "is not a choice"),
        ({"vae": {"turns": True}}, "belongs under `pipeline`"),
        ({"pipeline": {"tile": True}}, "belongs under a component or role"),
    ],
)
def test_mistakes_are_named_with_their_path(strategies: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        axes_of(strategies, ROLES)  # type: ignore[arg-type]
    assert "space.strategies." in str(caught.value)


def test_unknown_exclusions_are_refused() -> None:
    with pytest.raises(ConfigError, match="no strategy 'casst'"):
        axes_of(STRATEGIES, ROLES, exclude=("casst",))
    assert all(
        "cast" not in str(p) for p in question(space={"strategies": STRATEGIES, "exclude": ["cast"]}).plans.feasible
    )


def test_aliases_are_read() -> None:
    (axis,) = axes_of({"denoiser": {"stream": {"kind": "leaf"}}}, ROLES)
    assert str(axis.alternatives[1][0]) == "transformer:stream(level=leaf)"


def test_explicit_plans_are_checked_by_the_rules() -> None:
    plans = question(space={"plans": ["turns + transformer:stream"]}).plans
    assert len(plans.feasible) == 1
    assert plans.num_refused == 1


def test_plan_notation_round_trips_over_the_space() -> None:
    for plan in question().plans.feasible:
        assert Plan.parse(str(plan)) == plan
