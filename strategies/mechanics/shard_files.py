"""Read the files of a sharded checkpoint: its index, and one shard or one tensor at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["BASE", "CheckpointError", "index_name", "read_index", "read_shard", "read_tensor", "refuse_missing"]

BASE = "diffusion_pytorch_model"
"""How the files' names begin."""


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, incomplete, or not this model's; names what and where."""


def read_shard(folder: Path, file: str) -> dict[str, torch.Tensor]:
    """The tensors of one shard, mapped from the file. Raises ``CheckpointError`` when it is not there."""
    import safetensors.torch

    _refuse_absent(folder / file)
    tensors: dict[str, torch.Tensor] = safetensors.torch.load_file(folder / file)
    return tensors


def read_tensor(folder: Path, file: str, label: str) -> torch.Tensor:
    """One tensor, mapped from the file by itself: its pages go with it, while those of an open file stay."""
    with _opened(folder, file) as opened:
        tensor: torch.Tensor = opened.get_tensor(label)
    return tensor


def refuse_missing(folder: Path, file: str, labels: Sequence[str]) -> None:
    """Raise ``CheckpointError`` when the file is not there, or one of the labels is not in it."""
    with _opened(folder, file) as opened:
        there = set(opened.keys())
    missing = [label for label in labels if label not in there]
    if missing:
        raise CheckpointError(f"{folder / file}: {missing[0]!r} is not in it. Save the model again.")


def _opened(folder: Path, file: str) -> Any:
    import safetensors

    _refuse_absent(folder / file)
    return safetensors.safe_open(folder / file, framework="pt")


def _refuse_absent(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing. Save the model again, or copy the whole folder.")


def index_name(variant: str | None) -> str:
    """Name of the index file of a variant."""
    return f"{BASE}.safetensors.index.{f'{variant}.' if variant else ''}json"


def read_index(folder: Path, variant: str | None) -> dict[str, Any]:
    """The index of exactly this variant, in our spelling or another program's, or of a checkpoint in one file."""
    for base in (BASE, "model"):
        dotted = f".{variant}" if variant else ""
        for name in (f"{base}.safetensors.index{dotted}.json", f"{base}{dotted}.safetensors.index.json"):
            if (folder / name).is_file():
                index: dict[str, Any] = json.loads((folder / name).read_text())
                return index
        single = f"{base}{dotted}.safetensors"
        if (folder / single).is_file():
            return {"metadata": {}, "weight_map": dict.fromkeys(read_shard(folder, single), single)}
    found = sorted(p.name for p in folder.glob("*.json")) if folder.is_dir() else []
    what = f"variant {variant!r}" if variant else "a checkpoint"
    raise CheckpointError(f"{folder} does not hold {what}. It has: {', '.join(found) or 'no index'}.")
