"""Charge attention as one kernel: PyTorch's own, chosen as CUDA would choose it, and every backend of the catalogue by name."""

from __future__ import annotations

from typing import Any

import torch

import paretune.attention.simulated  # noqa: F401 - defines the operator paretune::attention
from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.attention_cost import AttentionCall, attention_charge, native_backend
from paretune.harness.simulator.costs import Charge
from paretune.harness.simulator.dispatch import SPECIAL
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import result_index
from paretune.harness.simulator.registration import active_machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor
from paretune.harness.simulator.timeline import host_work, launch

__all__ = ["sdpa_kernel"]

Planned = tuple[int, Charge, tuple[int, ...], tuple[int, ...]]


def sdpa_kernel(*args: Any, **kwargs: Any) -> Any:
    """What PyTorch's dispatcher calls for `scaled_dot_product_attention` on simulated cards, before it takes it apart."""
    with torch._C._DisableTorchDispatch():
        return _native(active_machine(), None, args, kwargs)


def _native(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """(batch..., heads, sequence, size) in and out; the result is laid out as fused kernels leave it."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    mask, is_causal = given.get("attn_mask"), bool(given.get("is_causal", False))
    if mask is not None and is_causal:
        raise RuntimeError("scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True")
    tensors = [adopt(item) for item in (given["query"], given["key"], given["value"], mask) if item is not None]
    key = ("sdpa", is_causal, *[tensor.sim_signature for tensor in tensors])
    planned = machine.plans.get(key)
    if planned is None:
        planned = machine.plans[key] = _plan_native(machine, tensors, is_causal)
    return _run(machine, "scaled_dot_product_attention", planned, tensors[0])


def _plan_native(machine: Machine, tensors: list[SimulatedTensor], is_causal: bool) -> Planned:
    query, key, value = tensors[:3]
    mask_bytes = tensors[3].numel() * tensors[3].element_size() if len(tensors) > 3 else 0
    batch = query.shape[:-3].numel() if query.dim() > 3 else 1
    heads = query.shape[-3] if query.dim() > 2 else 1
    call = AttentionCall(
        batch=batch,
        heads=heads,
        queries=query.shape[-2],
        keys=key.shape[-2],
        key_heads=key.shape[-3] if key.dim() > 2 else 1,
        head_size=query.shape[-1],
        value_size=value.shape[-1],
        dtype=query.dtype,
        is_causal=is_causal,
        mask_bytes=mask_bytes,
    )
    backend = native_backend(call, machine.sheet.compute_capability) if query.dim() == 4 else "_native_math"
    size = (*query.shape[:-1], value.shape[-1])
    stride = torch.empty(size, device="meta").stride()
    if backend != "_native_math":
        width, length = size[-1], size[-2]
        stride = (heads * length * width, width, heads * width, 1)
    index = result_index(machine, "scaled_dot_product_attention", {}, list(tensors))
    return index, attention_charge(machine, call, backend), size, stride


def _named(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`paretune::attention`: (batch, sequence, heads, size) in and out, any backend of the catalogue."""
    query, key, value, mask, backend, is_causal = args[:6]
    tensors = [adopt(item) for item in (query, key, value, mask) if item is not None]
    signature = (backend, bool(is_causal), *[tensor.sim_signature for tensor in tensors])
    planned = machine.plans.get(signature)
    if planned is None:
        planned = machine.plans[signature] = _plan_named(machine, tensors, backend, bool(is_causal))
    return _run(machine, f"attention ({backend})", planned, tensors[0])


def _plan_named(machine: Machine, tensors: list[SimulatedTensor], backend: str, is_causal: bool) -> Planned:
    query, key, value = tensors[:3]
    call = AttentionCall(
        batch=query.shape[0],
        heads=query.shape[2],
        queries=query.shape[1],
        keys=key.shape[1],
        key_heads=key.shape[2],
        head_size=query.shape[3],
        value_size=value.shape[3],
        dtype=query.dtype,
        is_causal=is_causal,
        mask_bytes=tensors[3].numel() * tensors[3].element_size() if len(tensors) > 3 else 0,
    )
    chosen = native_backend(call, machine.sheet.compute_capability) if backend == "native" else backend
    size = (*query.shape[:3], value.shape[3])
    index = result_index(machine, f"attention ({backend})", {}, list(tensors))
    return index, attention_charge(machine, call, chosen), size, torch.empty(size, device="meta").stride()


def _run(machine: Machine, operator: str, planned: Planned, query: SimulatedTensor) -> SimulatedTensor:
    index, charge, size, stride = planned
    machine.operator = operator
    machine.num_operators += 1
    machine.operators[operator] += 1
    if index < 0:
        host_work(machine, charge.host_s)
    else:
        launch(machine.cards[index], charge.kernel_s, charge.host_s)
    nbytes = torch.Size(size).numel() * query.element_size()
    result = make_tensor(Storage(machine, index, nbytes), query.dtype, size, stride)
    if index >= 0 and charge.workspace_bytes:
        machine.cards[index].workspace(charge.workspace_bytes, machine.component)
    return result


SPECIAL[torch.ops.aten.scaled_dot_product_attention.default] = _native
SPECIAL[torch.ops.paretune.attention.default] = _named
