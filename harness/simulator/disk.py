"""Files of simulated tensors: their headers are remembered, their bytes are only counted and timed."""

from __future__ import annotations

import os
from collections.abc import Mapping
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


class SimulatedDisk:
    """While a simulation is active, `safetensors.torch` saves and loads simulated tensors; ordinary files stay ordinary.

    A saved file exists, empty, so that programs that look for it find it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._files: dict[str, Header] = {}

    def __enter__(self) -> SimulatedDisk:
        import safetensors.torch

        self._originals = (safetensors.torch.save_file, safetensors.torch.load_file)
        safetensors.torch.save_file = self._save
        safetensors.torch.load_file = self._load
        return self

    def __exit__(self, *_: Any) -> None:
        import safetensors.torch

        safetensors.torch.save_file, safetensors.torch.load_file = self._originals

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
        Path(filename).write_bytes(b"")
        self._files[os.path.realpath(filename)] = header

    def _load(self, filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, torch.Tensor]:
        header = self._files.get(os.path.realpath(filename))
        if header is None:
            ordinary: dict[str, torch.Tensor] = self._originals[1](filename, device)
            return ordinary
        return {name: self._read(*described, named_index(self._machine, device)) for name, described in header.items()}

    def _read(self, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], index: int) -> torch.Tensor:
        nbytes = extent_bytes(size, stride, dtype.itemsize)
        read_file(self._machine, nbytes)
        held = make_tensor(Storage(self._machine, -1, nbytes), dtype, size, stride)
        if index < 0:
            return held
        placed = make_tensor(Storage(self._machine, index, nbytes), dtype, size, stride)
        transfer(held, placed.sim_storage, nbytes, non_blocking=False)
        return placed
