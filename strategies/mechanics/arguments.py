"""Bring the tensors among a call's arguments, or in its result, to one device; the rest stays as it is."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["to_device"]


def to_device(value: Any, device: torch.device) -> Any:
    """``value`` with its tensors on ``device``.

    Looks into lists, tuples, named tuples, dicts of any class, dataclasses, and the attributes of plain objects that
    hold tensors (such as a latent distribution). Only containers in which something moves are rebuilt, as shallow
    copies of their own class; sets, generators and everything else are handed on as they are, and so is an empty dict
    that the callee fills.
    """
    return _moved(value, lambda tensor: tensor if tensor.device == device else tensor.to(device))


def _moved(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return move(value)
    if isinstance(value, dict):
        return _rebuilt_dict(value, move)
    if isinstance(value, list | tuple):
        return _rebuilt_sequence(value, move)
    if isinstance(value, torch.nn.Module | type) or callable(value):
        return value
    if dataclasses.is_dataclass(value) or _holds_tensors(value):
        return _rebuilt_object(value, move)
    return value


def _rebuilt_dict(value: dict[Any, Any], move: Callable[[torch.Tensor], torch.Tensor]) -> dict[Any, Any]:
    changed = {key: new for key, old in value.items() if (new := _moved(old, move)) is not old}
    if not changed:
        return value
    result = copy.copy(value)
    for key, new in changed.items():
        result[key] = new
    return result


def _rebuilt_sequence(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    items = [_moved(item, move) for item in value]
    if all(new is old for new, old in zip(items, value)):
        return value
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)


def _rebuilt_object(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    attributes = vars(value) if hasattr(value, "__dict__") else {}
    changed = {name: new for name, old in attributes.items() if (new := _moved(old, move)) is not old}
    if not changed:
        return value
    result = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(result, name, new)
    return result


def _holds_tensors(value: Any) -> bool:
    attributes = getattr(value, "__dict__", None)
    return attributes is not None and any(isinstance(item, torch.Tensor) for item in attributes.values())
