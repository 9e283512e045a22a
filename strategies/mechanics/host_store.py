"""Where weights wait on the host: where they were found, in flat page-locked buffers, or in a mapped file on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from paretune.strategies.mechanics.cells import aligned
from paretune.strategies.mechanics.packing import pack

__all__ = ["DiskStore", "FoundStore", "HostStore", "PinnedStore"]


class HostStore:
    """Gives flat host buffers, one a bundle, or ``None`` where the bytes stay in the tensors they were found in."""

    pins_resident = True
    """Whether weights that stay on the device are worth a buffer too."""

    def flats(self, sizes_bytes: Sequence[int]) -> list[torch.Tensor | None]:
        """A 1-D byte buffer for each size, or ``None``; a size of 0 needs none."""
        raise NotImplementedError

    @property
    def pinned_bytes(self) -> int:
        """Page-locked bytes as the host allocator rounds them."""
        return 0

    def close(self) -> None:
        """Let go of everything outside of the process's memory."""


class FoundStore(HostStore):
    """Weights stay in the very tensors they were found in: no copy is made, memory maps of checkpoint files stay mapped."""

    def flats(self, sizes_bytes: Sequence[int]) -> list[torch.Tensor | None]:
        return [None] * len(sizes_bytes)


class PinnedStore(HostStore):
    """Flat page-locked buffers up to ``budget_bytes``; what lies beyond it stays pageable, first come first pinned.

    PyTorch rounds every page-locked block up to a power of two, so buffers are cut from chunks that are powers of two
    themselves and waste little (see ``packing``).
    """

    def __init__(self, budget_bytes: int | None = None, *, pins_resident: bool = True) -> None:
        self.budget_bytes = budget_bytes
        self.pins_resident = pins_resident
        self._pinned_bytes = 0

    @property
    def pinned_bytes(self) -> int:
        return self._pinned_bytes

    def flats(self, sizes_bytes: Sequence[int]) -> list[torch.Tensor | None]:
        buffers: list[torch.Tensor | None] = [None] * len(sizes_bytes)
        padded = [aligned(size) for size in sizes_bytes]
        for chunk_bytes, members in pack(padded):
            if self.budget_bytes is not None and self._pinned_bytes + chunk_bytes > self.budget_bytes:
                continue
            chunk = torch.empty(chunk_bytes, dtype=torch.uint8, pin_memory=True)
            self._pinned_bytes += chunk_bytes
            start = 0
            for index in members:
                buffers[index] = chunk[start : start + sizes_bytes[index]]
                start += padded[index]
        return buffers


class DiskStore(HostStore):
    """Flat buffers mapped from a file of this store's own in ``folder``; the file goes when the store is closed.

    The file's name is new each time, so an older folder or a second model never mixes with it. Reading a value reads the
    file, and writing one writes it: ``state_dict`` and edits of weights are right while they are on disk.

    Raises ``OSError`` when the folder cannot be written or the disk is full, before anything is changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[Path] = []

    def flats(self, sizes_bytes: Sequence[int]) -> list[torch.Tensor | None]:
        if not sizes_bytes:
            return []
        padded = [aligned(size) for size in sizes_bytes]
        flat = self._map(max(sum(padded), 1))
        starts = [sum(padded[:index]) for index in range(len(padded))]
        return [flat[start : start + size] for start, size in zip(starts, sizes_bytes)]

    def _map(self, num_bytes: int) -> torch.Tensor:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="paretune-", suffix=".weights", dir=self.folder)
        self._paths.append(Path(name))
        try:
            os.posix_fallocate(handle, 0, num_bytes)
        finally:
            os.close(handle)
        return torch.from_file(name, shared=True, size=num_bytes, dtype=torch.uint8)

    def close(self) -> None:
        while self._paths:
            self._paths.pop().unlink(missing_ok=True)
