"""Charge scaled dot product attention as one kernel, chosen as CUDA would choose it."""

from __future__ import annotations

from typing import Any

import torch

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.attention_cost import attention_charge, native_family
from paretune.harness.simulator.dispatch import SPECIAL
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import result_index
from paretune.harness.simulator.registration import active_machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor
from paretune.harness.simulator.timeline import host_work, launch

__all__ = ["attend", "sdpa_kernel"]



def attend(
    machine: Machine, tensors: list[SimulatedTensor], *, family: str, is_causal: bool, backend: str | None = None
) -> SimulatedTensor:
    """One attention kernel over (batch, heads, sequence, size) tensors: query, key, value and possibly a mask."""
    query, value = tensors[0], tensors[2]
    machine.operator = f"attention ({backend or family})"
    index = result_index(machine, machine.operator, {}, list(tensors))
    size = (*query.shape[:-1], value.shape[-1])
    charge = attention_charge(machine, tensors, family=family, is_causal=is_causal, backend=backend)
    if index < 0:
        host_work(machine, charge.host_s)
    else:
        launch(machine.cards[index], charge.kernel_s, charge.host_s)
    stride = _stride_like(query, size) if family != "math" else torch.empty(size, device="meta").stride()
    nbytes = torch.Size(size).numel() * query.element_size()
    result = make_tensor(Storage(machine, index, nbytes), query.dtype, size, stride)
    if index >= 0 and charge.workspace_bytes:
        machine.cards[index].workspace(charge.workspace_bytes, machine.component)
    return result


def _native(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`scaled_dot_product_attention` itself."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    mask = given.get("attn_mask")
    is_causal = bool(given.get("is_causal", False))
    if mask is not None and is_causal:
        raise RuntimeError("scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True")
    tensors = [adopt(item) for item in (given["query"], given["key"], given["value"], mask) if item is not None]
    return attend(machine, tensors, family=native_family(machine, tensors), is_causal=is_causal)


def sdpa_kernel(*args: Any, **kwargs: Any) -> Any:
    """What PyTorch's dispatcher calls for `scaled_dot_product_attention` on simulated cards, before it takes it apart."""
    return _native(active_machine(), None, args, kwargs)


def _stride_like(query: SimulatedTensor, size: tuple[int, ...]) -> tuple[int, ...]:
    """Fused kernels compute in (batch, sequence, heads, size) and return a transposed view of it."""
    if query.dim() != 4:
        return torch.empty(size, device="meta").stride()
    batch, heads, length, width = size
    return (heads * length * width, width, heads * width, 1)


SPECIAL[torch.ops.aten.scaled_dot_product_attention.default] = _native
