"""What every strategy promises, asked of every registered one on every awkward model."""

from __future__ import annotations

import pytest
import torch
from support.settings import every_setting
from support.snapshot import snapshot
from support.toys import MODULES, Case, Interrupt

from paretune.strategies import Applied, InfeasiblePlan, PlanError, Strategy, Unsupported
from paretune.strategies.mechanics.residency import residency_of

SETTINGS = every_setting()
CASES = [
    (strategy, case)
    for index, strategy in enumerate(SETTINGS)
    for place, case in enumerate(MODULES)
    if strategy == type(strategy)() or (index + place) % 3 == 0
]
"""Default settings meet every toy, each other setting a third of them, in turn."""

each_setting = pytest.mark.parametrize("strategy", SETTINGS, ids=str)
each_case = pytest.mark.parametrize(
    "strategy, case", CASES, ids=lambda value: value.name if isinstance(value, Case) else str(value)
)


def apply(strategy: Strategy, model: torch.nn.Module) -> Applied | None:
    """The strategy at work on the model, or None if it says that it cannot, in which case nothing may have changed."""
    before = snapshot(model)
    try:
        return Applied([strategy], model, "cpu")
    except (Unsupported, PlanError) as error:
        assert type(model).__name__ in str(error) or strategy.name in str(error)
        assert before.differences(snapshot(model)) == []
        return None


def close_enough(strategy: Strategy, got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Bit-equal, or for a lossy strategy near."""
    if not strategy.is_lossy:
        return torch.equal(got, wanted)
    return got.shape == wanted.shape and bool(torch.isfinite(got).all())


@each_case
def test_output_is_the_same_and_undo_is_exact(strategy: Strategy, case: Case) -> None:
    reference, model = case.model(), case.model()
    before = snapshot(model)
    for _ in range(2):
        if (applied := apply(strategy, model)) is None:
            return
        with applied:
            for _ in range(2):
                assert close_enough(strategy, model(case.input()).detach(), reference(case.input()).detach())
            with torch.inference_mode():
                for entry in (lambda m, x: m(x), *case.entries):
                    assert close_enough(strategy, entry(model, case.input()), entry(reference, case.input()))
            _rewind(model, reference)
        applied.undo()
        assert before.differences(snapshot(model)) == []


def _rewind(*models: torch.nn.Module) -> None:
    for model in models:
        if hasattr(model, "skips"):
            model.skips = False


@each_case
@pytest.mark.parametrize("error", [ValueError, Interrupt], ids=["error", "interrupt"])
def test_nothing_is_left_half_done_after_an_exception(
    strategy: Strategy, case: Case, error: type[BaseException]
) -> None:
    model = case.model()
    before = snapshot(model)
    if (applied := apply(strategy, model)) is None:
        return
    with torch.no_grad():
        wanted = case.model()(case.input())
        fuse = _blow_in_the_middle(model, error)
        with pytest.raises(error):
            model(case.input())
        fuse.remove()
        placed = residency_of(model)
        assert placed is None or _is_at_rest(placed)
        _rewind(model)
        assert close_enough(strategy, model(case.input()), wanted)
    applied.undo()
    _rewind(model)
    assert before.differences(snapshot(model)) == []


def _is_at_rest(placed: object) -> bool:
    return all(
        unit.group.keep.value == "always" or not unit.is_fetched
        for unit in placed.units  # type: ignore[attr-defined]
    )


def _blow_in_the_middle(model: torch.nn.Module, error: type[BaseException]) -> torch.utils.hooks.RemovableHandle:
    called: list[torch.nn.Module] = []
    handles = [m.register_forward_hook(lambda m, a, o: called.append(m)) for m in model.modules() if m is not model]
    with torch.no_grad():
        model(Case.input())
    for handle in handles:
        handle.remove()
    _rewind(model)
    victim = called[len(called) // 2]

    def blow(module: torch.nn.Module, args: object) -> None:
        raise error("in the middle")

    return victim.register_forward_pre_hook(blow)


@each_setting
def test_applying_twice_is_refused_or_undone_in_order(strategy: Strategy) -> None:
    case = MODULES[0]
    model = case.model()
    before = snapshot(model)
    if (first := apply(strategy, model)) is None:
        return
    try:
        second = Applied([strategy], model, "cpu")
    except (Unsupported, InfeasiblePlan, PlanError, RuntimeError):
        pass
    else:
        second.undo()
    with torch.no_grad():
        assert close_enough(strategy, model(case.input()), case.model()(case.input()))
    first.undo()
    assert before.differences(snapshot(model)) == []


@each_setting
def test_a_setting_round_trips_through_its_text(strategy: Strategy) -> None:
    from paretune.strategies import Plan

    text = str(Plan.of([strategy]))
    assert str(Plan.parse(text)) == text
    assert Plan.parse(text).settings[0].strategy == strategy
