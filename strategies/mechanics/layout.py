"""Store parameters with channels innermost, chosen tensor by tensor, and put back exactly the strides they had."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from paretune.strategies.base import Undo

__all__ = ["FORMATS", "restride"]

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory format for tensors of so many dimensions; torch refuses each for every other rank."""


def restride(model: nn.Module, formats: Mapping[int, torch.memory_format], undo: Undo) -> list[str]:
    """Give every parameter whose rank ``formats`` names that memory format; the names of those that are in it now.

    Undo gives each the strides it had. A parameter that was in the format already is counted and left alone.
    """
    reached: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        wanted = formats.get(parameter.dim())
        if wanted is None or hasattr(parameter, "__tensor_flatten__"):
            continue
        if not parameter.is_contiguous(memory_format=wanted):
            _restride_one(parameter, wanted, undo)
        reached[id(parameter)] = name
    return list(reached.values())


def _restride_one(parameter: nn.Parameter, wanted: torch.memory_format, undo: Undo) -> None:
    strides = parameter.stride()
    parameter.data = parameter.data.contiguous(memory_format=wanted)
    undo(lambda: setattr(parameter, "data", _with_strides(parameter.data, strides)))


def _with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    room = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return room.copy_(tensor)
