"""The caching allocator keeps PyTorch's geometry: rounding, segments, splits, merges, pools per stream, release and retry."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.harness.simulator.allocator import CachingAllocator, OutOfDeviceMemory

MIB = 1 << 20


def fresh(limit_mib: int = 4096, **options: bool) -> CachingAllocator:
    return CachingAllocator(limit_bytes=limit_mib * MIB, **options)


@pytest.mark.parametrize(
    ("request_bytes", "block_bytes", "reserved_bytes"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (9 * MIB, 9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),
        (19 * MIB + 512, 20 * MIB, 20 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(request_bytes: int, block_bytes: int, reserved_bytes: int) -> None:
    allocator = fresh()
    block = allocator.allocate(request_bytes)
    assert (block.size_bytes, allocator.reserved_bytes) == (block_bytes, reserved_bytes)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = fresh()
    large, small = allocator.allocate(64 * MIB), allocator.allocate(32 * MIB)
    addresses = {large.address: "large", small.address: "small"}
    allocator.free(large)
    allocator.free(small)
    assert addresses[allocator.allocate(31 * MIB + 512).address] == "small"


def test_neighbours_merge_and_the_segment_is_whole_again() -> None:
    allocator = fresh()
    blocks = [allocator.allocate(2 * MIB) for _ in range(3)]
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.free(block)
    (segment,) = allocator.segments.values()
    assert [block.size_bytes for block in allocator.blocks(segment)] == [20 * MIB]


def test_segments_never_merge_so_order_costs_memory() -> None:
    allocator = fresh()
    for block in [allocator.allocate(16 * MIB) for _ in range(8)]:
        allocator.free(block)
    for _ in range(4):
        allocator.allocate(32 * MIB)
    assert allocator.reserved_bytes == 256 * MIB


def test_expandable_segments_do_not_suffer_from_order() -> None:
    allocator = fresh(expandable_segments=True)
    for block in [allocator.allocate(16 * MIB) for _ in range(8)]:
        allocator.free(block)
    for _ in range(4):
        allocator.allocate(32 * MIB)
    assert allocator.reserved_bytes <= 140 * MIB


def test_streams_have_pools_of_their_own() -> None:
    allocator = fresh()
    allocator.free(allocator.allocate(16 * MIB, stream=0))
    allocator.allocate(16 * MIB, stream=1)
    assert allocator.reserved_bytes == 32 * MIB


def test_a_full_card_releases_free_segments_and_tries_again() -> None:
    allocator = fresh(limit_mib=100)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(80 * MIB)
    assert (allocator.reserved_bytes, allocator.num_retries) == (80 * MIB, 1)


def test_a_segment_with_one_live_block_is_not_released() -> None:
    allocator = fresh(limit_mib=100)
    kept, freed = allocator.allocate(2 * MIB), allocator.allocate(18 * MIB)
    allocator.free(freed)
    with pytest.raises(OutOfDeviceMemory):
        allocator.allocate(90 * MIB)
    assert kept.in_use


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30 * MIB), st.integers(0, 2), st.booleans()), max_size=40), st.booleans())
def test_books_balance(steps: list[tuple[int, int, bool]], expandable: bool) -> None:
    allocator = fresh(limit_mib=1 << 14, expandable_segments=expandable)
    live = []
    for size, stream, frees in steps:
        live.append(allocator.allocate(size, stream))
        if frees:
            allocator.free(live.pop(0))
        spans = sorted((b.address, b.size_bytes) for b in live)
        assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(spans))
        held = [block for segment in allocator.segments.values() for block in allocator.blocks(segment)]
        assert sum(block.size_bytes for block in held) == allocator.reserved_bytes
        assert {id(block) for block in held if block.in_use} == {id(block) for block in live}
    for block in live:
        allocator.free(block)
    allocator.release_cached()
    assert allocator.reserved_bytes == 0
