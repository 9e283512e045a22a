"""The offload hooks of diffusers and accelerate run unmodified, and in the order of peaks that a GPU shows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from diffusers.hooks import apply_group_offloading
from torch import nn

from paretune.harness.simulator import Simulation


class Model(nn.Module):
    """Blocks of equal size in a list, as transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 2048)) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def group(**options: Any) -> Any:
    def apply(model: nn.Module) -> None:
        apply_group_offloading(model, onload_device=torch.device("sim"), **options)

    return apply


def sequential(model: nn.Module) -> None:
    from accelerate import cpu_offload

    cpu_offload(model, torch.device("sim"))


SETTINGS = {
    "resident": lambda model: model.to("sim"),
    "blocks of 4": group(offload_type="block_level", num_blocks_per_group=4),
    "blocks of 1": group(offload_type="block_level", num_blocks_per_group=1),
    "leaf": group(offload_type="leaf_level"),
    "leaf, streamed": group(offload_type="leaf_level", use_stream=True),
    "block, streamed": group(offload_type="block_level", num_blocks_per_group=1, use_stream=True, record_stream=True),
    "sequential": sequential,
}


def peak_and_seconds(name: str) -> tuple[int, float]:
    with Simulation("rtx-4090") as sim, torch.no_grad(), warnings.catch_warnings():
        model = Model().half().requires_grad_(False).eval()
        SETTINGS[name](model)
        for _ in range(3):
            sim.machine.begin_phase("denoise")
            torch.sim.synchronize()
            began = sim.machine.host_s
            model(torch.empty(256, 2048, dtype=torch.float16, device="sim"))
            torch.sim.synchronize()
        return sim.machine.cards[0].ledger.peak_bytes, sim.machine.host_s - began


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[int, float]]:
    return {name: peak_and_seconds(name) for name in SETTINGS}


def test_peaks_are_ordered_as_on_a_gpu(measured: dict[str, tuple[int, float]]) -> None:
    order = ["resident", "blocks of 4", "blocks of 1", "leaf"]
    peaks = [measured[name][0] for name in order]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)
    assert measured["sequential"][0] <= measured["leaf"][0]


def test_streams_hide_copies_and_pageable_copies_cost_most(measured: dict[str, tuple[int, float]]) -> None:
    assert measured["resident"][1] < measured["leaf, streamed"][1] < measured["leaf"][1]
    assert measured["block, streamed"][1] < measured["blocks of 1"][1]
