"""Replace a model's tensors by ones that are mapped from its own shards, until undone."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from paretune.strategies.base import Undo
from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.cells import Cell, cells_of, is_opaque, own_tensors, owners_of
from paretune.strategies.mechanics.checkpoint import save_sharded
from paretune.strategies.mechanics.link import outside_autograd
from paretune.strategies.mechanics.shard_files import read_shard
from paretune.strategies.mechanics.transfer import carry

__all__ = ["keep_in_shards"]


def keep_in_shards(model: nn.Module, max_shard_size: int | str, folder: str | None, undo: Undo) -> dict[str, Any]:
    """Save ``model`` to a new folder and point its tensors at the files; undo gives each its own memory again."""
    tensors = [tensor for owner in owners_of(model) for tensor in own_tensors(owner)]
    if any(tensor.is_meta or is_opaque(tensor) for tensor in tensors):
        raise Unsupported(f"sharded_checkpoint: {type(model).__name__} has weights that cannot be written as they are.")
    made = tempfile.mkdtemp(prefix="paretune-shards-", dir=folder)
    undo(lambda: shutil.rmtree(made, ignore_errors=True))
    index = json.loads(save_sharded(model, made, max_shard_size=max_shard_size).read_text())
    _read_back(model, Path(made), index, undo)
    sizes = [(Path(made) / file).stat().st_size for file in set(index["weight_map"].values())]
    return {"num_shards": len(sizes), "largest_shard_bytes": max(sizes, default=0)}


def _read_back(model: nn.Module, folder: Path, index: dict[str, Any], undo: Undo) -> None:
    """Shard by shard, so that the memory of one is free before the next is looked at."""
    names = {tensor: name for name, tensor in reversed(model.state_dict(keep_vars=True).items())}
    cells = {names[cell.looks[0].tensor]: cell for cell in cells_of(dict.fromkeys(reversed(names)))}
    for file in sorted(set(index["weight_map"].values())):
        for label, tensor in read_shard(folder, file).items():
            cell = cells.pop(label)
            undo(functools.partial(carry, cell, cell.home))
            _point(cell, tensor)


def _point(cell: Cell, mapped: Any) -> None:
    with outside_autograd():
        cell.originals = ()
        look = cell.looks[0]
        is_plain = len(cell.looks) == 1 and mapped.shape == look.size
        if is_plain and mapped.stride() != look.stride:
            cell.show([mapped.new_empty(0).new_empty_strided(look.size, look.stride).copy_(mapped)])
        elif is_plain:
            cell.show([mapped])
        else:
            flat = mapped.flatten()
            cell.show(
                flat.view(it.dtype).as_strided(it.size, it.stride, it.start_bytes // it.dtype.itemsize)
                for it in cell.looks
            )
