"""Draw bytes, seconds and ratios: the only place where a figure is rounded and gets its unit."""

from __future__ import annotations

__all__ = ["GIB_BYTES", "gib", "gib_text", "percent", "ratio", "seconds", "size_text"]

GIB_BYTES = 2**30


def gib(size_bytes: float) -> str:
    """Bytes in GiB (2^30), two digits; small sizes keep two significant ones."""
    value = size_bytes / GIB_BYTES
    return f"{value:.2f}" if abs(value) >= 0.095 or value == 0 else f"{value:.2g}"


def gib_text(size_bytes: float) -> str:
    """Bytes in GiB with the unit written out."""
    return f"{gib(size_bytes)} GiB"


def size_text(size_bytes: float) -> str:
    """Bytes in the unit in which two sizes of a comparison can be told apart: GiB, MiB, below that exact bytes."""
    if abs(size_bytes) >= GIB_BYTES:
        return f"{size_bytes / GIB_BYTES:,.2f} GiB"
    return f"{size_bytes / 2**20:,.1f} MiB" if abs(size_bytes) >= 2**20 else f"{size_bytes:,.0f} bytes"


def seconds(duration_s: float) -> str:
    """Seconds with three significant digits, as s, ms or us."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if duration_s * scale >= 1:
            return f"{_three_digits(duration_s * scale)} {unit}"
    return f"{_three_digits(duration_s * 1e6)} us"


def ratio(value: float) -> str:
    """A ratio to the reference, such as 1.24x."""
    return f"{value:.2f}x"


def percent(share: float) -> str:
    """A share of one as a percentage."""
    return f"{share * 100:.1f}%"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
