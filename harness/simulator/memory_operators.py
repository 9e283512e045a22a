"""Operators about memory itself: views by hand, new storages, aliases."""

from __future__ import annotations

from typing import Any

import torch

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.dispatch import SPECIAL
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.tensor import SimulatedTensor, extent_bytes, make_tensor, signature_of

__all__: list[str] = []

aten = torch.ops.aten


def _device(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    return torch.device("sim", args[0].sim_storage.index) if args[0].sim_storage.index >= 0 else torch.device("cpu")


def _lift(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(...)` hands its fresh ordinary tensor in through here."""
    return adopt(args[0])


def _alias(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`detach` and `alias`: the same memory under a new tensor."""
    base = adopt(args[0])
    size, stride, offset = tuple(base.shape), base.stride(), int(base.storage_offset())
    return make_tensor(
        base.sim_storage, base.dtype, size, stride, offset=offset, signature=base.sim_signature, value=base.sim_value
    )


def _as_strided(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base = adopt(args[0])
    size, stride = tuple(args[1]), tuple(args[2])
    asked = args[3] if len(args) > 3 else kwargs.get("storage_offset")
    offset = int(base.storage_offset()) if asked is None else int(asked)
    needed = extent_bytes(size, stride, base.element_size()) + offset * base.element_size()
    if needed > base.sim_storage.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{base.element_size()} requiring a storage size of {needed} are out of bounds for storage of size "
            f"{base.sim_storage.nbytes}"
        )
    value = None if base.sim_value is None else base.sim_value.as_strided(size, stride, offset)
    return make_tensor(base.sim_storage, base.dtype, size, stride, offset=offset, value=value)


def _set_source(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.set_(y)`: the tensor takes over another one's memory."""
    target, source = args[0], adopt(args[1])
    machine.spoil()
    torch._C.TensorBase.data.__set__(target, source)  # type: ignore[attr-defined]
    target.sim_storage, target.sim_value = source.sim_storage, source.sim_value
    target.sim_signature = source.sim_signature
    return target


def _resize_(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.resize_(size)`: grows the storage when needed, contents are not kept."""
    tensor, size = args[0], tuple(args[1])
    stride = torch.empty(size, device="meta").stride()
    needed = extent_bytes(size, stride, tensor.element_size())
    storage = tensor.sim_storage
    machine.spoil()
    if needed > storage.nbytes:
        storage.resize(needed)
    storage.values_lost = True
    shell = make_tensor(storage, tensor.dtype, size, stride, offset=tensor.storage_offset())
    torch._C.TensorBase.data.__set__(tensor, shell)  # type: ignore[attr-defined]
    tensor.sim_value = None
    tensor.sim_signature = signature_of(tensor.dtype, size, stride, storage.index)
    return tensor


def _record_stream(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    SimulatedTensor.record_stream(args[0], args[1])


SPECIAL.update(
    {
        torch.ops.prim.device.default: _device,
        aten.lift_fresh.default: _lift,
        aten.lift.default: _lift,
        aten.detach.default: _alias,
        aten.alias.default: _alias,
        aten.as_strided.default: _as_strided,
        aten.set_.source_Tensor: _set_source,
        aten.resize_.default: _resize_,
        aten.record_stream.default: _record_stream,
    }
)
