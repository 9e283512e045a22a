"""On a real GPU: smaller weights, tiles and layouts save the memory they promise, and compiled code agrees."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from paretune.strategies import Applied

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTH = 2048


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(4, 128, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=8))
        self.last = nn.Conv2d(128, 3, 3, padding=1)
        self.spatial_compression_ratio = 8

    def decode(self, z):
        return self.last(self.layers(z))


def run(plan: str, model: nn.Module, call) -> tuple[torch.Tensor, int]:
    """The second answer, and the peak of allocated bytes over it with weights included."""
    with torch.no_grad(), Applied(plan, model, "cuda"):
        call(model)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        answer = call(model)
        torch.cuda.synchronize()
        return answer.float().cpu(), torch.cuda.max_memory_allocated()


def forward(model: nn.Module) -> torch.Tensor:
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1)).to("cuda", torch.bfloat16)
    return model(x)


def decode(model: nn.Module) -> torch.Tensor:
    z = torch.randn(1, 4, 128, 128, generator=torch.Generator().manual_seed(1)).to("cuda", torch.float16)
    return model.decode(z)


@pytest.mark.parametrize(
    ("plan", "share", "error"),
    [
        ("layerwise_casting", 0.75, 0.05),
        ("quantize(method=int8_weight_only)", 0.8, 0.03),
        ("quantize(method=nf4)", 0.75, 0.15),
        ("layerwise_casting + group_offload", 0.5, 0.05),
        ("quantize(method=int8_weight_only) + group_offload(level=leaf_level,use_stream=true)", 0.6, 0.03),
    ],
)
def test_smaller_weights_take_less(plan, share, error):
    model = Model().bfloat16()
    plain, plain_bytes = run("resident", model, forward)
    answer, peak_bytes = run(plan, model, forward)
    assert peak_bytes < share * plain_bytes
    assert float((answer - plain).norm() / plain.norm()) < error
    again, _ = run("resident", model, forward)
    assert torch.equal(again, plain)


def test_tiles_take_less_and_slices_agree():
    model = Decoder().half()
    plain, plain_bytes = run("resident", model, decode)
    tiled, tiled_bytes = run("vae_tiling(tile_size=256)", model, decode)
    assert tiled_bytes < 0.5 * plain_bytes
    assert float((tiled - plain).norm() / plain.norm()) < 0.05
    last, _ = run("channels_last", model, decode)
    torch.testing.assert_close(last, plain, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("plan", ["compile", "compile + layerwise_casting", "compile + group_offload"])
def test_compiled_blocks_agree(plan):
    model = Model().bfloat16()
    rest = plan.removeprefix("compile").removeprefix(" + ") or "resident"
    plain, _ = run(rest, model, forward)
    answer, _ = run(plan, model, forward)
    assert float((answer - plain).norm() / plain.norm()) < 0.02
