"""Attention on simulated cards: the kernel CUDA would choose, its temporary memory, and every backend by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from paretune.attention.catalog import catalog
from paretune.harness.simulator import Simulation
from paretune.harness.simulator.attention_cost import AttentionCall, native_backend

HALF, SINGLE = torch.float16, torch.float32


def call(**changes: object) -> AttentionCall:
    base = {"batch": 1, "heads": 8, "queries": 4096, "keys": 4096, "key_heads": 8, "head_size": 64, "value_size": 64}
    return AttentionCall(**{**base, "dtype": HALF, "is_causal": False, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "capability", "backend"),
    [
        (call(), (8, 0), "_native_flash"),
        (call(), (7, 5), "_native_efficient"),
        (call(mask_bytes=8), (8, 0), "_native_efficient"),
        (call(head_size=512, value_size=512), (8, 0), "_native_efficient"),
        (call(dtype=SINGLE), (9, 0), "_native_efficient"),
        (call(dtype=SINGLE, head_size=63, value_size=63), (8, 0), "_native_math"),
        (call(dtype=torch.bfloat16), (7, 5), "_native_math"),
    ],
)
def test_the_kernel_is_chosen_as_cuda_would(asked: AttentionCall, capability: tuple[int, int], backend: str) -> None:
    assert native_backend(asked, capability) == backend


def test_only_the_plain_path_holds_all_scores() -> None:
    peaks = {}
    for dtype in (torch.float16, torch.float64):
        with Simulation("a100-40gb") as sim, torch.no_grad():
            q = torch.empty(1, 8, 4096, 64, dtype=dtype, device="sim")
            before = torch.sim.memory_allocated()
            F.scaled_dot_product_attention(q, q, q)
            peaks[dtype] = sim.machine.cards[0].ledger.peak_bytes - before
    assert peaks[torch.float16] < 8 * 4096 * 4096
    assert peaks[torch.float64] > 8 * 4096 * 4096 * 4


@pytest.mark.parametrize("backend", sorted(catalog()))
def test_every_backend_of_the_catalogue_has_a_time(backend: str) -> None:
    with Simulation("h100") as sim, torch.no_grad():
        q = torch.empty(1, 4096, 24, 128, dtype=torch.bfloat16, device="sim")
        torch.sim.synchronize()
        before = sim.machine.host_s
        out = torch.ops.paretune.attention(q, q, q, None, backend, False, None, False)
        torch.sim.synchronize()
    assert out.shape == q.shape
    assert 1e-4 < sim.machine.host_s - before < 1.0
