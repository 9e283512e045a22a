"""Keep a workload's output as named tensors in a safetensors file, so that later trials can be compared with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["digest", "flatten", "load", "save"]


def flatten(output: Any) -> dict[str, torch.Tensor]:
    """Every tensor in ``output`` on the host, contiguous, by its path (``0.images``); a lone tensor is named ``output``."""
    return {name or "output": tensor.detach().cpu().contiguous().clone() for name, tensor in _walk(output, "")}


def _walk(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}.{index}".lstrip("."))


def save(output: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the tensors; another process sees the whole file or none."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    save_file(dict(output), unfinished)
    unfinished.replace(path)


def load(path: Path) -> dict[str, torch.Tensor]:
    """Read what ``save`` wrote."""
    from safetensors.torch import load_file

    return dict(load_file(path))


def digest(output: Mapping[str, torch.Tensor]) -> str:
    """A hash that differs when any bit, shape or dtype of the output differs."""
    total = hashlib.sha256()
    for name in sorted(output):
        tensor = output[name]
        total.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]
