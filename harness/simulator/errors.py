"""What the simulation says when it is asked for something it cannot know: the operator, the module, and what to do."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from paretune.harness.simulator.tensor import SimulatedTensor
from paretune.strategies.errors import Unsupported

if TYPE_CHECKING:
    import torch

    from paretune.harness.simulator.machine import Machine
    from paretune.harness.simulator.storage import Storage

__all__ = [
    "CannotInfer",
    "NoValue",
    "missing_value",
    "no_bytes",
    "read_below",
    "require_value",
    "unsupported",
    "wants_data",
]

_WANTS_DATA = ("data is not allocated yet", "doesn't have storage", "on meta tensors", "out of meta tensor")
"""What PyTorch says when code of its own reads the data of a tensor that has none."""


class NoValue(Unsupported):
    """A program asked for the value of a simulated tensor that has none."""


class CannotInfer(Unsupported):
    """An operator whose output shape the simulation cannot infer."""


def missing_value(machine: Machine, operator: Any, tensor: SimulatedTensor) -> NoValue:
    """The error for a value that does not exist."""
    return NoValue(
        f"{operator} in module {_module(machine)} needs the values of a tensor of shape {tuple(tensor.shape)} ({tensor.dtype}, "
        f"{tensor.device}), but simulated tensors carry no data. Results that depend on values cannot be simulated: "
        "ask the pipeline for tensors (output_type='pt' or 'latent'), or switch the check off."
    )


def require_value(tensor: SimulatedTensor, operator: Any) -> torch.Tensor:
    """The tensor's real values; raises `NoValue` where there are none."""
    if tensor.sim_value is None or tensor.sim_storage.values_lost:
        raise missing_value(tensor.sim_storage.machine, operator, tensor)
    tensor.sim_storage.machine.spoil()
    return tensor.sim_value


def no_bytes(storage: Storage, operator: str) -> NoValue:
    """The error for bytes that do not exist."""
    return NoValue(
        f"{operator} in module {_module(storage.machine)} reads {storage.nbytes} bytes, but simulated memory is only counted. "
        "Save and hash what a real device computes."
    )


def wants_data(error: BaseException) -> bool:
    """Whether PyTorch itself refused because it had to read data that do not exist."""
    return not isinstance(error, Unsupported) and any(words in str(error) for words in _WANTS_DATA)


def read_below(machine: Machine, module: object, error: BaseException) -> NoValue:
    """The error for data that were read past the dispatcher, where only the line of code can say by which operator."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return NoValue(
        f"`{frame.line}` ({frame.filename}, line {frame.lineno}) in module {machine.name_of(module) or '(none)'} reads the "
        "data of a tensor, but simulated tensors carry none. Results that depend on values cannot be simulated: switch the "
        "check off, or run this plan on a real device."
    )


def unsupported(machine: Machine, operator: Any, why: BaseException) -> CannotInfer:
    """The error for an operator without shape inference."""
    text = str(why).splitlines()[0][:300] if str(why) else type(why).__name__
    return CannotInfer(
        f"{operator} in module {_module(machine)} cannot be simulated: its output cannot be inferred without data ({text}). "
        "Give the operator a meta (fake) implementation, or run this plan on a real device."
    )


def _module(machine: Machine) -> str:
    return machine.name_of(machine.module) or "(none)"
