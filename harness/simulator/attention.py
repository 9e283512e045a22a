"""Charge scaled dot product attention as one kernel, chosen as CUDA would choose it, and let `torch.tensor` reach the device."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.attention_cost import attention_charge, native_family
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import result_index
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor
from paretune.harness.simulator.timeline import host_work, launch

__all__ = ["AttentionMode", "attend"]

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_FACTORIES = {torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor}


class AttentionMode(TorchFunctionMode):
    """Catches the few functions that PyTorch takes apart before a dispatch mode sees them."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return _intercepted(self._machine, args, kwargs or {})
        if func in _FACTORIES and kwargs:
            return _on_device(func, args, kwargs)
        if func is torch._has_compatible_shallow_copy_type and _is_ordinary(args[0]) != _is_ordinary(args[1]):
            return False
        if func is _SET_DATA and _is_ordinary(args[0]) and not _is_ordinary(args[1]):
            return _take_over(args[0], args[1])
        return func(*args, **kwargs) if kwargs else func(*args)


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


def _intercepted(machine: Machine, args: Any, kwargs: dict[str, Any]) -> Any:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if not any(isinstance(given[name], SimulatedTensor) for name in names[:3]):
        return F.scaled_dot_product_attention(*args, **kwargs)
    mask = given.get("attn_mask")
    is_causal = bool(given.get("is_causal", False))
    if mask is not None and is_causal:
        raise RuntimeError("scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True")
    tensors = [adopt(item) for item in (given["query"], given["key"], given["value"], mask) if item is not None]
    return attend(machine, tensors, family=native_family(machine, tensors), is_causal=is_causal)


def _stride_like(query: SimulatedTensor, size: tuple[int, ...]) -> tuple[int, ...]:
    """Fused kernels compute in (batch, sequence, heads, size) and return a transposed view of it."""
    if query.dim() != 4:
        return torch.empty(size, device="meta").stride()
    batch, heads, length, width = size
    return (heads * length * width, width, heads * width, 1)


def _on_device(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != "sim":
        return func(*args, **kwargs)
    rest = {name: item for name, item in kwargs.items() if name not in ("device", "pin_memory")}
    return func(*args, **rest).to(device)


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return not isinstance(tensor, SimulatedTensor)


def _take_over(ordinary: torch.Tensor, value: torch.Tensor) -> None:
    """`ordinary.data = simulated`: the ordinary tensor, wherever it is referred to, becomes a simulated one."""
    made: torch.Tensor = value.detach()
    if isinstance(ordinary, torch.nn.Parameter):
        made = torch.nn.Parameter(made, ordinary.requires_grad)
    torch.utils.swap_tensors(ordinary, made)
