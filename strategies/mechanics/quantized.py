"""Let a linear layer hold its weight packed, and unpack it for the length of each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.override import Specialised
from paretune.strategies.mechanics.packing_formats import dequantize, pack
from paretune.strategies.mechanics.read_only import ReadOnly

__all__ = ["Packer", "Taker", "num_bytes"]

_PARTS = ("weight_codes", "weight_scales", "weight_offsets")


@dataclass(kw_only=True, eq=False)
class Packer:
    """Replaces layers' weight parameters by packed ones; ``layer.weight`` reads as the unpacked matrix,
    which cannot be written to.

    A layer stays the same object, with its hooks and its bias. Undo gives the very parameter back. Without data only
    the sizes are made.
    """

    format_name: str
    has_data: bool
    undo: Undo

    def __post_init__(self) -> None:
        self._special = Specialised(self.undo)

    def pack(self, layers: Mapping[str, nn.Linear]) -> None:
        """Pack each weight where it is; layers that share one share the packed one."""
        together: dict[int, list[nn.Linear]] = {}
        for layer in layers.values():
            together.setdefault(id(layer.weight), []).append(layer)
        for sharing in together.values():
            weight = sharing[0].weight
            packed = pack(weight.detach(), self.format_name, has_data=self.has_data)
            parts = [nn.Parameter(part, requires_grad=False) for part in packed]
            for layer in sharing:
                self._take_over(layer, parts, weight.dtype)

    def _take_over(self, layer: nn.Linear, parts: list[nn.Parameter], dtype: torch.dtype) -> None:
        _swap_parameters(layer, parts, self.undo)
        self._special.apply(layer, forward=_forward, weight=property(_weight), paretune_format=self.format_name)
        layer.__dict__["paretune_dtype"] = dtype
        self.undo(partial(layer.__dict__.pop, "paretune_dtype"))


@dataclass(kw_only=True, eq=False)
class Taker:
    """Takes the weights of ``layers`` from a checkpoint that is being read, and has each packed before the next comes.

    computes_in: the dtype that the wide weights had, or ``dtype`` where it was said.
    """

    layers: Mapping[str, nn.Linear]
    pack: Callable[[dict[str, nn.Linear]], None]
    device: torch.device
    dtype: torch.dtype | None
    computes_in: torch.dtype | None = None

    def __post_init__(self) -> None:
        by_weight: dict[int, dict[str, nn.Linear]] = {}
        for name, layer in self.layers.items():
            by_weight.setdefault(id(layer.weight), {})[f"{name}.weight"] = layer
        self._sharing = {name: sharing for sharing in by_weight.values() for name in sharing}
        self._done: set[str] = set()
        self._weight_bytes = 0

    @property
    def wide_bytes(self) -> int:
        """What the layers would fill if they were not packed."""
        biases = {id(layer.bias): layer.bias for layer in self.layers.values() if layer.bias is not None}
        return self._weight_bytes + sum(bias.numel() * bias.element_size() for bias in biases.values())

    def __call__(self, name: str, stored: torch.Tensor) -> bool:
        """Whether the tensor of this name was a weight to pack; one that layers share is packed when it comes first."""
        sharing = self._sharing.get(name)
        if sharing is None:
            return False
        if name not in self._done:
            self._done |= set(sharing)
            wide = nn.Parameter(stored.to(self.device, self.dtype or stored.dtype), requires_grad=False)
            for layer in sharing.values():
                layer._parameters["weight"] = wide
            self.computes_in = wide.dtype
            self._weight_bytes += wide.numel() * wide.element_size()
            self.pack(sharing)
        return True


def num_bytes(layers: Mapping[str, nn.Linear]) -> int:
    """Bytes of the layers' parameters, shared ones once."""
    parameters = {id(p): p for layer in layers.values() for p in layer.parameters(recurse=False)}
    return sum(p.numel() * p.element_size() for p in parameters.values())


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
