"""Files mapped into memory: their bytes cost no host memory, and moving them costs the disk's time."""

from __future__ import annotations

from typing import Any

import torch

from paretune.harness.simulator.dispatch import SPECIAL
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import make_tensor
from paretune.harness.simulator.timeline import host_work

__all__ = ["MappedStorage", "charge_disk"]


class MappedStorage(Storage):
    """Bytes of a file that is mapped into memory; the page cache that serves it is not the process's memory."""

    __slots__ = ()

    def _take(self) -> None:
        self.block = 0

    def _give_back(self) -> None:
        self.block = None


def charge_disk(machine: Machine, source: Storage, target: Storage, nbytes: int) -> None:
    """Charge the host, which waits, for reading from or writing to mapped files in a copy of ``nbytes``."""
    if isinstance(source, MappedStorage):
        machine.traffic.disk_read_bytes += nbytes
        host_work(machine, nbytes / machine.host.disk_read_bytes_per_s)
    if isinstance(target, MappedStorage):
        machine.traffic.disk_write_bytes += nbytes
        host_work(machine, nbytes / machine.host.disk_write_bytes_per_s)


def _from_file(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = {**dict(zip(("filename", "shared", "size"), args)), **kwargs}
    dtype = named.get("dtype") or torch.get_default_dtype()
    size = int(named.get("size") or 0)
    return make_tensor(MappedStorage(machine, -1, size * dtype.itemsize), dtype, (size,), (1,))


SPECIAL[torch.ops.aten.from_file.default] = _from_file
