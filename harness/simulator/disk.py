"""Files of simulated tensors: they hold what the tensors are, while their bytes are only counted and timed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from paretune.harness.simulator.copies import read_file, transfer, write_file
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.placement import named_index
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, extent_bytes, make_tensor

__all__ = ["SimulatedDisk"]

Header = dict[str, tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]]

_MAGIC = b"simulated tensors "


class SimulatedDisk:
    """While a simulation is active, `safetensors.torch` saves and loads simulated tensors; ordinary files stay ordinary.

    A saved file says what it stands for, so it stays what it is when a program renames or copies it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __enter__(self) -> SimulatedDisk:
        import safetensors.torch

        self._originals = (safetensors.torch.save_file, safetensors.torch.load_file, safetensors.safe_open)
        safetensors.torch.save_file = self._save
        safetensors.torch.load_file = self._load
        safetensors.safe_open = self._open  # type: ignore[misc, assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        import safetensors.torch

        safetensors.torch.save_file, safetensors.torch.load_file, safetensors.safe_open = self._originals  # type: ignore[misc]

    def _save(
        self, tensors: Mapping[str, torch.Tensor], filename: str | os.PathLike[str], metadata: Any = None
    ) -> None:
        if not any(isinstance(tensor, SimulatedTensor) for tensor in tensors.values()):
            self._originals[0](dict(tensors), filename, metadata)
            return
        header: Header = {}
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise ValueError(f"{name}: safetensors saves contiguous tensors only. Call .contiguous() before.")
            header[name] = (tensor.dtype, tuple(tensor.shape), tensor.stride())
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        write_file(self._machine, nbytes)
        Path(filename).write_bytes(_MAGIC + json.dumps(header, default=str).encode())

    def _load(self, filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, torch.Tensor]:
        header = _header_in(filename)
        index = named_index(self._machine, device)
        if header is None:
            ordinary: dict[str, torch.Tensor] = self._originals[1](filename, device if index < 0 else "cpu")
            return ordinary if index < 0 else {name: tensor.to(device) for name, tensor in ordinary.items()}
        return {name: self._read(*described, index) for name, described in header.items()}

    def _open(self, filename: str | os.PathLike[str], framework: str = "pt", device: Any = "cpu") -> Any:
        header = _header_in(filename)
        if header is None:
            return self._originals[2](filename, framework=framework, device=device)
        index = named_index(self._machine, device)
        return _OpenFile(header, lambda dtype, size, stride: self._read(dtype, size, stride, index))

    def _read(self, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], index: int) -> torch.Tensor:
        nbytes = extent_bytes(size, stride, dtype.itemsize)
        read_file(self._machine, nbytes)
        held = make_tensor(Storage(self._machine, -1, nbytes), dtype, size, stride)
        if index < 0:
            return held
        placed = make_tensor(Storage(self._machine, index, nbytes), dtype, size, stride)
        transfer(held, placed.sim_storage, nbytes, non_blocking=False)
        return placed


def _header_in(filename: str | os.PathLike[str]) -> Header | None:
    """What a file of simulated tensors holds; ``None`` for every other file."""
    with Path(filename).open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
        told = json.loads(file.read())
    return {
        name: (getattr(torch, dtype.removeprefix("torch.")), tuple(size), tuple(stride))
        for name, (dtype, size, stride) in told.items()
    }


class _OpenFile:
    """What `safetensors.safe_open` gives, as far as programs ask it: names, and one tensor at a time."""

    def __init__(self, header: Header, read: Callable[..., torch.Tensor]) -> None:
        self._header, self._read = header, read

    def __enter__(self) -> _OpenFile:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def keys(self) -> list[str]:
        """Names of the tensors in the file."""
        return list(self._header)

    def get_tensor(self, name: str) -> torch.Tensor:
        """Read one tensor."""
        return self._read(*self._header[name])
