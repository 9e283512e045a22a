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
    """Class, our hooks, and placement, type and strides of every tensor, by path; no values.

    What a pipeline or a library leaves behind by itself when it is called (attributes, hooks of its own) is not a plan's.
    """
    seen: dict[str, tuple[Any, ...]] = {"": (type(model),)}
    for part_name, part in Parts.of(model).modules.items():
        for path, module in part.named_modules(prefix=part_name):
            seen[path] = (type(module), _our_hooks(module), "forward" in vars(module), module.training)
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                seen[f"{path}.{name}"] = _describe(tensor)
    return seen


def _our_hooks(module: torch.nn.Module) -> int:
    hooks = [hook for kind in _HOOKS for hook in getattr(module, kind).values()]
    return sum(1 for hook in hooks if str(getattr(hook, "__module__", "")).startswith("paretune."))


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
