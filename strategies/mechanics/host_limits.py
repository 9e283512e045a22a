"""How much host memory may be page-locked: what the machine has free, or less where a container allows less."""

from __future__ import annotations

from pathlib import Path

__all__ = ["lockable_bytes"]

_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_USES = ("memory.current", "memory/memory.usage_in_bytes")


def lockable_bytes(
    *, control_groups: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")
) -> int | None:
    """The smaller of the machine's available memory and what the container has left; ``None`` where neither is told.

    Reads control groups of version 2 and 1 (Linux kernel documentation, cgroup-v2 and cgroup-v1/memory).
    """
    known = [room for room in (_machine(meminfo), _container(control_groups)) if room is not None]
    return min(known, default=None)


def _machine(meminfo: Path) -> int | None:
    if not meminfo.is_file():
        return None
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container(root: Path) -> int | None:
    for limit_name, use_name in zip(_LIMITS, _USES):
        limit, use = root / limit_name, root / use_name
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            used = int(use.read_text()) if use.is_file() else 0
            return max(int(text) - used, 0)
    return None
