"""Copies beside computation: no kernel reads before its copy, and no copy writes what is still to be read."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import pytest
import torch
from support.streams import Computing, FakeDevice, Race, TracedLink
from support.toys import MODULES, Case

from paretune.strategies.mechanics.blocks import block_groups, find_blocks, leaf_groups
from paretune.strategies.mechanics.entries import watch
from paretune.strategies.mechanics.host_store import DiskStore, FoundStore
from paretune.strategies.mechanics.link import Link
from paretune.strategies.mechanics.residency import Residency
from paretune.strategies.mechanics.ring import Ring
from paretune.strategies.mechanics.staging import Staging

TOYS = [case for case in MODULES if case.name in ("out_of_order", "tied_weights", "reads_children")]
OPTIONS = [
    *itertools.product(("block", "leaf"), ("memory", "disk"), (False, True), (0, 2), (1,)),
    ("block", "memory", False, 0, 2),
    ("block", "memory", True, 3, 2),
    ("leaf", "disk", False, 2, 3),
]


def residency(case_model: torch.nn.Module, api: FakeDevice, tmp_path: Path, options: tuple) -> Residency:
    level, store, records, num_buffers, look_ahead = options
    ring = Ring(num_buffers=num_buffers, slot_bytes=0) if num_buffers else None
    link = TracedLink(api, record_stream=records, ring=ring)
    made = Residency(
        case_model,
        block_groups if level == "block" else leaf_groups,
        link,
        store=DiskStore(tmp_path) if store == "disk" else FoundStore(),
        staging=Staging(num_buffers=look_ahead + 2, pin=False) if store == "disk" else None,
        look_ahead=look_ahead,
    )
    made.start()
    return made


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_access_to_device_memory_is_ordered(options: tuple, tmp_path: Path) -> None:
    for case in TOYS:
        reference, model, api, closers = case.model(), case.model(), FakeDevice(), []
        placed = residency(model, api, tmp_path, options)
        watch(placed, closers.append)
        with torch.no_grad(), Computing(api):
            for _ in range(3):
                assert torch.equal(model(case.input()), reference(case.input()))
        assert placed.resident_bytes == 0
        assert any(entry.startswith("read on stream0") for entry in api.log)
        placed.close()
        for close in reversed(closers):
            close()
    assert list(tmp_path.iterdir()) == []


def test_the_detector_finds_a_copy_that_nothing_waits_for() -> None:
    api = FakeDevice()
    link = TracedLink(api)
    transit = link.fetch(4, [(0, torch.ones(4, dtype=torch.uint8))])
    with pytest.raises(Race), Computing(api):
        transit.buffer.sum()
    link.arrive(transit)
    with Computing(api):
        transit.buffer.sum()


def test_the_detector_finds_memory_that_is_reused_too_early() -> None:
    api = FakeDevice()
    link = TracedLink(api)
    transit = link.fetch(4, [(0, torch.ones(4, dtype=torch.uint8))])
    del transit
    gc.collect()
    with pytest.raises(Race, match="reused"):
        link.fetch(4, [(0, torch.ones(4, dtype=torch.uint8))])


def test_the_recorded_stream_is_the_callers_and_not_the_copy_stream() -> None:
    api = FakeDevice()
    link = TracedLink(api, record_stream=True)
    mine = api.Stream()
    with api.stream(mine):
        transit = link.fetch(4, [(0, torch.ones(4, dtype=torch.uint8))])
        link.arrive(transit)
    assert api.live[transit.buffer.untyped_storage()._cdata].recorded == {mine.name}


def test_a_pinned_source_outlives_its_copy() -> None:
    staging = Staging(num_buffers=2, pin=False)
    api = FakeDevice()
    link = TracedLink(api)
    waits: list[int] = []

    def send(value: int) -> None:
        gathered = staging.gather(4, [(0, torch.full((4,), value, dtype=torch.uint8))])
        transit = link.fetch(4, gathered)
        link.arrive(transit)
        transit.arrived.synchronize = lambda: waits.append(value)
        staging.sent(transit)

    for value in range(4):
        send(value)
    assert waits == [0, 1]


@pytest.mark.parametrize("num_blocks, num_buffers", [(m, s) for m in range(1, 13) for s in range(1, m + 1)])
def test_a_ring_never_hands_out_a_buffer_that_is_held(num_blocks: int, num_buffers: int) -> None:
    ring = Ring(num_buffers=num_buffers, slot_bytes=8)
    held: dict[int, torch.Tensor] = {}
    for step in range(3 * num_blocks):
        if len(held) == num_buffers:
            ring.give(held.pop(min(held)), None)
        buffer, _ = ring.take(torch.device("cpu"))
        assert not any(buffer is other for other in held.values())
        held[step] = buffer
    assert ring.num_held == len(held) <= num_buffers


def test_more_held_than_the_ring_has_is_served_and_let_go_again() -> None:
    ring = Ring(num_buffers=1, slot_bytes=8)
    first, second = (ring.take(torch.device("cpu"))[0] for _ in range(2))
    assert first is not second
    ring.give(first, None)
    ring.give(second, None)
    assert ring.take(torch.device("cpu"))[0] is second


def test_a_copy_without_streams_is_there_when_fetch_returns() -> None:
    link = Link(torch.device("cpu"))
    transit = link.fetch(4, [(0, torch.arange(4, dtype=torch.uint8))])
    assert transit.buffer.tolist() == [0, 1, 2, 3]


def test_blocks_that_stay_are_copied_once(tmp_path: Path) -> None:
    case: Case = MODULES[0]
    model, api, closers = case.model(), FakeDevice(), []
    stay = {find_blocks(model)[0].module}
    link = TracedLink(api)
    placed = Residency(model, lambda m: block_groups(m, resident=stay), link, look_ahead=1)
    placed.start()
    watch(placed, closers.append)
    with torch.no_grad():
        for _ in range(3):
            model(case.input())
    num_copies = sum(entry.startswith("write") for entry in api.log)
    assert num_copies == 1 + 3 * 2 + 3, "one block once, two blocks a pass, and what lies outside of blocks a pass"
