"""What one operator costs: seconds on the device, seconds of the host, temporary bytes. A roofline per class of operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

from paretune.harness.simulator.products import product_of
from paretune.harness.simulator.workspaces import workspace_bytes

if TYPE_CHECKING:
    from paretune.harness.simulator.inference import Inferred
    from paretune.harness.simulator.machine import Machine

__all__ = ["Charge", "charge_for", "memory_seconds", "product_seconds"]

aten = torch.ops.aten
TILE_S = 3.0e-6
"""Time to start and finish one output tile on a multiprocessor, whatever its depth: why shallow products reach less of a fast
card's rate than of a slow one's. Fitted to published times of SD3 and PixArt beside FLUX.1 on four cards."""


@dataclass(slots=True)
class Charge:
    """Cost of one call of an operator with one signature."""

    kernel_s: float
    host_s: float
    workspace_bytes: int = 0
    uses_cublas: bool = False
    is_fusable: bool = False
    """Elementwise work that a compiler would merge with its neighbours."""
    conversion_s: float = 0.0
    """Part of `kernel_s` that turns a convolution's layout; a compiler lays such models out channels-last instead."""


_UNWRITTEN = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""They take memory and touch none of it: no kernel runs."""
_GATHERS = {aten.embedding, aten.index, aten.index_select, aten.gather}
_PASSES = {aten.native_group_norm: 1.5, aten.native_layer_norm: 1.2, aten._softmax: 1.2, aten._fused_rms_norm: 1.2}
"""How many times a normalisation's kernel effectively reads its input beyond the caches' help."""


def charge_for(machine: Machine, func: Any, inferred: Inferred) -> Charge:
    """The cost on the card (or host) that the inferred result lives on."""
    args, kwargs, result = inferred.metas
    packet = func.overloadpacket
    if packet in _UNWRITTEN:
        return Charge(kernel_s=0.0, host_s=machine.host.eager_operator_s)
    sources = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    results = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
    moved = _moved_bytes(packet, sources, results)
    if inferred.index < 0:
        host = machine.host
        return Charge(kernel_s=0.0, host_s=host.eager_operator_s + moved / host.memcpy_bytes_per_s)
    work = product_of(packet, args, results)
    kernel_s = memory_seconds(machine, moved)
    if work is not None:
        kernel_s = max(
            kernel_s, product_seconds(machine, work.flops, work.dtype, work.waves(machine.sheet), work.share)
        )
    workspace = workspace_bytes(packet, args, results)
    conversion_s = memory_seconds(machine, 2.0 * workspace) if packet is aten.convolution else 0.0
    return Charge(
        kernel_s=kernel_s + conversion_s + machine.host.kernel_s,
        host_s=machine.host.eager_operator_s,
        workspace_bytes=workspace,
        conversion_s=conversion_s,
        uses_cublas=work is not None and work.uses_cublas,
        is_fusable=work is None and packet not in _GATHERS,
    )


def memory_seconds(machine: Machine, moved_bytes: float) -> float:
    """Time to move bytes through the card's memory."""
    return moved_bytes / (machine.sheet.bandwidth_bytes_per_s * machine.sheet.bandwidth_efficiency)


def product_seconds(machine: Machine, flops: float, rate_name: str, waves: float, share: float = 1.0) -> float:
    """Time of products at a dtype's rate; `waves` tiles per multiprocessor say how well a small product fills the card."""
    sheet = machine.sheet
    rates = sheet.dense_flops_per_s
    rate = rates.get(rate_name) or rates["float32"]
    efficiency = sheet.product_efficiency if rate_name not in ("float32", "float64") else 0.85
    return flops / (rate * efficiency * share * waves / (waves + 0.25)) + max(waves, 1.0) * TILE_S


def _moved_bytes(packet: Any, sources: list[torch.Tensor], results: list[torch.Tensor]) -> float:
    written = sum(_bytes(tensor) for tensor in results)
    if packet in _GATHERS:
        return 2.0 * written
    if packet is aten.copy_:
        return float(sum(_bytes(tensor) for tensor in sources))
    read = sum(_bytes(tensor) for tensor in sources)
    return written + read * _PASSES.get(packet, 1.0)


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes that are really touched: a broadcast dimension is read once."""
    numel = 1
    for length, step in zip(tensor.shape, tensor.stride(), strict=True):
        numel *= length if step or length == 0 else 1
    return numel * tensor.element_size()
