"""Save a model in shards and load it shard by shard; an older save never wins, a broken one never takes over."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paretune.strategies.mechanics.cells import Cell, cells_of
from paretune.strategies.mechanics.shard_files import (
    BASE,
    CheckpointError,
    index_name,
    read_index,
    read_tensor,
    refuse_missing,
)
from paretune.strategies.sizes import parse_size

__all__ = ["load_sharded", "save_sharded"]

_Place = Callable[[str], torch.device]
_Take = Callable[[str, torch.Tensor], bool]


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """One tensor in a shard, and how the model's tensors look into it: name -> (size, stride, first element)."""

    name: str
    tensor: torch.Tensor
    looks: Mapping[str, tuple[list[int], list[int], int]]


def save_sharded(
    model: nn.Module, folder: str | Path, *, max_shard_size: int | str = "5GB", variant: str | None = None
) -> Path:
    """Write the model's state as safetensors shards of at most ``max_shard_size`` and return the index file.

    A tensor larger than that gets a shard of its own. Tensors that share memory are stored once, and strides are
    remembered. Equal weights give equal files, wherever they are and whatever plan is applied. Shards carry their
    content's hash in their names, and the index is replaced last: until then an older save stays whole. Files of the
    older save of the same variant are deleted afterwards, and no others.

    Raises ``SizeError`` for a size that cannot be read, ``OSError`` when the folder cannot be written.
    """
    limit = parse_size(max_shard_size, name="max_shard_size")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(_divide(_stored(model), limit))
    index_path = folder / index_name(variant)
    old = _listed_files(index_path)
    files = [_write_shard(folder, shard, number, len(shards), variant) for number, shard in enumerate(shards, start=1)]
    weight_map = {stored.name: file for file, shard in zip(files, shards) for stored in shard}
    looks = {name: [s.name, *look] for shard in shards for s in shard for name, look in s.looks.items()}
    total = sum(s.tensor.numel() * s.tensor.element_size() for shard in shards for s in shard)
    index = {"metadata": {"total_size": total, "looks": looks}, "weight_map": weight_map}
    _replace(index_path, json.dumps(index, indent=1, sort_keys=True).encode())
    for name in old - set(files):
        (folder / name).unlink(missing_ok=True)
    return index_path


def load_sharded(
    model: nn.Module,
    folder: str | Path,
    *,
    variant: str | None = None,
    device: torch.device | str | Mapping[str, Any] = "cpu",
    dtype: torch.dtype | None = None,
    take: _Take | None = None,
) -> None:
    """Fill ``model`` (built for real, or on meta) from shards, one tensor in memory at a time.

    device: one device, or a device by module name, the longest name that fits wins. dtype: what floating tensors
    become. take: is offered each tensor of the model by name, as the file holds it, and says whether it has found a
    place for it. Tensors that shared memory when they were saved share it again. The host never holds more than the
    model and one stored tensor.

    Raises ``CheckpointError`` when this variant is not there, a shard is missing or changed, names or shapes do not
    fit, or a tensor of the model would be left without data.
    """
    folder = Path(folder)
    index = read_index(folder, variant)
    looks = index["metadata"].get("looks") or {name: [name, None, None, 0] for name in index["weight_map"]}
    _refuse_other_names(model, set(looks), folder)
    place, by_label = _placer(device), dict[str, dict[str, Any]]()
    for name, (label, *look) in looks.items():
        by_label.setdefault(label, {})[name] = look
    for file in sorted(set(index["weight_map"].values())):
        wanted = [label for label in by_label if index["weight_map"].get(label) == file]
        refuse_missing(folder, file, wanted)
        for label in wanted:
            _fill(model, read_tensor(folder, file, label), by_label[label], place, dtype, take)
    left = [name for name, tensor in _all_tensors(model) if tensor.is_meta]
    if left:
        raise CheckpointError(f"{folder}: {left[0]!r} is in no shard and has no data. Build it on the host.")


def _stored(model: nn.Module) -> Iterator[_Stored]:
    state = model.state_dict(keep_vars=True)
    names: dict[torch.Tensor, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(tensor, []).append(name)
    for cell in cells_of(names):
        yield _stored_cell(cell, names)


def _stored_cell(cell: Cell, names: Mapping[torch.Tensor, list[str]]) -> _Stored:
    """A tensor that fills its memory is stored as itself; views, gaps and repeats as the stretch they look into."""
    first = cell.looks[0]
    label = names[first.tensor][0]
    whole = cell.originals[0]
    is_plain = len(cell.looks) == 1 and whole.numel() * whole.element_size() == cell.num_bytes
    if is_plain:
        looks = {name: (list(first.size), list(first.stride), 0) for name in names[first.tensor]}
        return _Stored(name=label, tensor=whole.contiguous(), looks=looks)
    item = first.dtype.itemsize
    stretch = cell.raw().view(first.dtype)
    looks = {
        name: (list(look.size), list(look.stride), look.start_bytes // item)
        for look in cell.looks
        for name in names[look.tensor]
    }
    return _Stored(name=label, tensor=stretch, looks=looks)


def _divide(stored: Iterator[_Stored], limit: int) -> Iterator[list[_Stored]]:
    shard: list[_Stored] = []
    held = 0
    for item in stored:
        size = item.tensor.numel() * item.tensor.element_size()
        if shard and held + size > limit:
            yield shard
            shard, held = [], 0
        shard.append(item)
        held += size
    if shard:
        yield shard


def _write_shard(folder: Path, shard: Sequence[_Stored], number: int, count: int, variant: str | None) -> str:
    import safetensors.torch

    temporary = folder / f".writing-{os.getpid()}-{number}.safetensors"
    try:
        tensors = {stored.name: stored.tensor.to("cpu") for stored in shard}
        safetensors.torch.save_file(tensors, temporary, metadata={"format": "pt"})
        del tensors
        digest = _digest(temporary)
        name = f"{BASE}{f'.{variant}' if variant else ''}-{digest}-{number:05d}-of-{count:05d}.safetensors"
        _to_disk(temporary)
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    return name


def _fill(
    model: nn.Module,
    stored: torch.Tensor,
    looks: Mapping[str, Sequence[Any]],
    place: _Place,
    dtype: torch.dtype | None,
    take: _Take | None,
) -> None:
    base: torch.Tensor | None = None
    for name, (size, stride, first) in looks.items():
        is_whole = size is None or tuple(stored.shape) == tuple(size)
        if take is not None and take(name, stored if is_whole else stored.as_strided(size, stride, first)):
            continue
        if base is None:
            base = _brought(stored, place(name), dtype, size, stride)
        _assign(model, name, base if is_whole else base.as_strided(size, stride, first))


def _brought(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None, size: Any, stride: Any
) -> torch.Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if size is None or tuple(tensor.shape) != tuple(size):
        return tensor.to(device, wanted, copy=True)
    return torch.empty_strided(size, stride, dtype=wanted, device=device).copy_(tensor)


def _assign(model: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, key = name.rpartition(".")
    owner = model.get_submodule(path)
    old = owner._parameters.get(key) if key in owner._parameters else owner._buffers[key]
    if old is None or tuple(old.shape) != tuple(value.shape):
        shape = None if old is None else tuple(old.shape)
        raise CheckpointError(f"{name} is {tuple(value.shape)} in the checkpoint and {shape} in the model.")
    if key not in owner._parameters:
        owner._buffers[key] = value
    elif old.is_meta or old.dtype != value.dtype or old.device != value.device:
        _share_parameter(model, old, nn.Parameter(value, requires_grad=old.requires_grad and value.is_floating_point()))
    else:
        old.data = value


def _share_parameter(model: nn.Module, old: torch.Tensor, new: nn.Parameter) -> None:
    """Every place that holds the old parameter gets the new one: ties stay ties."""
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is old:
                module._parameters[key] = new


def _refuse_other_names(model: nn.Module, stored: set[str], folder: Path) -> None:
    wanted = set(model.state_dict(keep_vars=True))
    missing, unknown = sorted(wanted - stored), sorted(stored - wanted)
    if missing or unknown:
        what = f"{missing[0]!r} of the model is missing" if missing else f"{unknown[0]!r} is not the model's"
        raise CheckpointError(f"{folder}: {what} ({len(missing)} missing, {len(unknown)} unknown).")


def _all_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _placer(device: torch.device | str | Mapping[str, Any]) -> _Place:
    if not isinstance(device, Mapping):
        return lambda name: torch.device(device)
    table = dict(device)

    def place(name: str) -> torch.device:
        keys = [key for key in table if key == "" or name == key or name.startswith(f"{key}.")]
        if not keys:
            raise CheckpointError(f"the device map gives {name!r} no device. Add it, or a module around it.")
        found = table[max(keys, key=len)]
        return torch.device("cpu") if found == "disk" else torch.device(found)

    return place


def _listed_files(index_path: Path) -> set[str]:
    return set(json.loads(index_path.read_text())["weight_map"].values()) if index_path.is_file() else set()


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    temporary.write_bytes(content)
    _to_disk(temporary)
    temporary.replace(path)


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
