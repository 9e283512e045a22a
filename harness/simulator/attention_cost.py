"""Time and temporary memory of one attention call, from the backend's catalogue entry and the published kernel charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from paretune.attention.catalog import Cost
from paretune.attention.catalog import entry as backend_entry
from paretune.attention.catalog.rates import share
from paretune.harness.simulator.costs import Charge, memory_seconds

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine
    from paretune.harness.simulator.sheets import GpuSheet

__all__ = ["PROBES", "AttentionCall", "attention_charge", "native_backend"]

MAX_FLASH_HEAD_SIZE = 256
_CHARTED_EFFICIENCY = {(8, 0): 0.76, (8, 6): 0.88, (8, 9): 0.92, (9, 0): 0.68, (12, 0): 0.92}
"""Product efficiency of the cards in the charts by compute capability; a card that reaches less there (a power limit,
for instance) also reaches less here."""
SINGLE_SHARE = 0.6
"""Share of the float32 rate that the memory-efficient kernel reaches on float32 inputs."""
TILE = 128
PROBES = ((1, 4608, 24, 128), (1, 1024, 16, 64))
"""Batch, sequence, heads, head size at which calibration measures backends: FLUX at 1024x1024, and a small UNet level."""


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """Sizes of one call; lengths in tokens, `key_heads` below `heads` for grouped queries."""

    batch: int
    heads: int
    queries: int
    keys: int
    key_heads: int
    head_size: int
    value_size: int
    dtype: torch.dtype
    is_causal: bool
    mask_bytes: int = 0

    @property
    def rows(self) -> int:
        """Rows of the score matrix over batch and heads."""
        return self.batch * self.heads * self.queries

    @property
    def input_numel(self) -> int:
        """Elements of query, key and value."""
        keys = self.batch * self.key_heads * self.keys * (self.head_size + self.value_size)
        return self.rows * self.head_size + keys


def native_backend(call: AttentionCall, capability: tuple[int, int]) -> str:
    """What CUDA picks for `scaled_dot_product_attention`: flash, then memory-efficient, then the plain path.

    Source: PyTorch's sdp_utils for CUDA (dtype, mask, head size and capability checks).
    """
    is_half = call.dtype in (torch.float16, torch.bfloat16)
    fits_flash = call.head_size <= MAX_FLASH_HEAD_SIZE and call.head_size == call.value_size
    if is_half and not call.mask_bytes and capability >= (8, 0) and fits_flash:
        return "_native_flash"
    is_aligned = call.head_size % (8 if is_half else 4) == 0
    has_kernel = call.dtype is torch.float32 or call.dtype is torch.float16 or capability >= (8, 0)
    if is_aligned and has_kernel and call.heads == call.key_heads and call.dtype is not torch.float64:
        return "_native_efficient"
    return "_native_math"


def attention_charge(machine: Machine, call: AttentionCall, backend: str) -> Charge:
    """Cost of one call of a backend of the catalogue."""
    cost = backend_entry(backend).cost
    family = (cost.masked_family or cost.family) if call.mask_bytes else cost.family
    host = machine.host
    num_kernels = 8 if cost.score_copies else 1
    product_s = _product_seconds(machine.sheet, call, family) / _measured_factor(machine.sheet, call, backend)
    kernel_s = max(product_s, memory_seconds(machine, _moved_bytes(call, cost)))
    return Charge(
        kernel_s=kernel_s + num_kernels * host.kernel_s,
        host_s=(num_kernels + 1) * host.eager_operator_s,
        workspace_bytes=_workspace_bytes(call, cost),
    )


def _flops(call: AttentionCall) -> float:
    return 2.0 * call.rows * call.keys * (call.head_size + call.value_size) * (0.5 if call.is_causal else 1.0)


def _product_seconds(sheet: GpuSheet, call: AttentionCall, family: str) -> float:
    flops = _flops(call)
    rates = sheet.dense_flops_per_s
    waves = max(call.rows / TILE / sheet.multiprocessors, 1e-3)
    fill = waves / (waves + 0.25)
    if call.dtype not in (torch.float16, torch.bfloat16):
        return flops / (rates["float32"] * SINGLE_SHARE * fill)
    rate = rates[str(call.dtype).removeprefix("torch.")]
    charted = share(
        family, compute_capability=sheet.compute_capability, head_size=call.head_size, sequence=max(call.keys, 1)
    ).value
    scale = min(sheet.product_efficiency / _CHARTED_EFFICIENCY.get(sheet.compute_capability, 0.85), 1.1)
    return flops / (rate * charted * scale * fill)


def _measured_factor(sheet: GpuSheet, call: AttentionCall, backend: str) -> float:
    """How many times as fast as the charts say a backend was on this very card; 1 where nobody measured it.

    The charts still say how the rate depends on lengths and head sizes; the measurement sets its level.
    """
    measured = sheet.attention_flops_per_s.get(backend)
    if measured is None or call.dtype not in (torch.float16, torch.bfloat16):
        return 1.0
    family = backend_entry(backend).cost.family
    charted = max(_flops(probe) / _product_seconds(sheet, probe, family) for probe in map(_probe, PROBES))
    return measured / charted


def _probe(shape: tuple[int, int, int, int]) -> AttentionCall:
    batch, length, heads, size = shape
    return AttentionCall(
        batch=batch,
        heads=heads,
        queries=length,
        keys=length,
        key_heads=heads,
        head_size=size,
        value_size=size,
        dtype=torch.bfloat16,
        is_causal=False,
    )


def _moved_bytes(call: AttentionCall, cost: Cost) -> float:
    itemsize = call.dtype.itemsize
    moved = (call.input_numel + call.rows * call.value_size) * itemsize + call.mask_bytes
    return moved + 3.0 * cost.score_copies * call.rows * call.keys * 4


def _workspace_bytes(call: AttentionCall, cost: Cost) -> int:
    """Log-sum-exp, quantised copies, and for the plain path the scores in float32 beside upcast inputs."""
    total = cost.fixed_workspace_bytes + int(cost.copies_qkv * call.input_numel * call.dtype.itemsize)
    if cost.keeps_lse:
        total += 4 * call.rows
    if cost.score_copies:
        total += int(cost.score_copies * call.rows * call.keys * 4)
        total += call.input_numel * 4 if call.dtype.itemsize == 2 else 0
    return total
