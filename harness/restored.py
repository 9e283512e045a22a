"""Check that undoing a plan really brought every component back to how it was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paretune.strategies.parts import Parts

__all__ = ["differences", "look"]

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks")

Look = Mapping[str, tuple[Any, ...]]


def look(model: Any) -> Look:
    """Class, hooks, own attributes, and placement, type and strides of every tensor, by path; no values."""
    seen: dict[str, tuple[Any, ...]] = {"": (type(model), *sorted(_own_names(model)))}
    for part_name, part in Parts.of(model).modules.items():
        for path, module in part.named_modules(prefix=part_name):
            hooks = tuple(len(getattr(module, name)) for name in _HOOKS)
            seen[path] = (type(module), hooks, "forward" in vars(module), module.training)
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                seen[f"{path}.{name}"] = _describe(tensor)
    return seen


def _own_names(model: Any) -> list[str]:
    return [name for name in vars(model) if not name.startswith("_modules")] if hasattr(model, "__dict__") else []


def _describe(tensor: torch.Tensor | None) -> tuple[Any, ...]:
    if tensor is None:
        return (None,)
    return (str(tensor.device), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad)


def differences(before: Look, after: Look) -> list[str]:
    """One sentence for each path that is not as it was; empty when the model is restored."""
    found = []
    for path in {**before, **after}:
        if before.get(path) != after.get(path):
            found.append(f"{path or 'the pipeline'}: was {before.get(path)}, is {after.get(path)}")
    return found
