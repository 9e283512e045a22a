"""Let a linear layer hold its weight packed, and unpack it for the length of each use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.override import Specialised
from paretune.strategies.mechanics.packing_formats import FORMATS, Packed, dequantize
from paretune.strategies.mechanics.read_only import ReadOnly

__all__ = ["num_bytes", "pack_layers"]

_PARTS = ("weight_codes", "weight_scales", "weight_offsets")


def pack_layers(layers: Mapping[str, nn.Linear], name: str, *, has_data: bool, undo: Undo) -> None:
    """Replace each layer's weight parameter by packed ones; ``layer.weight`` reads as the unpacked matrix,
    which cannot be written to.

    The layer stays the same object, with its hooks and its bias. Layers that shared a weight share the packed one. Undo
    gives the very parameters back. Without data only the sizes are made.
    """
    special, packed = Specialised(undo), dict[int, list[nn.Parameter]]()
    for layer in layers.values():
        weight = layer.weight
        if id(weight) not in packed:
            parts = _pack(weight.detach(), name, has_data=has_data)
            packed[id(weight)] = [nn.Parameter(part, requires_grad=False) for part in parts]
        _swap_parameters(layer, packed[id(weight)], undo)
        special.apply(layer, forward=_forward, weight=property(_weight), paretune_format=name)
        layer.__dict__["paretune_dtype"] = weight.dtype
        undo(partial(layer.__dict__.pop, "paretune_dtype"))


def num_bytes(layers: Mapping[str, nn.Linear]) -> int:
    """Bytes of the layers' parameters, shared ones once."""
    parameters = {id(p): p for layer in layers.values() for p in layer.parameters(recurse=False)}
    return sum(p.numel() * p.element_size() for p in parameters.values())


def _pack(weight: torch.Tensor, name: str, *, has_data: bool) -> Packed:
    chosen = FORMATS[name]
    if not has_data or chosen.pack is None:
        return chosen.empty(weight)
    return chosen.pack(weight)


def _swap_parameters(layer: nn.Linear, parts: list[nn.Parameter], undo: Undo) -> None:
    own = layer._parameters
    before = dict(own)

    def restore() -> None:
        own.clear()
        own.update(before)

    own.clear()
    undo(restore)
    own.update(zip(_PARTS, parts, strict=True))
    own.update({name: parameter for name, parameter in before.items() if name != "weight"})


def _weight(self: Any) -> torch.Tensor:
    matrix = _unpacked(self)
    return matrix.as_subclass(ReadOnly) if type(matrix) is torch.Tensor else matrix


def _unpacked(self: Any) -> torch.Tensor:
    codes, scales, offsets = (getattr(self, part) for part in _PARTS)
    matrix: torch.Tensor = dequantize(codes, scales, offsets, self.paretune_format, self.paretune_dtype)
    return matrix


def _forward(self: Any, input: torch.Tensor) -> torch.Tensor:
    return functional.linear(input, _unpacked(self), self.bias)
