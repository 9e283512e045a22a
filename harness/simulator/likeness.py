"""When two modules are sure to do the same with inputs of the same shapes: blocks that repeat within a model.

Alike are modules of the same classes with equal settings over parameters of equal geometry on the same devices. Whatever is not
understood (a hook that acts, a replaced `forward`, a tensor that the simulation does not own, an object with hidden state) has
no likeness.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.nn.modules import module as global_hooks

from paretune.harness.simulator.calls import PLAIN, tensor_signature
from paretune.harness.simulator.tensor import SimulatedTensor

__all__ = ["likeness"]

_OWN = frozenset(torch.nn.Module().__dict__) | {"_is_hf_initialized"}
"""What every module has: looked at one by one here, or only about loading and saving."""
_OWN_GLOBAL_HOOKS = 1
"""The simulation's, which follows the running module."""
_DEPTH = 4


class _Plain:
    """An object whose whole state is its `__dict__`."""


class _Unknown(Exception):
    """Something in a module that could make it differ from its twin unseen."""


def likeness(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """A hashable value that twins share; `None` for a module that may do more than its class and settings say."""
    hooks = global_hooks._global_forward_hooks, global_hooks._global_forward_pre_hooks
    if any(len(registered) > _OWN_GLOBAL_HOOKS for registered in hooks):
        return None
    parts: list[Any] = []
    try:
        _add_module(module, parts)
    except _Unknown:
        return None
    return tuple(parts)


def _add_module(module: torch.nn.Module, parts: list[Any]) -> None:
    held, kind = module.__dict__, type(module)
    before, after = held["_forward_pre_hooks"], held["_forward_hooks"]
    if before or after:
        _check_hooks(module, (*before.values(), *after.values()))
    if "forward" in held or not _has_own_code_only(kind.forward):
        raise _Unknown
    parts += (kind, held["training"], len(before), len(after))
    for slots in (held["_parameters"], held["_buffers"]):
        for name, tensor in slots.items():
            parts += (name, None if tensor is None else _tensor(tensor))
    for name, value in held.items():
        if name not in _OWN:
            parts += (name, _setting(value, _DEPTH))
    for name, child in held["_modules"].items():
        parts.append(name)
        if child is not None:
            _add_module(child, parts)
    parts.append(None)


def _check_hooks(module: torch.nn.Module, hooks: Iterable[Any]) -> None:
    """A hook may say by an attribute `is_neutral` that it leaves nothing behind when it runs around this module now."""
    for hook in hooks:
        is_neutral = getattr(hook, "is_neutral", None)
        if is_neutral is None or not is_neutral(module):
            raise _Unknown


def _tensor(tensor: Any) -> Any:
    if not isinstance(tensor, SimulatedTensor):
        raise _Unknown
    return tensor_signature(tensor)


def _setting(value: Any, depth: int) -> Any:
    """A value that compares equal exactly if the setting does."""
    if isinstance(value, PLAIN):
        return (type(value), value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, type | BuiltinFunctionType | enum.Enum) or _is_configuration(value):
        return (id(value),)
    if isinstance(value, FunctionType) and _has_own_code_only(value):
        return (id(value),)
    if depth == 0 or isinstance(value, torch.nn.Module):
        raise _Unknown
    if isinstance(value, list | tuple | set | frozenset):
        return (type(value), *(_setting(item, depth - 1) for item in value))
    if isinstance(value, Mapping):
        return (type(value), *((_setting(key, 0), _setting(item, depth - 1)) for key, item in value.items()))
    if type(value).__basicsize__ != _Plain.__basicsize__ or type(value).__itemsize__ or not hasattr(value, "__dict__"):
        raise _Unknown
    return (type(value), _setting(vars(value), depth - 1))


def _is_configuration(value: Any) -> bool:
    """Settings that the blocks of a model share as one object, which both libraries never change while a model runs."""
    return type(value).__name__.endswith(("Config", "FrozenDict"))


@functools.lru_cache(maxsize=4096)
def _has_own_code_only(function: Any) -> bool:
    """Whether a function keeps no state in what it encloses: other functions and classes at most."""
    seen, waiting = set[int](), [function]
    while waiting:
        found = waiting.pop()
        if isinstance(found, type) or id(found) in seen:
            continue
        if not isinstance(found, FunctionType):
            return False
        seen.add(id(found))
        try:
            waiting += [cell.cell_contents for cell in found.__closure__ or ()]
        except ValueError:  # a cell that is not filled yet
            return False
    return True
