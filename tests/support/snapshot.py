"""Everything that must be the same after a plan is undone, as values that compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Snapshot", "snapshot"]

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


@dataclass(frozen=True)
class Snapshot:
    """``structure`` compares with ==, ``values`` bit by bit."""

    structure: dict[str, Any]
    values: dict[str, torch.Tensor]

    def differences(self, other: Snapshot) -> list[str]:
        """Names of what differs, with both sides."""
        names = sorted({*self.structure, *other.structure})
        found = [
            f"{name}: {self.structure.get(name)!r} -> {other.structure.get(name)!r}"
            for name in names
            if self.structure.get(name) != other.structure.get(name)
        ]
        for name, value in self.values.items():
            after = other.values.get(name)
            if after is None or not _same_bytes(value, after):
                found.append(f"{name}: values differ")
        return found


def snapshot(model: nn.Module) -> Snapshot:
    """Look at every module and every tensor registered in it; tensors are copied, the rest is kept as identities."""
    structure: dict[str, Any] = {}
    values: dict[str, torch.Tensor] = {}
    storages: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        structure[f"{name}:class"] = type(module)
        structure[f"{name}:forward"] = getattr(module.forward, "__func__", module.forward)
        structure[f"{name}:attributes"] = sorted(vars(module))
        structure[f"{name}:hooks"] = {kind: list(getattr(module, kind)) for kind in _HOOKS if getattr(module, kind)}
        structure[f"{name}:not persistent"] = sorted(module._non_persistent_buffers_set)
        structure[f"{name}:training"] = module.training
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            path = f"{name}.{key}"
            structure[path] = None if tensor is None else _facts(tensor, path, storages)
            if tensor is not None:
                values[path] = tensor.detach().clone()
    return Snapshot(structure, values)


def _facts(tensor: torch.Tensor, path: str, storages: dict[int, str]) -> dict[str, Any]:
    return {
        "identity": id(tensor),
        "class": type(tensor),
        "device": tensor.device,
        "dtype": tensor.dtype,
        "size": tuple(tensor.shape),
        "stride": tensor.stride(),
        "requires_grad": tensor.requires_grad,
        "shares memory with": storages.setdefault(tensor.untyped_storage()._cdata, path),
    }


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor.cpu()
