"""See a module's parameters and buffers as stretches of storage, so that tied tensors and views have one owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

__all__ = [
    "ALIGNMENT_BYTES",
    "Cell",
    "Look",
    "aligned",
    "cells_of",
    "is_opaque",
    "own_tensors",
    "owners_of",
    "version_of",
]

ALIGNMENT_BYTES = 256
"""Where tensors may start inside a flat buffer: what vectorised kernels want, and a multiple of every element size."""


def aligned(num_bytes: int) -> int:
    """``num_bytes`` rounded up to the alignment."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def is_opaque(tensor: torch.Tensor) -> bool:
    """Whether a tensor is more than one stretch of storage (quantised weights of torchao, bitsandbytes).

    Such tensors know themselves how to move; they are moved with their own ``to`` and never laid into flat buffers.
    """
    return hasattr(tensor, "__tensor_flatten__") or type(tensor).to is not torch.Tensor.to


def version_of(tensor: torch.Tensor) -> int:
    """Counts in-place writes; tensors made under inference mode do not count theirs, and answer 0."""
    return 0 if tensor.is_inference() else tensor._version


def own_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """The parameters and buffers registered on this very module, those of its children excluded."""
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None:
            yield tensor


def owners_of(module: nn.Module) -> list[nn.Module]:
    """Every module inside (itself included) that has tensors of its own, each once, in the order of declaration."""
    return [inner for inner in module.modules() if any(True for _ in own_tensors(inner))]


@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """One tensor object and how it looks into its cell: ``start_bytes`` from the cell's first byte."""

    tensor: torch.Tensor
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    start_bytes: int

    def through(self, buffer: torch.Tensor, offset_bytes: int) -> torch.Tensor:
        """The same look into ``buffer`` (1-D bytes), where the cell begins at ``offset_bytes`` of it."""
        if buffer.numel() == 0:
            return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=buffer.device)
        first = buffer.storage_offset() + offset_bytes + self.start_bytes
        return buffer.view(self.dtype).as_strided(self.size, self.stride, first // self.dtype.itemsize)


@dataclass(kw_only=True, eq=False)
class Cell:
    """A stretch of one storage and every tensor object that looks into it.

    num_bytes: its length. home: the device it was found on. looks: the tensor objects; a parameter that is registered
    in several modules is one object, two views of one storage are two. originals: the tensors as they were found.
    is_moved: whether the bytes have left the storage they were found in.
    """

    looks: tuple[Look, ...]
    num_bytes: int
    home: torch.device
    originals: tuple[torch.Tensor, ...] = field(repr=False)
    is_moved: bool = False

    def pairs(self) -> Iterator[tuple[torch.Tensor, Look]]:
        """Each original with its look."""
        return zip(self.originals, self.looks)

    @property
    def is_one_tensor(self) -> bool:
        """Whether the originals are one contiguous tensor that fills the cell, so that a copy of it is all there is."""
        if len(self.looks) != 1:
            return False
        tensor, look = self.originals[0], self.looks[0]
        is_as_found = tensor.shape == look.size and tensor.dtype == look.dtype and tensor.stride() == look.stride
        return is_as_found and tensor.is_contiguous() and tensor.numel() * tensor.element_size() == self.num_bytes

    def raw(self) -> torch.Tensor:
        """The cell's own bytes as a 1-D tensor that shares the storage it was found in."""
        tensor, look = min(self.pairs(), key=lambda pair: pair[1].dtype.itemsize)
        item = look.dtype.itemsize
        first = tensor.storage_offset() - look.start_bytes // item
        return tensor.as_strided((self.num_bytes // item,), (1,), first).view(torch.uint8)

    def views(self, buffer: torch.Tensor, offset_bytes: int) -> list[torch.Tensor]:
        """A view for every look, in their order, into ``buffer`` where the cell begins at ``offset_bytes``."""
        return [look.through(buffer, offset_bytes) for look in self.looks]

    def is_replaced(self, views: Iterable[torch.Tensor]) -> bool:
        """Whether someone gave a tensor object other data than ``views`` (``parameter.data = ...``, ``.to(dtype)``).

        Another dtype in the same shape is layerwise casting at work, which puts the stored tensor back itself.
        """
        for look, view in zip(self.looks, views):
            now = look.tensor
            if now.data_ptr() != view.data_ptr() and (now.dtype == look.dtype or now.shape != look.size):
                return True
        return False

    def show(self, views: Iterable[torch.Tensor]) -> None:
        """Point the tensor objects at ``views``; they keep their identity, so ties and references elsewhere follow."""
        for look, view in zip(self.looks, views):
            look.tensor.data = view if look.tensor.dtype == look.dtype else view.to(look.tensor.dtype)

    def restore(self) -> None:
        """Point the tensor objects at storage of their own again, on the device they were found on."""
        if not self.is_moved:
            self.show(self.originals)
        else:
            fresh = self.raw().to(self.home, copy=True)
            self.show(self.views(fresh, 0))


def cells_of(tensors: Iterable[torch.Tensor]) -> list[Cell]:
    """Group tensor objects by the storage they look into; opaque tensors have none and must not be given.

    Raises ``ValueError`` for a tensor without data (meta device): there is nothing to keep.
    """
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in dict.fromkeys(tensors):
        if tensor.is_meta:
            raise ValueError(
                "a weight is on the meta device, it has no data yet. Load the model before applying a plan."
            )
        by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    return [_cell(group) for group in by_storage.values()]


def _cell(tensors: list[torch.Tensor]) -> Cell:
    extents = [_extent_bytes(tensor) for tensor in tensors]
    coarsest = max(tensor.element_size() for tensor in tensors)
    low = min(first for first, _ in extents) // coarsest * coarsest
    looks = tuple(
        Look(tensor=t, dtype=t.dtype, size=t.size(), stride=t.stride(), start_bytes=first - low)
        for t, (first, _) in zip(tensors, extents)
    )
    num_bytes = max(last for _, last in extents) - low
    return Cell(looks=looks, num_bytes=num_bytes, home=tensors[0].device, originals=tuple(t.data for t in tensors))


def _extent_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte a tensor can see in its storage and the one behind the last; strides are never negative in torch."""
    item = tensor.element_size()
    first = int(tensor.storage_offset()) * item
    if tensor.numel() == 0:
        return first, first
    reach = sum((int(size) - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride()))
    return first, first + (reach + 1) * item
