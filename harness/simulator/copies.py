"""Operators that move data: between host and cards, into pinned memory, from card to card, or between dtypes."""

from __future__ import annotations

from typing import Any

import torch

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.costs import memory_seconds
from paretune.harness.simulator.dispatch import SPECIAL, execute
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import named_index
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, extent_bytes, make_tensor
from paretune.harness.simulator.timeline import copy_between_cards, copy_over_link, host_work, launch

__all__ = ["pinned_copy", "read_file", "transfer", "write_file"]

aten = torch.ops.aten
_strides: dict[tuple[int, Any], tuple[int, ...]] = {}
"""Strides of copies by the source's signature and the memory format asked for."""


def pinned_copy(tensor: SimulatedTensor) -> SimulatedTensor:
    """A copy in pinned memory; raises `RuntimeError` for tensors that are not on the host."""
    storage = tensor.sim_storage
    if storage.pinned:
        return tensor
    if storage.index >= 0:
        raise RuntimeError(
            f"cannot pin 'torch.{tensor.dtype}' on sim:{storage.index}: only dense CPU tensors can be pinned"
        )
    machine = storage.machine
    size, stride = tuple(tensor.shape), tensor.stride()
    nbytes = extent_bytes(size, stride, tensor.element_size())
    pinned = Storage(machine, -1, nbytes, pinned=True, kind=storage.label[1])
    pinned.relabel(*storage.label)
    host_work(machine, nbytes / machine.host.memcpy_bytes_per_s)
    value = tensor.sim_value.clone() if tensor.sim_value is not None and not storage.values_lost else None
    return make_tensor(pinned, tensor.dtype, size, stride, value=value)


def transfer(source: SimulatedTensor, target: Storage, nbytes: int, *, non_blocking: bool) -> None:
    """Charge the time of moving `nbytes` from one tensor's memory into another storage."""
    machine = target.machine
    _charge_disk(machine, source.sim_storage, target, nbytes)
    start, end = source.sim_storage.index, target.index
    if start < 0 and end < 0:
        host_work(machine, nbytes / machine.host.memcpy_bytes_per_s)
    elif start < 0:
        pinned = source.sim_storage.pinned
        copy_over_link(machine.cards[end], nbytes, to_device=True, pinned=pinned, non_blocking=non_blocking)
    elif end < 0:
        pinned = target.pinned
        copy_over_link(machine.cards[start], nbytes, to_device=False, pinned=pinned, non_blocking=non_blocking)
    elif start != end:
        copy_between_cards(machine.cards[start], machine.cards[end], nbytes)
    else:
        kernel_s = memory_seconds(machine, 2.0 * nbytes) + machine.host.kernel_s
        launch(machine.cards[end], kernel_s, machine.host.eager_operator_s)


def _charge_disk(machine: Machine, source: Storage, target: Storage, nbytes: int) -> None:
    from paretune.harness.simulator.mapped_files import charge_disk

    charge_disk(machine, source, target, nbytes)


def read_file(machine: Machine, nbytes: int) -> None:
    """The host waits for the disk; what was read before is not remembered: weights of this size rarely stay cached."""
    machine.spoil()
    machine.host_s += nbytes / machine.host.disk_read_bytes_per_s
    machine.traffic.disk_read_bytes += nbytes


def write_file(machine: Machine, nbytes: int) -> None:
    """The host waits until the bytes are handed to the disk."""
    machine.spoil()
    machine.host_s += nbytes / machine.host.disk_write_bytes_per_s
    machine.traffic.disk_write_bytes += nbytes


def _to_copy(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source = adopt(args[0])
    index = source.sim_storage.index
    asked = kwargs.get("device")
    if asked is not None and torch.device(asked).type == "meta":
        return torch.empty_strided(
            source.size(), source.stride(), dtype=kwargs.get("dtype") or source.dtype, device="meta"
        )
    target = index if asked is None else named_index(machine, asked)
    non_blocking = bool(kwargs.get("non_blocking", False))
    dtype = kwargs.get("dtype")
    converts = dtype is not None and dtype != source.dtype
    if target == index:
        plain = {name: item for name, item in kwargs.items() if name in ("dtype", "memory_format") and item is not None}
        return execute(machine, func, (source,), plain)
    if converts:
        source = execute(machine, func, (source,), {"dtype": dtype})
    size = tuple(source.shape)
    stride = _stride_of_copy(source, kwargs.get("memory_format"))
    storage = Storage(machine, target, extent_bytes(size, stride, source.element_size()))
    if target < 0 and kwargs.get("pin_memory"):
        raise RuntimeError("pin_memory in a device copy is not supported; call .pin_memory() on the host tensor")
    transfer(source, storage, storage.nbytes, non_blocking=non_blocking)
    value = source.sim_value
    if value is not None and not source.sim_storage.values_lost:
        return make_tensor(storage, source.dtype, size, stride, value=value.clone())
    return make_tensor(storage, source.dtype, size, stride)


def _stride_of_copy(source: SimulatedTensor, memory_format: Any) -> tuple[int, ...]:
    """Strides of a copy: dense inputs keep theirs, others become contiguous, an explicit format wins."""
    key = (source.sim_signature, memory_format)
    stride = _strides.get(key)
    if stride is None:
        shell = torch.empty_strided(tuple(source.shape), source.stride(), dtype=source.dtype, device="meta")
        stride = torch.empty_like(shell, memory_format=memory_format or torch.preserve_format).stride()
        _strides[key] = stride
    return stride


def _copy_(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, source = args[0], args[1]
    non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
    if not isinstance(source, SimulatedTensor):
        source = adopt(source)
    if not isinstance(target, SimulatedTensor):
        return _copy_into_ordinary(target, source)
    if target.sim_storage.index == source.sim_storage.index:
        _charge_disk(machine, source.sim_storage, target.sim_storage, source.numel() * source.element_size())
        return execute(machine, func, (target, source), {})
    if target.dtype != source.dtype and source.sim_storage.index >= 0:
        source = execute(machine, aten._to_copy.default, (source,), {"dtype": target.dtype})
    transfer(source, target.sim_storage, source.numel() * source.element_size(), non_blocking=non_blocking)
    has_values = source.sim_value is not None and not source.sim_storage.values_lost
    if has_values and target.sim_value is not None:
        target.sim_value.copy_(source.sim_value)
    else:
        target.sim_storage.values_lost = True
    return target


def _copy_into_ordinary(target: torch.Tensor, source: SimulatedTensor) -> torch.Tensor:
    from paretune.harness.simulator.errors import require_value

    return target.copy_(require_value(source, aten.copy_.default))


def _pin_memory(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return pinned_copy(adopt(args[0]))


def _is_pinned(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return isinstance(args[0], SimulatedTensor) and args[0].sim_storage.pinned


def _empty(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A factory; ``pin_memory=True`` takes page-locked host memory, without a pageable copy before it."""
    plain = {name: item for name, item in kwargs.items() if name != "pin_memory"}
    if not kwargs.get("pin_memory"):
        return execute(machine, func, args, plain)
    if kwargs.get("device") is not None and named_index(machine, kwargs["device"]) >= 0:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    shell = func(*args, **{**plain, "device": torch.device("meta")})
    size, stride = tuple(shell.shape), shell.stride()
    storage = Storage(machine, -1, extent_bytes(size, stride, shell.element_size()), pinned=True)
    return make_tensor(storage, shell.dtype, size, stride)


SPECIAL.update(
    {
        aten.empty.memory_format: _empty,
        aten._to_copy.default: _to_copy,
        aten.copy_.default: _copy_,
        aten._pin_memory.default: _pin_memory,
        aten.is_pinned.default: _is_pinned,
    }
)
