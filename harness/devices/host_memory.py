"""Peak host memory of this process, read from the kernel's own high-water mark so that no short peak is missed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_bytes", "reset_peak"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Start the high-water mark anew from what is used now; False where the system cannot (then it covers everything)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int | None:
    """The high-water mark of resident memory in bytes (``VmHWM``), ``None`` where the system does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
