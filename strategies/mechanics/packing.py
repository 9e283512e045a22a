"""Lay buffers into chunks whose sizes are powers of two, wasting little: page-locked blocks are rounded up to those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["LARGEST_CHUNK_BYTES", "pack", "power_of_two"]

LARGEST_CHUNK_BYTES = 1 << 32


def power_of_two(num_bytes: int) -> int:
    """The smallest power of two that is not below ``num_bytes``, at least 512."""
    return 1 << max(num_bytes - 1, 511).bit_length()


def pack(sizes_bytes: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Chunks as (bytes, indices into ``sizes_bytes`` in order); every index is in exactly one chunk.

    Tries each buffer by itself, and every power of two that the largest size fits in, and keeps the layout with the
    fewest bytes in total; of two equal ones the one with smaller chunks, because only one chunk's worth of weights is
    held twice while it is filled.
    """
    wanted = [index for index, size in enumerate(sizes_bytes) if size > 0]
    if not wanted:
        return []
    first = power_of_two(max(sizes_bytes[index] for index in wanted))
    alone = [(power_of_two(sizes_bytes[index]), [index]) for index in wanted]
    layouts = [alone, *(list(_layout(sizes_bytes, wanted, chunk)) for chunk in _powers(first))]
    return min(layouts, key=lambda layout: sum(chunk for chunk, _ in layout))


def _powers(first: int) -> Iterator[int]:
    yield first
    while first < LARGEST_CHUNK_BYTES:
        first *= 2
        yield first


def _layout(sizes_bytes: Sequence[int], wanted: list[int], chunk_bytes: int) -> Iterator[tuple[int, list[int]]]:
    members: list[int] = []
    used = 0
    for index in wanted:
        if members and used + sizes_bytes[index] > chunk_bytes:
            yield power_of_two(used), members
            members, used = [], 0
        members.append(index)
        used += sizes_bytes[index]
    yield power_of_two(used), members
