"""Execute one operator on the simulated machine: infer its outputs, count its memory, submit its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.compiling import FUSED_SHARE, HOST_SHARE, is_compiled
from paretune.harness.simulator.costs import Charge, charge_for
from paretune.harness.simulator.errors import unsupported, wants_data
from paretune.harness.simulator.inference import Inferred, Output, infer, rebuild
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import result_index
from paretune.harness.simulator.registration import active_machine_or_none
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor
from paretune.harness.simulator.timeline import host_work, launch

__all__ = ["KEEP_VALUES_NUMEL", "SPECIAL", "dispatch", "execute"]

KEEP_VALUES_NUMEL = 1 << 16
"""Tensors of at most so many elements keep real values as long as everything they come from has them."""

SPECIAL: dict[Any, Callable[[Machine, Any, tuple[Any, ...], dict[str, Any]], Any]] = {}
"""Operators that need more than shapes: copies, values, memory management. Filled by the modules that own them."""

_UNKNOWN: Any = object()
_handlers: dict[int, Any] = {}
"""`SPECIAL` by the operator's identity: operators live as long as the process, and their hash is slow."""
_inferred: dict[tuple[Any, ...], Inferred] = {}
_default_dtype = torch.get_default_dtype
_HOST = torch.device("cpu")


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Entry from PyTorch's dispatcher, from the mode and from the tensors alike."""
    machine = active_machine_or_none() or _machine_of(args, kwargs)
    if machine.on_next is not None:
        machine.on_next()
    machine.operator = func
    number = id(func)
    handler = _handlers.get(number, _UNKNOWN)
    if handler is _UNKNOWN:
        handler = _handlers[number] = SPECIAL.get(func)
    if handler is not None:
        if args and isinstance(args[0], torch.Tensor) and type(args[0]) is not SimulatedTensor and args[0].is_meta:
            return func(*args, **kwargs)
        return handler(machine, func, args, kwargs)
    return execute(machine, func, args, kwargs)


def execute(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator by its signature; values are computed for real where all inputs have them and the result is small."""
    key: list[Any] = [id(func), _default_dtype()]
    tensors: list[Any] = []
    has_values = _collect(args, key, tensors)
    if kwargs:
        for name, item in kwargs.items():
            key.append(name)
            has_values = _collect((item,), key, tensors) and has_values
    plan_key = tuple(key)
    plan = machine.plans.get(plan_key)
    if plan is None:
        asked = kwargs.get("device")
        asked_type = None if asked is None else torch.device(asked).type
        if asked_type == "meta":
            return func(*args, **kwargs)
        ordinary = [tensor for tensor in tensors if type(tensor) is not SimulatedTensor]
        if ordinary and (asked_type is None or not all(tensor.is_meta for tensor in ordinary)):
            return _with_ordinary(machine, func, args, kwargs)
        plan = machine.plans[plan_key] = _plan(machine, func, args, kwargs, tensors, plan_key)
        if plan is None:
            del machine.plans[plan_key]
            return func.decompose(*args, **kwargs)
    inferred, charge = plan
    if has_values and inferred.largest <= KEEP_VALUES_NUMEL:
        return _compute(machine, func, args, kwargs, tensors, plan)
    _submit(machine, inferred, charge)
    return _outputs(machine, inferred, charge, tensors)


def _outputs(machine: Machine, inferred: Inferred, charge: Charge, tensors: list[Any]) -> Any:
    index = inferred.index
    for position in inferred.written:
        storage = tensors[position].sim_storage
        storage.values_lost = True
        if machine.recorder is not None:
            machine.recorder.writes(storage)
    if inferred.layout is None:
        result = _one(machine, inferred.outputs[0], tensors, index)
    else:
        result = rebuild(inferred, [_one(machine, output, tensors, index) for output in inferred.outputs])
    if charge.workspace_bytes and index >= 0:
        machine.cards[index].workspace(charge.workspace_bytes, machine.component)
    return result


def _one(machine: Machine, output: Output, tensors: list[Any], index: int) -> Any:
    alias = output.alias
    if alias is None:
        storage = Storage(machine, index, output.nbytes, pinned=output.is_pinned)
        return make_tensor(storage, output.dtype, output.size, output.stride, signature=output.signature)
    base = tensors[alias]
    if output.is_same:
        return base
    offset = base.storage_offset() + output.offset
    storage = base.sim_storage
    return make_tensor(storage, output.dtype, output.size, output.stride, offset=offset, signature=output.signature)


def _submit(machine: Machine, inferred: Inferred, charge: Charge) -> None:
    if not inferred.has_new and not inferred.is_mutable:
        machine.host_s += machine.view_s
        return
    machine.num_operators += 1
    machine.operators[machine.operator] += 1
    if inferred.index >= 0 and charge.kernel_s:
        if charge.uses_cublas:
            machine.cards[inferred.index].need_cublas()
        if is_compiled():
            kernel_s = charge.kernel_s * FUSED_SHARE if charge.is_fusable else charge.kernel_s - charge.conversion_s
            launch(machine.cards[inferred.index], kernel_s, charge.host_s * HOST_SHARE)
        else:
            launch(machine.cards[inferred.index], charge.kernel_s, charge.host_s)
    else:
        host_work(machine, charge.host_s)


def _compute(
    machine: Machine, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Any], plan: tuple[Inferred, Charge]
) -> Any:
    """Run the operator for real on the CPU and wrap what it returns."""
    inferred, charge = plan
    real_kwargs = {name: _real(item) for name, item in kwargs.items()}
    if real_kwargs.get("device") is not None:
        real_kwargs["device"] = _HOST
    if real_kwargs.get("pin_memory"):
        real_kwargs["pin_memory"] = False
    result = func(*[_real(item) for item in args], **real_kwargs)
    values = (
        [result] if inferred.layout is None else [v for v in tree_flatten(result)[0] if isinstance(v, torch.Tensor)]
    )
    _submit(machine, inferred, charge)
    made = []
    for output, value in zip(inferred.outputs, values, strict=True):
        tensor = _one(machine, output, tensors, inferred.index)
        if not output.is_same:
            tensor.sim_value = value
        made.append(tensor)
    if charge.workspace_bytes and inferred.index >= 0:
        machine.cards[inferred.index].workspace(charge.workspace_bytes, machine.component)
    return made[0] if inferred.layout is None else rebuild(inferred, made)


def _real(item: Any) -> Any:
    """An argument with every simulated tensor in it replaced by its value."""
    kind = type(item)
    if kind is SimulatedTensor:
        return item.sim_value
    if kind is list or kind is tuple:
        return kind([_real(inner) for inner in item])
    return item


def _plan(
    machine: Machine, func: Any, args: Any, kwargs: Any, tensors: list[Any], key: tuple[Any, ...]
) -> tuple[Inferred, Charge] | None:
    inferred = _inferred.get(key)
    if inferred is None:
        index = result_index(machine, func, kwargs, tensors)
        try:
            inferred = infer(func, args, kwargs, tensors, index)
        except NotImplementedError as error:
            if func._can_decompose():
                return None
            raise unsupported(machine, func, error) from error
        except torch._subclasses.fake_tensor.DataDependentOutputException as error:
            raise unsupported(machine, func, error) from error
        except RuntimeError as error:
            if wants_data(error):
                raise unsupported(machine, func, error) from error
            raise
        _inferred[key] = inferred
    return inferred, charge_for(machine, func, inferred)


def _collect(items: Any, key: list[Any], tensors: list[Any]) -> bool:
    """Append the arguments to the signature and the tensors to the list; whether every tensor has values."""
    has_values = True
    for item in items:
        kind = type(item)
        if kind is SimulatedTensor:
            key.append(item.sim_signature)
            tensors.append(item)
            if item.sim_value is None or item.sim_storage.values_lost:
                has_values = False
        elif kind is int or item is None:
            key.append(item)
        elif kind is list or kind is tuple:
            key.append(kind)
            has_values = _collect(item, key, tensors) and has_values
            key.append(None)
        elif isinstance(item, torch.Tensor):
            key.append((item.dtype, tuple(item.shape), item.stride(), item.device))
            tensors.append(item)
            has_values = has_values and item.device.type != "meta"
        elif kind is torch.Generator:
            key.append(kind)
        else:
            key.append((kind, item))
    return has_values


def _with_ordinary(machine: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Take ordinary tensors in first; meta tensors stay outside of the simulation."""
    leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    if any(leaf.is_meta for leaf in leaves):
        return func(*args, **kwargs)
    args, kwargs = tree_map_only(torch.Tensor, adopt, (args, kwargs))
    return dispatch(func, args, kwargs)


def _machine_of(args: Any, kwargs: Any) -> Machine:
    for leaf in tree_flatten((args, kwargs))[0]:
        if isinstance(leaf, SimulatedTensor):
            return leaf.sim_storage.machine
    raise RuntimeError("no simulation is active")
