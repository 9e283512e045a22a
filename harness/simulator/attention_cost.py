"""Time and temporary memory of attention kernels by family: flash, memory-efficient, cuDNN, quantised, and the plain path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.costs import Charge, memory_seconds, product_seconds

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["attention_charge", "native_family"]

MAX_FLASH_HEAD_SIZE = 256
_SHARES = {"fused_flash": 0.85, "fused_efficient": 0.55, "cudnn": 0.9, "math": 0.8}
"""Share of a large product's efficiency that the two products inside reach."""


def native_family(machine: Machine, tensors: list[Any]) -> str:
    """The kernel that CUDA picks for `scaled_dot_product_attention`: flash, then memory-efficient, then the plain path."""
    query, key, value = tensors[:3]
    has_mask = len(tensors) > 3
    width = query.shape[-1]
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    capability = machine.sheet.compute_capability
    if query.dim() != 4:
        return "math"
    equal_widths = width == value.shape[-1]
    if is_half and not has_mask and capability >= (8, 0) and width <= MAX_FLASH_HEAD_SIZE and equal_widths:
        return "fused_flash"
    aligned = width % (8 if is_half else 4) == 0
    if aligned and query.dtype in (torch.float16, torch.bfloat16, torch.float32) and query.shape[1] == key.shape[1]:
        return "fused_efficient" if capability >= (8, 0) or query.dtype != torch.bfloat16 else "math"
    return "math"


def attention_charge(
    machine: Machine, tensors: list[Any], *, family: str, is_causal: bool, backend: str | None = None
) -> Charge:
    """Cost of one call; `tensors` are query, key, value as (batch, heads, sequence, size) and possibly a mask."""
    query, key, value = tensors[:3]
    scores = query.shape[:-1].numel() * key.shape[-2]
    flops = 2.0 * scores * (query.shape[-1] + value.shape[-1]) * (0.5 if is_causal else 1.0)
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors) + query.numel() * query.element_size()
    lse = 4 * query.shape[:-1].numel()
    dtype = str(query.dtype).removeprefix("torch.")
    waves = max(query.shape[:-1].numel() / 128 / machine.sheet.multiprocessors, 1e-3)
    if family == "math":
        return _math(machine, tensors, scores=scores, flops=flops, dtype=dtype)
    kernel_s = max(product_seconds(machine, flops, dtype, waves, _SHARES.get(family, 0.85)), memory_seconds(machine, moved))
    return Charge(kernel_s=kernel_s + machine.host.kernel_s, host_s=2 * machine.host.eager_operator_s, workspace_bytes=lse)


def _math(machine: Machine, tensors: list[Any], *, scores: int, flops: float, dtype: str) -> Charge:
    """Scores are kept whole, in float32 for half inputs: once before and once after the softmax, and inputs upcast."""
    query = tensors[0]
    itemsize = 4 if query.element_size() == 2 else query.element_size()
    upcast = sum(tensor.numel() for tensor in tensors[:3]) * 4 if query.element_size() == 2 else 0
    workspace = 2 * scores * itemsize + upcast
    rate = "float32" if query.element_size() == 2 else dtype
    kernel_s = product_seconds(machine, flops, rate, 100.0, _SHARES["math"]) + memory_seconds(machine, 6.0 * scores * itemsize)
    host = machine.host
    return Charge(kernel_s=kernel_s + 8 * host.kernel_s, host_s=8 * host.eager_operator_s, workspace_bytes=workspace)
