"""Casting beside code of others: forwards bound to one object, dtypes asked of cast models, changes of the dtype."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch import nn

from paretune.strategies import Applied, LayerwiseCasting

FP8 = torch.float8_e4m3fn
PLACING = ["", " + group_offload(level=leaf_level)", " + group_offload", " + sequential_offload", " + model_offload"]


class Scaled(nn.Linear):
    """A layer whose own class overrides ``forward``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(24, 48), nn.ReLU(), Scaled(48, 48), nn.Conv1d(3, 3, 5), nn.Linear(44, 8)).eval()


def wrapped(layer: nn.Module, seen: list[torch.dtype]) -> None:
    """Bind another forward to this one object, as libraries do that move tensors between devices."""
    inner = layer.forward

    def forward(self: nn.Module, input: torch.Tensor) -> Any:
        seen.append(input.dtype)
        return inner(input) - 1

    layer.forward = types.MethodType(forward, layer)  # type: ignore[method-assign]


@pytest.mark.parametrize("placing", PLACING)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forward_bound_to_one_layer_runs_whatever_places_its_weights(placing: str, when: str) -> None:
    model, alone, x = network(), network(), torch.randn(2, 3, 24)
    seen: list[torch.dtype] = []
    for layer in (*model, *alone):
        for parameter in layer.parameters():
            parameter.data = parameter.data.to(FP8).to(torch.float32)
    wrapped(alone[2], [])
    if when == "before":
        wrapped(model[2], seen)
    with torch.no_grad():
        with Applied(f"layerwise_casting(default_skips=false){placing}", model, "cpu"):
            if when == "after":
                wrapped(model[2], seen)
            for _ in range(2):
                assert torch.equal(model(x), alone(x))
            assert {parameter.dtype for parameter in model.parameters()} == {FP8}
        assert seen == [torch.float32] * 2
        assert torch.equal(model(x), alone(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_library_model_in_8_bits_says_what_it_computes_in(dtype: torch.dtype) -> None:
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DModel(
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        sample_size=8,
    ).to(dtype)
    every = LayerwiseCasting(default_skips=False, skip_modules_classes="GroupNorm")
    with torch.no_grad(), Applied([every], model, "cpu"):
        assert next(model.parameters()).dtype is FP8
        assert model.dtype is dtype
        latents = torch.randn(1, 3, 8, 8).to(model.dtype)
        assert model(latents, 3).sample.dtype is dtype


@pytest.mark.parametrize(
    "change", [nn.Module.float, lambda m: m.to(dtype=torch.float32), lambda m: m.type(torch.float32)]
)
def test_widening_for_good_is_refused_rather_than_undone_later(change: Any) -> None:
    model = network().bfloat16()
    with Applied("layerwise_casting", model, "cpu"):
        with pytest.raises(RuntimeError, match="cannot change dtype"):
            change(model)
        assert model[0].weight.dtype is FP8
    assert model[0].weight.dtype is torch.bfloat16
    change(model)
    assert model[0].weight.dtype is torch.float32


def test_a_pattern_among_classes_excludes_nothing_and_is_told() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    with Applied([LayerwiseCasting(skip_modules_classes=["norm"])], model, "cpu") as applied:
        (facts,) = applied.facts.values()
    assert facts["unmatched_exclusions"] == ["norm"] and facts["num_layers_cast"] == 1
