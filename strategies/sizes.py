"""Read and write sizes in bytes: ``12GiB`` is 12 x 2^30, ``12GB`` is 12 x 10^9, and nothing is guessed."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["SizeError", "format_gib", "format_size", "parse_size"]

_UNITS: dict[str, int] = {"B": 1} | {
    prefix + suffix: base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("K", "M", "G", "T"))
}
_UNITS["kB"] = 1000
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z", re.ASCII)


class SizeError(ValueError):
    """A size that cannot be read without guessing."""


def parse_size(value: object, *, name: str = "size") -> int:
    """Bytes of a size: a whole number of bytes (int), or text with a unit such as ``12GiB``, ``12 GB``, ``0.5MiB``.

    Letters count: a small ``b`` stands for bits elsewhere, so ``1Gb`` and ``1Gib`` are refused, as are negative,
    fractional and infinite numbers and text without a unit. ``name`` is the key or argument that messages call it by.

    Raises ``SizeError``.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SizeError(f"{name}: {value!r} is not a size. Write a text such as 12GiB, or whole bytes as an integer.")
    if isinstance(value, int):
        if value < 0:
            raise SizeError(f"{name}: {value} is negative. Write a size of zero or more.")
        return value
    match = _SIZE.match(value)
    if match is None:
        raise SizeError(f"{name}: {value!r} is not a size. Write a number and a unit, such as 12GiB or 12GB.")
    return _whole_bytes(match[1], _factor(match[2], value, name), value, name)


def _factor(unit: str, value: str, name: str) -> int:
    if unit in _UNITS:
        return _UNITS[unit]
    meant = next((known for known in _UNITS if known.lower() == unit.lower()), None)
    if unit == "":
        raise SizeError(f"{name}: {value!r} has no unit. Write GiB (2^30 bytes) or GB (10^9 bytes) behind it.")
    if meant is not None:
        raise SizeError(f"{name}: {value!r}: the unit {unit!r} is ambiguous (bits or bytes). Did you mean {meant!r}?")
    raise SizeError(f"{name}: {value!r}: unknown unit {unit!r}. Use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB.")


def _whole_bytes(digits: str, factor: int, value: str, name: str) -> int:
    exact = Fraction(digits) * factor
    if factor == 1 and exact.denominator != 1:
        raise SizeError(f"{name}: {value!r} is not a whole number of bytes. Write a whole number.")
    return int(exact)


def format_gib(num_bytes: float) -> str:
    """A size for people, always in GiB with two digits: ``11.67 GiB``."""
    return f"{num_bytes / 2**30:.2f} GiB"


def format_size(num_bytes: int) -> str:
    """The shortest text that ``parse_size`` reads back as exactly this many bytes: ``12GiB``, ``1500MB``, ``17B``."""
    for unit in ("TiB", "GiB", "TB", "GB", "MiB", "MB", "KiB", "KB"):
        if num_bytes and num_bytes % _UNITS[unit] == 0:
            return f"{num_bytes // _UNITS[unit]}{unit}"
    return f"{num_bytes}B"
