"""A caching device allocator in PyTorch's geometry: rounding, pools per stream, segments, splits, merges, retries."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Allocation", "CachingAllocator", "OutOfDeviceMemory", "Segment"]

ROUNDING_BYTES = 512
SMALL_BYTES = 1 << 20
"""Requests up to this size live in the small pool; the large pool splits only when more than this remains."""
SMALL_SEGMENT_BYTES = 2 << 20
MIDDLE_SEGMENT_BYTES = 20 << 20
LARGE_REQUEST_BYTES = 10 << 20
SEGMENT_ROUNDING_BYTES = 2 << 20
FIRST_ADDRESS = 0x7F00_0000_0000


class OutOfDeviceMemory(Exception):
    """A segment does not fit although every free segment was released."""

    def __init__(self, segment_bytes: int) -> None:
        super().__init__(segment_bytes)
        self.segment_bytes = segment_bytes


@dataclass(slots=True, eq=False)
class Segment:
    """One piece of memory taken from the driver."""

    address: int
    size_bytes: int
    stream: int
    is_small: bool
    is_expandable: bool = False


class Allocation:
    """One block of a segment: in use, waiting for a stream, or free."""

    __slots__ = ("address", "in_use", "next", "pool", "previous", "requested_bytes", "segment", "size_bytes", "stream")

    def __init__(
        self, address: int, size_bytes: int, segment: Segment, pool: list[tuple[int, int, Allocation]]
    ) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.requested_bytes = 0
        self.segment = segment
        self.stream = segment.stream
        self.pool = pool
        self.in_use = False
        self.previous: Allocation | None = None
        self.next: Allocation | None = None


Pool = list[tuple[int, int, Allocation]]


class CachingAllocator:
    """Blocks of one device; all sizes in bytes. The rules are those of PyTorch's CUDACachingAllocator with its defaults."""

    def __init__(self, *, limit_bytes: int, expandable_segments: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self.expandable_segments = expandable_segments
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self.num_retries = 0
        self.segments: dict[int, Segment] = {}
        self._first_block: dict[int, Allocation] = {}
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._next_address = FIRST_ADDRESS
        self.on_segment: Callable[[str, int, int, int], None] | None = None
        """Is told what is taken from the driver or given back: action, address, bytes, stream."""

    def allocate(self, size_bytes: int, stream: int = 0) -> Allocation:
        """Take the best fitting free block of the stream's pool, or a new segment; raises `OutOfDeviceMemory`."""
        rounded = (size_bytes + 511) & -512 or ROUNDING_BYTES
        is_small = rounded <= SMALL_BYTES
        pool = self._pools.get((stream, is_small))
        if pool is None:
            pool = self._pools[stream, is_small] = []
        position = bisect_left(pool, (rounded,))
        found = position < len(pool)
        block = pool.pop(position)[2] if found else self._grow(rounded, pool, stream, is_small)
        self._split(block, rounded, is_small)
        block.in_use = True
        block.requested_bytes = size_bytes
        return block

    def free(self, block: Allocation) -> None:
        """Give a block back to its pool, merged with its free neighbours."""
        block.in_use = False
        pool = block.pool
        after = block.next
        if after is not None and not after.in_use:
            self._take(pool, after)
            self._absorb(block, after)
        before = block.previous
        if before is not None and not before.in_use:
            self._take(pool, before)
            self._absorb(before, block)
            block = before
        insort(pool, (block.size_bytes, block.address, block))

    def release_cached(self) -> int:
        """Return wholly free segments to the driver; the bytes that were released."""
        released = 0
        for pool in self._pools.values():
            for entry in list(pool):
                released += self._release(pool, entry[2])
        self.reserved_bytes -= released
        return released

    def blocks(self, segment: Segment) -> list[Allocation]:
        """The segment's blocks in the order of their addresses."""
        found: list[Allocation] = []
        block: Allocation | None = self._first_block[segment.address]
        while block is not None:
            found.append(block)
            block = block.next
        return found

    @staticmethod
    def segment_bytes(rounded_bytes: int) -> int:
        """The size of the segment that a request asks from the driver."""
        if rounded_bytes <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if rounded_bytes < LARGE_REQUEST_BYTES:
            return MIDDLE_SEGMENT_BYTES
        return -(-rounded_bytes // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES

    def _grow(self, rounded: int, pool: Pool, stream: int, is_small: bool) -> Allocation:
        if self.expandable_segments:
            return self._extend(rounded, pool, stream, is_small)
        size = self.segment_bytes(rounded)
        self._reserve(size)
        segment = Segment(self._new_address(size), size, stream, is_small)
        return self._add_segment(segment, pool)

    def _extend(self, rounded: int, pool: Pool, stream: int, is_small: bool) -> Allocation:
        """Map more pages at the end of the stream's one expandable segment; a free tail block is used first."""
        page = SMALL_SEGMENT_BYTES if is_small else MIDDLE_SEGMENT_BYTES
        segment = next((s for s in self.segments.values() if s.stream == stream and s.is_small is is_small), None)
        if segment is None:
            size = -(-rounded // page) * page
            self._reserve(size)
            return self._add_segment(Segment(self._new_address(1 << 44), size, stream, is_small, True), pool)
        tail = self.blocks(segment)[-1]
        missing = rounded - (0 if tail.in_use else tail.size_bytes)
        mapped = -(-missing // page) * page
        self._reserve(mapped)
        segment.size_bytes += mapped
        self._tell("segment_map", segment, segment.address + segment.size_bytes - mapped, mapped)
        if not tail.in_use:
            self._take(pool, tail)
            tail.size_bytes += mapped
            return tail
        block = Allocation(tail.address + tail.size_bytes, mapped, segment, pool)
        block.previous, tail.next = tail, block
        return block

    def _reserve(self, size: int) -> None:
        if self.reserved_bytes + size > self.limit_bytes:
            self.num_retries += 1
            self.release_cached()
            if self.reserved_bytes + size > self.limit_bytes:
                raise OutOfDeviceMemory(size)
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _new_address(self, span: int) -> int:
        address = self._next_address
        self._next_address += -(-span // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES
        return address

    def _add_segment(self, segment: Segment, pool: Pool) -> Allocation:
        block = Allocation(segment.address, segment.size_bytes, segment, pool)
        self.segments[segment.address] = segment
        self._first_block[segment.address] = block
        self._tell("segment_alloc", segment, segment.address, segment.size_bytes)
        return block

    def _tell(self, action: str, segment: Segment, address: int, size_bytes: int) -> None:
        if self.on_segment is not None and size_bytes:
            self.on_segment(action, address, size_bytes, segment.stream)

    def _split(self, block: Allocation, rounded: int, is_small: bool) -> None:
        rest = block.size_bytes - rounded
        if rest < ROUNDING_BYTES if is_small or block.segment.is_expandable else rest <= SMALL_BYTES:
            return
        remainder = Allocation(block.address + rounded, rest, block.segment, block.pool)
        remainder.previous, remainder.next = block, block.next
        if block.next is not None:
            block.next.previous = remainder
        block.next = remainder
        block.size_bytes = rounded
        insort(block.pool, (rest, remainder.address, remainder))

    @staticmethod
    def _take(pool: Pool, block: Allocation) -> None:
        del pool[bisect_left(pool, (block.size_bytes, block.address))]

    @staticmethod
    def _absorb(block: Allocation, after: Allocation) -> None:
        block.size_bytes += after.size_bytes
        block.next = after.next
        if after.next is not None:
            after.next.previous = block

    def _release(self, pool: Pool, block: Allocation) -> int:
        if block.segment.is_expandable:
            return self._unmap_tail(pool, block)
        if block.previous is not None or block.next is not None:
            return 0
        self._take(pool, block)
        del self.segments[block.segment.address], self._first_block[block.segment.address]
        self._tell("segment_free", block.segment, block.segment.address, block.segment.size_bytes)
        return block.segment.size_bytes

    def _unmap_tail(self, pool: Pool, block: Allocation) -> int:
        """Unmap the whole pages of an expandable segment's free tail."""
        if block.next is not None:
            return 0
        page = SMALL_SEGMENT_BYTES if block.segment.is_small else MIDDLE_SEGMENT_BYTES
        released = block.size_bytes // page * page
        self._take(pool, block)
        block.segment.size_bytes -= released
        self._tell("segment_unmap", block.segment, block.segment.address + block.segment.size_bytes, released)
        block.size_bytes -= released
        if block.size_bytes:
            insort(pool, (block.size_bytes, block.address, block))
        elif block.previous is not None:
            block.previous.next = None
        else:
            del self.segments[block.segment.address], self._first_block[block.segment.address]
        return released
