"""Applying a plan finds components, moves the rest, and takes everything back, also when it fails half way."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from paretune.strategies import Applied, ComponentStrategy, PipelineStrategy, PlanError, Setting
from paretune.strategies.facade import present


class Pipe:
    """As much of a pipeline as strategies look at."""

    model_cpu_offload_seq = "text_encoder->transformer->vae"

    def __init__(self, *names):
        self.components = {name: torch.nn.Linear(2, 2) for name in names} | {"scheduler": object()}


LOG: list = []


@dataclass(frozen=True, kw_only=True)
class Mark(ComponentStrategy):
    """Notes where it was applied and undone."""

    name = "mark"
    roles: ClassVar = ("denoiser", "vae")
    fail: bool = False

    def apply(self, model, device, undo):
        LOG.append(("on", model))
        undo(lambda: LOG.append(("off", model)))
        if self.fail:
            raise KeyboardInterrupt
        return {"seen": 1}


@dataclass(frozen=True, kw_only=True)
class Place(PipelineStrategy):
    """Owns whatever is left to it."""

    name = "place"
    places_weights: ClassVar = True

    def apply(self, parts, device, undo):
        LOG.append(tuple(parts.modules))


@dataclass(frozen=True, kw_only=True)
class Own(Mark):
    """Owns one component."""

    name = "own"
    places_weights: ClassVar = True


@pytest.fixture(autouse=True)
def clean_log():
    LOG.clear()


def test_components_come_in_the_order_they_run():
    pipe = Pipe("vae", "transformer", "text_encoder_2", "text_encoder")
    with Applied([Place()], pipe, "cpu"):
        assert LOG == [("text_encoder_2", "text_encoder", "transformer", "vae")]


def test_a_name_may_be_left_out_only_where_one_makes_sense():
    pipe = Pipe("transformer", "text_encoder")
    with Applied([Mark()], pipe, "cpu") as applied:
        assert [("on", pipe.components["transformer"])] == LOG
        assert applied.facts == {"transformer:mark": {"seen": 1}}
    with pytest.raises(PlanError, match="transformer:mark, vae:mark"):
        Applied([Mark()], Pipe("transformer", "vae"), "cpu")
    with pytest.raises(PlanError, match="component 'unet' does not exist"):
        Applied([Setting(component="unet", strategy=Mark())], pipe, "cpu")


def test_a_plain_module_is_its_own_component():
    module = torch.nn.Linear(2, 2)
    with Applied([Mark()], module, "cpu"):
        assert [("on", module)] == LOG


def test_pipeline_strategies_get_what_no_component_strategy_places():
    with Applied([Place(), Setting(component="transformer", strategy=Own())], Pipe("transformer", "vae"), "cpu"):
        assert ("vae",) in LOG


def test_failure_half_way_undoes_what_was_done_last_first():
    pipe = Pipe("transformer", "vae")
    settings = [Setting(component="transformer", strategy=Mark()), Setting(component="vae", strategy=Mark(fail=True))]
    with pytest.raises(KeyboardInterrupt):
        Applied(settings, pipe, "cpu")
    assert [kind for kind, _ in LOG] == ["on", "on", "off", "off"]
    assert LOG[2][1] is pipe.components["vae"]


def test_undo_is_idempotent_and_gives_the_class_back():
    pipe = Pipe("transformer")
    applied = Applied([Mark()], pipe, "cpu")
    assert type(pipe) is not Pipe and isinstance(pipe, Pipe) and pipe._execution_device == torch.device("cpu")
    applied.undo()
    applied.undo()
    assert type(pipe) is Pipe and [kind for kind, _ in LOG] == ["on", "off"]


def test_facades_stack_and_touch_no_other_object():
    one, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    undo = []
    present(one, undo.append, dtype="a")
    present(one, undo.append, device="b")
    assert (one.dtype, one.device) == ("a", "b") and not hasattr(other, "dtype")
    assert torch.equal(one(torch.ones(1)), torch.nn.functional.linear(torch.ones(1), one.weight, one.bias))
    for step in reversed(undo):
        step()
    assert type(one) is torch.nn.Linear and "dtype" not in vars(one)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"neither an nn\.Module nor a pipeline"):
        Applied([], object(), "cpu")
