"""The memory behind simulated tensors: one object a storage, counted while any tensor refers to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paretune.harness.simulator.timeline import host_work

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine

__all__ = ["Storage", "StorageView"]

ACTIVATION = "activation"


class Storage:
    """Bytes on a card (`index` >= 0) or on the host (-1), pageable or pinned; returned when the last tensor dies."""

    __slots__ = ("block", "index", "label", "machine", "nbytes", "pinned", "uses", "values_lost")

    def __init__(
        self,
        machine: Machine,
        index: int,
        nbytes: int,
        *,
        pinned: bool = False,
        kind: str = ACTIVATION,
    ) -> None:
        self.machine = machine
        self.index = index
        self.nbytes = nbytes
        self.pinned = pinned
        self.label = (machine.component, kind)
        self.uses: set[int] | None = None
        self.values_lost = False
        self.block: Any = None
        self._take()

    def _take(self) -> None:
        machine = self.machine
        if self.index >= 0:
            self.block = machine.cards[self.index].allocate(self.nbytes, self.label)
        elif self.pinned:
            self.block, is_new = machine.host_memory.allocate_pinned(self.nbytes, self.label)
            if is_new:
                host_work(machine, self.nbytes / machine.host.pin_bytes_per_s)
        else:
            machine.host_memory.allocate(self.nbytes, self.label)
            self.block = self.nbytes
        if machine.recorder is not None:
            machine.recorder.takes(self)

    def _give_back(self) -> None:
        block, self.block = self.block, None
        if block is None:
            return
        if self.machine.recorder is not None:
            self.machine.recorder.gives(self)
        if self.index >= 0:
            self.machine.cards[self.index].free(block, self.label, self.uses)
        elif self.pinned:
            self.machine.host_memory.free_pinned(block, self.label)
        else:
            self.machine.host_memory.free(block, self.label)

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Count the bytes as free, except at the interpreter's end, when the modules that count may be gone already."""
        if getattr(self, "block", None) is not None and not _is_finalizing():
            self._give_back()

    @property
    def counted_bytes(self) -> int:
        """Bytes as the ledger counts them, after rounding."""
        return int(self.block.size_bytes if self.index >= 0 else self.block)

    def relabel(self, component: str, kind: str) -> None:
        """Say whose bytes these are."""
        after = (component or self.label[0], kind)
        if after == self.label or self.block is None:
            return
        self.machine.spoil()
        for ledger in self._ledgers():
            ledger.relabel(self.counted_bytes, self.label, after)
        self.label = after

    def _ledgers(self) -> list[Any]:
        if self.index >= 0:
            return [self.machine.cards[self.index].ledger]
        memory = self.machine.host_memory
        return [memory.total, memory.pinned] if self.pinned else [memory.total]

    def resize(self, nbytes: int) -> None:
        """Change the size in place, as `UntypedStorage.resize_` does; zero gives the memory back."""
        if nbytes == self.nbytes:
            return
        self.machine.spoil()
        self._give_back()
        self.nbytes = nbytes
        if nbytes:
            self._take()

    def address(self) -> int:
        """A stand-in for the data pointer, unique among live storages; zero for an empty one."""
        block = self.block
        if block is None or not self.nbytes:
            return 0
        return int(block.address) if self.index >= 0 else id(self)


class StorageView:
    """What `tensor.untyped_storage()` returns on the simulated device: identity and size of a storage without data."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _cdata(self) -> int:
        return id(self._storage)

    @property
    def device(self) -> Any:
        """The device that holds the bytes."""
        import torch

        return torch.device("sim", self._storage.index) if self._storage.index >= 0 else torch.device("cpu")

    def nbytes(self) -> int:
        """Size in bytes, before rounding."""
        return self._storage.nbytes

    def size(self) -> int:
        """Same as `nbytes`, as for untyped storages."""
        return self._storage.nbytes

    __len__ = size

    def data_ptr(self) -> int:
        """The stand-in address."""
        return self._storage.address()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the bytes are page-locked."""
        return self._storage.pinned

    def resize_(self, nbytes: int) -> StorageView:
        """Change the size; zero gives the memory back."""
        self._storage.resize(nbytes)
        return self

    def tolist(self) -> list[int]:
        """Raises `NoValue`: there are no bytes to read."""
        raise self._no_bytes("tolist")

    def __getitem__(self, index: Any) -> Any:
        raise self._no_bytes("__getitem__")

    def __bytes__(self) -> bytes:
        raise self._no_bytes("__bytes__")

    def _no_bytes(self, operator: str) -> Exception:
        from paretune.harness.simulator.errors import no_bytes

        return no_bytes(self._storage, f"untyped_storage().{operator}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageView) and self._storage is other._storage

    def __hash__(self) -> int:
        return id(self._storage)
