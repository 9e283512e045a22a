"""Every way into a component finds its weights on the device, and leaves nothing there."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from support.snapshot import snapshot
from support.toys import MODULES, WIDTH, Block, Case, LoneLayers
from support.tripwire import HostWeightUsed, Tripwire
from torch import nn

from paretune.strategies import Applied
from paretune.strategies.mechanics.placement import execution_device
from paretune.strategies.mechanics.residency import residency_of

PLANS = (
    "model_offload",
    "sequential_offload",
    "group_offload",
    "group_offload(num_blocks_per_group=2)",
    "group_offload(level=leaf_level)",
)
each_plan = pytest.mark.parametrize("plan", PLANS)
LONE = MODULES[0]


@contextmanager
def offloaded(plan: str, model: nn.Module) -> Iterator[Applied]:
    """The plan at work, with a tripwire on the memory in which the weights wait."""
    with Applied(plan, model, "cpu") as applied, torch.no_grad(), Tripwire([*model.parameters(), *model.buffers()]):
        yield applied


@each_plan
@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_no_operator_meets_a_weight_on_the_host(plan: str, case: Case) -> None:
    reference, model = case.model(), case.model()
    with torch.no_grad():
        wanted = [call(reference, case.input()) for call in (lambda m, x: m(x), *case.entries)]
    with offloaded(plan, model):
        got = [call(model, case.input()) for call in (lambda m, x: m(x), *case.entries)]
    assert all(torch.equal(one, other) for one, other in zip(got, wanted))


def test_the_tripwire_is_live() -> None:
    model = LONE.model()
    with pytest.raises(HostWeightUsed), torch.no_grad(), Tripwire(model.parameters()):
        model(LONE.input())


@each_plan
def test_the_device_is_empty_after_every_entry(plan: str) -> None:
    model = LONE.model()
    with offloaded(plan, model):
        placed = residency_of(model)
        assert placed is not None
        for call in (lambda m, x: m(x), *LONE.entries):
            call(model, LONE.input())
            assert placed.resident_bytes == 0


@each_plan
def test_code_around_the_model_is_told_the_device_it_computes_on(plan: str) -> None:
    model = LONE.model()
    with Applied(plan, model, "cpu"):
        assert model.device == torch.device("cpu")
        assert execution_device(model) == torch.device("cpu")
    assert not hasattr(model, "device")


@each_plan
def test_moves_are_refused_before_anything_changes(plan: str) -> None:
    model = LONE.model()
    before = snapshot(model)
    with Applied(plan, model, "cpu"):
        for move in (lambda: model.to("meta"), lambda: model.blocks.to("meta")):
            with pytest.raises(RuntimeError, match="Undo the plan"):
                move()
        model.to("cpu")
        model(LONE.input())
    assert before.differences(snapshot(model)) == []


@each_plan
def test_a_change_of_dtype_is_followed(plan: str) -> None:
    model, x = LONE.model(), LONE.input()
    with Applied(plan, model, "cpu"), torch.no_grad():
        model.double()
        assert model(x.double()).dtype is torch.float64
        model.float()
        assert torch.equal(model(x), LONE.model()(x))


@each_plan
def test_a_copy_is_refused_rather_than_half_made(plan: str) -> None:
    model = LONE.model()
    with Applied(plan, model, "cpu"):
        with pytest.raises(RuntimeError, match="copy"):
            copy.deepcopy(model)
        with pytest.raises(RuntimeError, match="copy"):
            copy.deepcopy(model.blocks[0])(LONE.input())
    copy.deepcopy(model)(LONE.input())


@each_plan
def test_foreign_hooks_keep_firing_in_their_order(plan: str) -> None:
    model = LONE.model()
    seen: list[str] = []
    model.blocks[0].register_forward_hook(lambda *_: seen.append("first"))
    plain = model.after.forward
    model.after.forward = lambda x: (seen.append("wrapped"), plain(x))[1]
    with Applied(plan, model, "cpu"):
        model.blocks[0].register_forward_hook(lambda *_: seen.append("second"))
        model(LONE.input())
        assert seen == ["first", "second", "wrapped"]
    model(LONE.input())
    assert seen == ["first", "second", "wrapped"] * 2


@each_plan
def test_two_threads_get_the_results_of_one(plan: str) -> None:
    model = LONE.model()
    inputs = [torch.full((2, WIDTH), float(value)) for value in range(4)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
    wrong: list[int] = []

    def work(offset: int) -> None:
        with torch.no_grad():
            for turn in range(30):
                index = (turn + offset) % len(inputs)
                if not torch.equal(model(inputs[index]), wanted[index]):
                    wrong.append(index)

    with Applied(plan, model, "cpu"):
        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@each_plan
def test_gradients_are_right_or_refused(plan: str) -> None:
    case = next(case for case in MODULES if case.name == "checkpointed")
    reference, model = case.model(), case.model()
    reference(case.input()).sum().backward()
    with Applied(plan, model, "cpu"):
        model(case.input()).sum().backward()
    for one, other in zip(model.parameters(), reference.parameters()):
        assert one.grad is not None and other.grad is not None
        assert torch.allclose(one.grad, other.grad)


def test_a_parameter_that_is_added_while_applied_is_managed_or_harmless() -> None:
    model = LONE.model()
    for _ in range(2):
        with Applied("group_offload", model, "cpu"), torch.no_grad():
            model(LONE.input())
            model.extra = nn.Parameter(torch.ones(WIDTH))
            model.side = torch.ones(3)
            model(LONE.input())
    assert not any(
        tensor.is_meta
        for module in model.modules()
        for tensor in module.__dict__.values()
        if isinstance(tensor, torch.Tensor)
    )
    assert model.extra.device.type == "cpu"


@pytest.mark.parametrize("root", ["nothing", "parameter", "buffer", "both"])
def test_own_bookkeeping_says_whether_a_model_is_placed(root: str) -> None:
    model = nn.Sequential(Block())
    if root in ("parameter", "both"):
        model.register_parameter("own", nn.Parameter(torch.zeros(2)))
    if root in ("buffer", "both"):
        model.register_buffer("state", torch.zeros(2))
    assert residency_of(model) is None
    with Applied("group_offload(level=leaf_level)", model, "cpu"):
        assert residency_of(model) is not None
    assert residency_of(model) is None


def test_a_component_that_another_plan_places_is_refused() -> None:
    from paretune.strategies import Unsupported

    model = LoneLayers()
    with Applied("group_offload", model, "cpu"), pytest.raises(Unsupported, match="LoneLayers is placed"):
        Applied("model_offload", model, "cpu")


class AsksForDtype(nn.Module):
    """Reads a child's weight before it calls the child, as T5's feed-forward does."""

    def __init__(self) -> None:
        super().__init__()
        self.wo = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wo(x.to(self.wo.weight.dtype))


def test_weights_that_parents_read_do_not_pile_up() -> None:
    model = nn.Sequential(*(AsksForDtype() for _ in range(6)))
    held: list[int] = []
    with Applied("group_offload(level=leaf_level)", model, "cpu"), torch.no_grad():
        placed = residency_of(model)
        assert placed is not None
        for layer in model:
            layer.wo.register_forward_hook(lambda *_: held.append(placed.resident_bytes))
        for _ in range(2):
            model(LONE.input())
    one = max(unit_bytes for unit_bytes in held[-6:])
    assert held[6:] == [one] * 6
    assert max(held[:6]) <= 2 * one
