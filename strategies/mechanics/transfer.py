"""Move weights to a device for good, or until a plan is undone: ties, views, strides and buffers stay as they are."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.mechanics.cells import Cell, cells_of, is_opaque, own_tensors, owners_of
from paretune.strategies.mechanics.link import outside_autograd
from paretune.strategies.mechanics.opaque import exchange, moved

__all__ = ["carry", "move_module", "move_tensors"]


def move_module(module: nn.Module, device: torch.device, undo: Undo) -> None:
    """Move every parameter and buffer of ``module`` to ``device``; see ``move_tensors``."""
    move_tensors(owners_of(module), device, undo)


def move_tensors(owners: Iterable[nn.Module], device: torch.device, undo: Undo) -> None:
    """Move the tensors registered on these very modules to ``device``; undo moves back only what was moved.

    The host copies are let go, as ``Module.to`` does, so a resident model is not held twice; undo brings back the
    values that the tensors have then. Tensor objects keep their identity, and those that share memory still share it.

    Raises ``ValueError`` for a weight without data (meta device).
    """
    tensors = [tensor for owner in owners for tensor in own_tensors(owner) if tensor.device != device]
    for cell in cells_of(tensor for tensor in tensors if not is_opaque(tensor)):
        home = cell.home
        cell.originals = ()
        carry(cell, device)
        undo(functools.partial(carry, cell, home))
    for tensor in dict.fromkeys(tensor for tensor in tensors if is_opaque(tensor)):
        home = tensor.device
        exchange(tensor, moved(tensor, device))
        undo(functools.partial(_return, tensor, home))


def _return(tensor: torch.Tensor, home: torch.device) -> None:
    exchange(tensor, moved(tensor, home))


def carry(cell: Cell, device: torch.device) -> None:
    """Copy the cell's bytes as they are now; whoever replaced one of its tensors meanwhile keeps the replacement."""
    with outside_autograd():
        cell.originals = tuple(look.tensor.data for look in cell.looks)
        if cell.is_one_tensor:
            cell.show([cell.originals[0].to(device, copy=True)])
        elif all(tensor.shape == look.size and tensor.dtype == look.dtype for tensor, look in cell.pairs()):
            bytes_there = cell.raw().to(device, copy=True)
            cell.show(cell.views(bytes_there, 0))
        else:
            cell.show(tensor.to(device) for tensor in cell.originals)
        cell.originals = ()
