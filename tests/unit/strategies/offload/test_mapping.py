"""Device maps: planning by sizes and budgets, and carrying a map out on two simulated cards."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.snapshot import snapshot
from support.toys import MODULES, WIDTH, Carrier, make_pipeline
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.strategies import Applied, InfeasiblePlan, PlanError, Unsupported
from paretune.strategies.mechanics.arguments import to_device
from paretune.strategies.mechanics.layers import Layers
from paretune.strategies.mechanics.planning import Item, PlacementError, assign

LONE = MODULES[0]


def items(*sizes: int) -> list[Item]:
    return [Item(name=f"m{index}", num_bytes=size) for index, size in enumerate(sizes)]


def test_an_oversize_layer_does_not_close_a_device_for_what_follows() -> None:
    placed = assign(items(1, 100, 1, 1), {"0": 10, "1": 200}, balanced=False)
    assert placed == {"m0": "0", "m1": "1", "m2": "0", "m3": "0"}


def test_balanced_fills_evenly_and_sequential_one_after_the_other() -> None:
    budgets = {"0": 100, "1": 100}
    assert list(assign(items(10, 10, 10, 10), budgets, balanced=True).values()) == ["0", "0", "1", "1"]
    assert list(assign(items(10, 10, 10, 10), budgets, balanced=False).values()) == ["0"] * 4


def test_a_device_that_is_not_named_gets_nothing_and_the_rest_overflows() -> None:
    placed = assign(items(10, 10, 10), {"1": 10, "cpu": 10, "disk": None}, balanced=True, overflow=("cpu", "disk"))
    assert list(placed.values()) == ["1", "cpu", "disk"]


def test_fixed_items_are_counted_first_and_missing_bytes_are_stated() -> None:
    fixed = [*items(6), Item(name="root", num_bytes=5, fixed="0")]
    assert assign(fixed, {"0": 10, "1": 10}, balanced=False)["m0"] == "1"
    with pytest.raises(PlacementError, match=r"m0 needs 6 bytes.*1 bytes are missing"):
        assign(fixed, {"0": 10}, balanced=False)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.lists(st.integers(0, 200), min_size=1, max_size=4))
def test_budgets_hold_whatever_the_sizes(sizes: list[int], budgets: list[int]) -> None:
    limits: dict[str, int | None] = {str(index): budget for index, budget in enumerate(budgets)}
    for balanced in (False, True):
        placed = assign(items(*sizes), {**limits, "cpu": None}, balanced=balanced, overflow=("cpu",))
        assert list(placed) == [f"m{index}" for index in range(len(sizes))]
        for device, limit in limits.items():
            assert limit is not None
            assert sum(size for size, name in zip(sizes, placed) if placed[name] == device) <= limit


@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_layers_cover_every_tensor_and_ties_stay_together(case: object) -> None:
    model = case.model()  # type: ignore[attr-defined]
    layers = Layers.of(model)
    owners = {owner for name in layers.modules for owner in layers.owners(name)}
    found = {t for owner in owners for t in (*owner.parameters(recurse=False), *owner.buffers(recurse=False))}
    assert found == {*model.parameters(), *model.buffers()}
    layers.refuse_torn({name: str(i) for i, names in enumerate(layers.clusters()) for name in names})


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Output(OrderedDict):  # type: ignore[type-arg]
    """As diffusers' outputs: a dataclass that is an ordered dict."""

    sample: torch.Tensor


def test_only_containers_in_which_something_moves_are_rebuilt() -> None:
    here, there = torch.ones(1), torch.empty(1, device="meta")
    filled: dict[str, object] = {}
    same = [here, (here, 1), {"a": [here]}, Carrier(here), SimpleNamespace(v=here), filled, None, {1, 2}, iter(()), "x"]
    for value in same:
        assert to_device(value, here.device) is value
    moved = to_device([there, Pair(there, 1), {"a": (there,)}, Carrier(there), SimpleNamespace(v=there)], there.device)
    assert isinstance(moved[1], Pair)
    meta = torch.device("meta")
    values = to_device([here, Pair(here, 1), OrderedDict(a=(here,)), Carrier(here), SimpleNamespace(v=here)], meta)
    assert isinstance(values[1], Pair) and isinstance(values[2], OrderedDict)
    found = [values[0], values[1].left, values[2]["a"][0], values[3].value, values[4].v]
    assert all(tensor.is_meta for tensor in found)


MAPS = (
    "device_map",
    "device_map(mode=sequential)",
    'device_map(max_memory={"0":"3KB","1":"3KB","cpu":"1MB"})',
    'device_map(map={"":1})',
    'device_map(map={"":"cpu"})',
)


@pytest.mark.parametrize("plan", MAPS)
def test_every_toy_runs_split_over_two_cards_and_comes_back(plan: str) -> None:
    with Simulation("rtx-4090", num_devices=2), torch.no_grad():
        for case in MODULES:
            if case.name in ("odd_containers", "attention"):
                continue
            model = case.model()
            before = snapshot(model).structure
            try:
                applied = Applied(plan, model, "sim")
            except Unsupported as error:
                assert "share a weight" in str(error)
                continue
            with applied:
                for _ in range(2):
                    assert model(case.input().to("sim")).device == torch.device("sim:0")
            if case.name != "out_of_order":
                after = snapshot(model).structure
                kept = {key: value for key, value in before.items() if not key.endswith("attributes")}
                assert {key: after[key] for key in kept if _comparable(kept[key])} == {
                    key: value for key, value in kept.items() if _comparable(value)
                }


def _comparable(value: object) -> bool:
    return not isinstance(value, dict) or "shares memory with" not in value


def test_the_map_in_force_can_be_seen_and_reset() -> None:
    with Simulation("rtx-4090", num_devices=2):
        model = LONE.model()
        Applied("device_map", model, "sim")
        assert set(model.hf_device_map.values()) == {0, 1}
        assert model.hf_device_map["blocks.0"] == 0
        model.reset_device_map()
        assert not hasattr(model, "hf_device_map")
        assert all(parameter.device.type == "cpu" for parameter in model.parameters())
        model.to("sim")


@pytest.mark.parametrize(
    "plan",
    [
        "device_map",
        'device_map(max_memory={"1":"1GB"})',
        'device_map(map={"text_encoder":1,"transformer":0,"vae":1})',
        'device_map(map={"text_encoder":"cpu","transformer":1,"vae":0})',
        "transformer:device_map",
        "model_offload + transformer:device_map",
    ],
)
def test_components_on_several_cards_meet_on_the_pipelines_device(plan: str) -> None:
    with Simulation("rtx-4090", num_devices=2), torch.no_grad():
        pipeline = make_pipeline()
        x = torch.ones(2, WIDTH, device="sim")
        with Applied(plan, pipeline, "sim"):
            assert pipeline._execution_device == torch.device("sim:0")
            assert pipeline(x).device == torch.device("sim:0")
            assert pipeline.encode_prompt(x).device == torch.device("sim:0")


def test_memory_per_card_is_as_planned() -> None:
    with Simulation("rtx-4090", num_devices=2) as simulation:
        model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(6)))
        limits = 'device_map(max_memory={"0":"17MB","1":"9MB"},mode=sequential)'
        with Applied(limits, model, "sim"):
            held = [card.ledger.now_bytes for card in simulation.machine.cards]
        assert held == [4 * 4 * 1024**2, 2 * 4 * 1024**2]


def test_maps_that_cannot_be_are_refused_with_what_is_wrong() -> None:
    with Simulation("rtx-4090", num_devices=2):
        wrong = {
            'device_map(map={"blocks":0})': "'before' is given no device",
            'device_map(map={"":0,"bloks":1})': "no module named 'bloks'",
            'device_map(map={"":7})': "device '7' does not exist",
            'device_map(map={"":"disk"})': "offload_folder",
            'device_map(max_memory={"0":"100B"})': "bytes are missing",
        }
        for plan, text in wrong.items():
            model = LONE.model()
            with pytest.raises(Unsupported, match=text):
                Applied(plan, model, "sim")
            assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    with pytest.raises(PlanError, match="ambiguous"):
        Applied('device_map(max_memory={"0":"1Gb"})', LONE.model(), "cpu")
    with pytest.raises(InfeasiblePlan, match="needs device memory"):
        Applied("device_map", LONE.model(), "cpu")
