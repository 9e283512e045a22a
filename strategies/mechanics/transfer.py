"""Move tensors between host and device: the one place that knows about pinning, streams, ties and flat buffers."""

from __future__ import annotations

import torch

from paretune.strategies.base import Undo

__all__ = ["move_module"]


def move_module(module: torch.nn.Module, device: torch.device, undo: Undo) -> None:
    """Move every parameter and buffer to ``device``; undo moves back only what was moved.

    The host copies are let go, as ``Module.to`` does, so a resident model is not held twice. Parameters keep their
    identity, hence ties between parameters survive; buffers that were one tensor stay one tensor.
    """
    moved: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            if parameter.device != device:
                _move_parameter(parameter, device, undo)
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.device != device:
                _move_buffer(owner, name, device, moved)
                undo(lambda owner=owner, name=name, home=buffer.device: _move_buffer(owner, name, home, moved))


def _move_parameter(parameter: torch.nn.Parameter, device: torch.device, undo: Undo) -> None:
    home = parameter.device
    parameter.data = parameter.data.to(device)
    undo(lambda: setattr(parameter, "data", parameter.data.to(home)))


def _move_buffer(owner: torch.nn.Module, name: str, device: torch.device, moved: dict[int, torch.Tensor]) -> None:
    buffer = owner._buffers[name]
    assert buffer is not None
    if id(buffer) not in moved:
        moved[id(buffer)] = buffer.to(device)
    owner._buffers[name] = moved[id(buffer)]
