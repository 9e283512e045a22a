"""Whether the machine was well while something was measured: pages that went to swap, processes that the kernel killed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["counters", "disturbance"]

_VMSTAT = Path("/proc/vmstat")
_SWAPPED = ("pswpin", "pswpout")
_FEW_PAGES = 256
"""So many pages (1 MiB of 4 KiB ones) come and go on any machine with swap."""


def counters(path: Path = _VMSTAT) -> dict[str, int]:
    """The kernel's counts since it was started; empty where it keeps none."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    kept = (*_SWAPPED, "oom_kill")
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in kept and pair[1].isdigit()}


def disturbance(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What happened in between that makes a measurement unreliable: ``swapped_pages``, ``killed_processes``; else empty."""
    swapped = sum(after[name] - before[name] for name in _SWAPPED if name in before and name in after)
    killed = after.get("oom_kill", 0) - before.get("oom_kill", after.get("oom_kill", 0))
    found = {"swapped_pages": swapped if swapped > _FEW_PAGES else 0, "killed_processes": killed}
    return {name: count for name, count in found.items() if count > 0}
