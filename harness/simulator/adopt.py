"""Take ordinary CPU tensors into the simulation: small ones keep their values, large ones keep only their shape."""

from __future__ import annotations

import torch

from paretune.harness.simulator.registration import active_machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, make_tensor

__all__ = ["adopt", "adopt_module"]


def adopt(tensor: torch.Tensor) -> SimulatedTensor:
    """A simulated host tensor with the values of an ordinary one; they are shared, not copied."""
    if isinstance(tensor, SimulatedTensor):
        return tensor
    storage = Storage(active_machine(), -1, tensor.untyped_storage().nbytes())
    value = None if tensor.is_meta else tensor.detach()
    return make_tensor(
        storage, tensor.dtype, tuple(tensor.shape), tensor.stride(), offset=int(tensor.storage_offset()), value=value
    )


def adopt_module(module: torch.nn.Module) -> None:
    """Replace the ordinary parameters and buffers of a module that was built outside of the simulation, ties kept."""
    taken: dict[int, SimulatedTensor] = {}
    for child in module.modules():
        for slots in (child._parameters, child._buffers):
            for name, tensor in slots.items():
                if tensor is not None and not isinstance(tensor, SimulatedTensor):
                    slots[name] = _taken(tensor, taken)  # type: ignore[assignment]


def _taken(tensor: torch.Tensor, taken: dict[int, SimulatedTensor]) -> SimulatedTensor:
    if id(tensor) not in taken:
        made = adopt(tensor)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        taken[id(tensor)] = torch.nn.Parameter(made, tensor.requires_grad) if is_parameter else made  # type: ignore[assignment]
    return taken[id(tensor)]
