"""Decide on which device an operator runs, and refuse mixtures exactly where a GPU would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.tensor import SimulatedTensor

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["index_of", "named_index", "result_index"]

aten = torch.ops.aten
_INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operators whose index tensors may live on the host."""


def index_of(tensor: torch.Tensor) -> int:
    """The card's index of a tensor, -1 for the host."""
    return tensor.sim_storage.index if isinstance(tensor, SimulatedTensor) else -1


def named_index(machine: Machine, device: Any) -> int:
    """The index that an explicit device means; raises `RuntimeError` for a card that is not there."""
    device = torch.device(device)
    if device.type == "cpu":
        return -1
    if device.type == "sim":
        return machine.card(device).index
    raise RuntimeError(f"device {device} does not exist in a simulation: tensors live on 'sim' or 'cpu'")


def result_index(machine: Machine, func: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> int:
    """The device of the result; raises `RuntimeError` when tensors of different devices meet."""
    if kwargs.get("device") is not None:
        return named_index(machine, kwargs["device"])
    if not tensors:
        return -1
    if func in _INDEXING:
        return index_of(tensors[0])
    sized = {index_of(tensor) for tensor in tensors if tensor.dim() > 0}
    if len(sized) > 1:
        raise _mixed(machine, func, sized)
    scalars = {index_of(tensor) for tensor in tensors}
    if not sized:
        return max(scalars)
    index = next(iter(sized))
    if index == -1 and max(scalars) >= 0:
        raise _mixed(machine, func, scalars)
    return index


def _mixed(machine: Machine, func: Any, indices: set[int]) -> RuntimeError:
    names = " and ".join("cpu" if index < 0 else f"sim:{index}" for index in sorted(indices, reverse=True))
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {names}! "
        f"(operator {func} in module {machine.name_of(machine.module) or 'none'})"
    )
