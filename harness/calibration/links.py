"""How fast bytes go between host and card, pinned and pageable, many small against one large; and to disk."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from paretune.harness.calibration.stopwatch import Stopwatch

__all__ = ["copy_overheads", "disk_rates", "host_rates", "link_rates"]


def link_rates(watch: Stopwatch, num_bytes: int) -> Mapping[str, float]:
    """Bytes per second of one large copy: pinned and pageable, each way; to the host always into fresh memory."""
    device = watch.device
    pageable = torch.ones(num_bytes, dtype=torch.uint8)
    pinned = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    works = {
        "pinned_h2d_bytes_per_s": lambda: there.copy_(pinned, non_blocking=True),
        "pinned_d2h_bytes_per_s": lambda: pinned.copy_(there, non_blocking=True),
        "pageable_h2d_bytes_per_s": lambda: there.copy_(pageable),
        "pageable_d2h_bytes_per_s": lambda: there.cpu(),
    }
    return {name: num_bytes / watch.whole_s(work) for name, work in works.items()}


def copy_overheads(watch: Stopwatch) -> Mapping[str, float]:
    """Seconds of one tiny pinned copy: ``copy_call_s`` on the host, ``copy_latency_s`` on the engine."""
    pinned = torch.ones(512, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(512, dtype=torch.uint8, device=watch.device)

    def copy() -> object:
        return there.copy_(pinned, non_blocking=True)

    call_s = watch.submitting_s(copy)
    return {"copy_call_s": call_s, "copy_latency_s": max(watch.whole_s(copy) - call_s, 1e-6)}


def host_rates(watch: Stopwatch, num_bytes: int) -> Mapping[str, float]:
    """Bytes per second of a copy inside host memory, and of page-locking fresh memory."""
    source = torch.ones(num_bytes, dtype=torch.uint8)
    target = torch.empty_like(source)
    memcpy_s = watch.whole_s(lambda: target.copy_(source))
    fresh_bytes = 2 * num_bytes  # larger than anything pinned before, or the allocator hands out what is pinned already
    began = watch.host_clock()
    kept = torch.empty(fresh_bytes, dtype=torch.uint8, pin_memory=True)
    pin_s = watch.host_clock() - began
    del kept
    return {"memcpy_bytes_per_s": num_bytes / memcpy_s, "pin_bytes_per_s": fresh_bytes / max(pin_s, 1e-9)}


def disk_rates(folder: Path, num_bytes: int) -> Mapping[str, float]:
    """Bytes per second written to and read from a file in ``folder``; reading bypasses the page cache where it can."""
    block = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(num_bytes >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        written_s = time.perf_counter() - began
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        file.seek(0)
        while file.read(1 << 20):
            pass
        read_s = time.perf_counter() - began
    return {"disk_write_bytes_per_s": num_bytes / written_s, "disk_read_bytes_per_s": num_bytes / read_s}
