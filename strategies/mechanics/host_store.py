"""Where weights wait on the host: where they were found, in flat page-locked buffers, or in a mapped file on disk."""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from paretune.strategies.mechanics.cells import aligned
from paretune.strategies.mechanics.host_limits import lockable_bytes
from paretune.strategies.mechanics.packing import pack

__all__ = ["DiskStore", "FoundStore", "HostStore", "Kept", "PinnedStore"]


_log = logging.getLogger(__name__)

Kept = list[tuple[int, torch.Tensor | None]]
"""Which size a buffer is for, and the buffer (1-D bytes), or ``None`` where the bytes stay in their tensors."""


class HostStore:
    """Gives flat host buffers, one a bundle. pins_resident: whether weights that stay on the device get one too."""

    pins_resident = True

    def buffers(self, sizes_bytes: Sequence[int]) -> Iterator[Kept]:
        """Buffers for every size, some at a time: filled before asking on, they never hold all weights twice."""
        raise NotImplementedError

    @property
    def pinned_bytes(self) -> int:
        """Page-locked bytes as the host allocator rounds them."""
        return 0

    def close(self) -> None:
        """Let go of everything outside of the process's memory."""


class FoundStore(HostStore):
    """Weights stay in the very tensors they were found in: no copy is made, mapped checkpoint files stay mapped."""

    def buffers(self, sizes_bytes: Sequence[int]) -> Iterator[Kept]:
        yield [(index, None) for index in range(len(sizes_bytes))]


class PinnedStore(HostStore):
    """Flat page-locked buffers up to ``budget_bytes``; what lies beyond it stays pageable, first come first pinned.

    PyTorch rounds every page-locked block up to a power of two, so buffers are cut from chunks that are powers of two
    themselves and waste little (see ``packing``). Without a budget the limit is what the machine, or the container,
    has.
    """

    def __init__(self, budget_bytes: int | None = None, *, pins_resident: bool = True) -> None:
        self.budget_bytes = budget_bytes
        self.pins_resident = pins_resident
        self._pinned_bytes = 0
        self._has_warned = False

    @property
    def pinned_bytes(self) -> int:
        return self._pinned_bytes

    def buffers(self, sizes_bytes: Sequence[int]) -> Iterator[Kept]:
        padded = [aligned(size) for size in sizes_bytes]
        budget = self._budget()
        yield [(index, None) for index, size in enumerate(sizes_bytes) if size == 0]
        for chunk_bytes, members in pack(padded):
            if budget is not None and self._pinned_bytes + chunk_bytes > budget:
                self._warn_once()
                yield [(index, None) for index in members]
                continue
            chunk = torch.empty(chunk_bytes, dtype=torch.uint8, pin_memory=True)
            self._pinned_bytes += chunk_bytes
            starts = itertools.accumulate((padded[index] for index in members), initial=0)
            yield [(index, chunk[start : start + sizes_bytes[index]]) for index, start in zip(members, starts)]

    def close(self) -> None:
        self._pinned_bytes = 0

    def _budget(self) -> int | None:
        """A simulated machine's memory is not this machine's, and limits itself."""
        return lockable_bytes() if self.budget_bytes is None and _has_real_data() else self.budget_bytes

    def _warn_once(self) -> None:
        if self.budget_bytes is None and not self._has_warned:
            self._has_warned = True
            _log.warning("Too little host memory is free to page-lock all weights; the rest is copied more slowly.")


class DiskStore(HostStore):
    """Flat buffers mapped from a file of this store's own in ``folder``; the file goes when the store is closed.

    The file's name is new each time, so an older folder or a second model never mixes with it. Folders that were made for
    it go with it, unless something else lies in them. Reading a value reads
    the file, and writing one writes it: ``state_dict`` and edits of weights are right while they are on disk.

    Raises ``OSError`` when the folder cannot be written or the disk is full, before anything is changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[Path] = []
        self._made: list[Path] = []

    def buffers(self, sizes_bytes: Sequence[int]) -> Iterator[Kept]:
        padded = [aligned(size) for size in sizes_bytes]
        flat = self._map(max(sum(padded), 1))
        starts = itertools.accumulate(padded, initial=0)
        yield [(index, flat[start : start + sizes_bytes[index]]) for index, start in zip(range(len(padded)), starts)]

    def _map(self, num_bytes: int) -> torch.Tensor:
        self._made += [part for part in (self.folder, *self.folder.parents) if not part.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="paretune-", suffix=".weights", dir=self.folder)
        self._paths.append(Path(name))
        try:
            _reserve(handle, num_bytes)
        finally:
            os.close(handle)
        return torch.from_file(name, shared=True, size=num_bytes, dtype=torch.uint8)

    def close(self) -> None:
        while self._paths:
            self._paths.pop().unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()
        self._made.clear()


def _reserve(handle: int, num_bytes: int) -> None:
    """Claim the disk's blocks now: a full disk is an error here and a crash when a mapped page is written.

    A simulated tensor has no bytes to write, so its file stays a name without blocks.
    """
    if _has_real_data():
        os.posix_fallocate(handle, 0, num_bytes)
    else:
        os.ftruncate(handle, num_bytes)


def _has_real_data() -> bool:
    return type(torch.empty(1, dtype=torch.uint8)) is torch.Tensor
