"""The simulated clock: kernels queue behind the host, copies overlap when pinned, pageable copies hold the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.simulation import Simulation as Running
from paretune.harness.simulator.timeline import LAUNCH_QUEUE


@pytest.fixture
def sim() -> Iterator[Running]:
    with Simulation("rtx-4090") as running, torch.no_grad():
        yield running


def elapsed_s(sim: Running, work: object) -> float:
    torch.sim.synchronize()
    before = sim.machine.host_s
    work()  # type: ignore[operator]
    torch.sim.synchronize()
    return sim.machine.host_s - before


def test_large_products_take_their_roofline(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    seconds = elapsed_s(sim, lambda: a @ a)
    ideal = 2 * 8192**3 / sim.machine.sheet.dense_flops_per_s["bfloat16"]
    assert ideal < seconds < 1.35 * ideal


def test_the_host_runs_ahead_until_something_waits(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    before = sim.machine.host_s
    for _ in range(10):
        a @ a
    submitted = sim.machine.host_s - before
    torch.sim.synchronize()
    assert submitted < 0.1 * (sim.machine.host_s - before)


def test_pinned_copies_run_beside_kernels_on_another_stream(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    weights = torch.empty(1 << 26, dtype=torch.bfloat16).pin_memory()
    stream = torch.sim.Stream()

    def copy() -> None:
        with torch.sim.stream(stream):
            weights.to("sim", non_blocking=True)

    def both() -> None:
        copy()
        a @ a

    alone = elapsed_s(sim, copy), elapsed_s(sim, lambda: a @ a)
    assert elapsed_s(sim, both) < 0.75 * sum(alone)


def test_a_launch_waits_while_the_launch_queue_is_full(sim: Running) -> None:
    a = torch.empty(4096, 4096, dtype=torch.bfloat16, device="sim")
    one_s = elapsed_s(sim, lambda: a @ a)
    before = sim.machine.host_s
    for _ in range(LAUNCH_QUEUE + 200):
        a @ a
    submitted = sim.machine.host_s - before
    torch.sim.synchronize()
    assert submitted > 150 * one_s
    assert sim.machine.host_s - before == pytest.approx((LAUNCH_QUEUE + 200) * one_s, rel=0.1)


def test_what_other_streams_still_use_is_bounded_by_the_launch_queue() -> None:
    with Simulation("rtx-4090", memory_bytes=400 << 30) as running, torch.no_grad():
        a = torch.empty(4096, 4096, dtype=torch.bfloat16, device="sim")
        side = torch.sim.Stream()
        for _ in range(3 * LAUNCH_QUEUE):
            with torch.sim.stream(side):
                weights = torch.empty(1 << 20, dtype=torch.uint8, device="sim")
            weights.record_stream(torch.sim.current_stream())
            a @ a
            del weights
        held = torch.sim.max_memory_reserved() - torch.sim.memory_allocated()
        assert running.machine.cards[0].num_allocations > 3 * LAUNCH_QUEUE
    assert 0.5 * LAUNCH_QUEUE < held / 2**20 < 2.2 * LAUNCH_QUEUE


@pytest.mark.parametrize(
    "make", [torch.empty_like, lambda a: a.new_empty(7, 5), lambda a: torch.empty(9, device="sim")]
)
def test_memory_that_nothing_writes_runs_no_kernel(sim: Running, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    a = torch.empty(1 << 20, device="sim")
    side = torch.sim.Stream()
    with torch.sim.stream(side):
        make(a)
        assert (sim.machine.traffic.num_kernels, side.ready_s) == (0, 0.0)
        a.zero_()
    assert sim.machine.traffic.num_kernels == 1


def test_overlap_counts_whichever_of_copy_and_computing_was_submitted_first(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    weights = torch.empty(1 << 24, dtype=torch.bfloat16).pin_memory()
    side, shares = torch.sim.Stream(), []

    def copy() -> None:
        with torch.sim.stream(side):
            weights.to("sim", non_blocking=True)

    for first, second in ((copy, lambda: a @ a), (lambda: a @ a, copy)):
        torch.sim.synchronize()
        sim.machine.start_call()
        first()
        second()
        torch.sim.synchronize()
        shares.append(sim.machine.traffic.overlap_s / sim.machine.traffic.copy_s)
    assert shares[0] > 0.9 and shares[1] > 0.9


def test_libraries_that_empty_the_cache_reach_the_card(sim: Running) -> None:
    import accelerate.hooks
    import accelerate.utils.memory

    outside = accelerate.hooks.clear_device_cache
    for clear in (outside, accelerate.utils.memory.clear_device_cache):
        torch.empty(1 << 26, dtype=torch.uint8, device="sim")
        assert torch.sim.memory_reserved() > torch.sim.memory_allocated()
        clear()
        assert torch.sim.memory_reserved() == torch.sim.memory_allocated()
    sim.__exit__(None, None, None)
    try:
        assert accelerate.hooks.clear_device_cache is not outside
    finally:
        sim.__enter__()


def test_pageable_copies_hold_the_host(sim: Running) -> None:
    weights = torch.empty(1 << 26, dtype=torch.bfloat16)
    before = sim.machine.host_s
    weights.to("sim", non_blocking=True)
    expected = 2 * (1 << 26) / sim.machine.host.pageable_h2d_bytes_per_s
    assert sim.machine.host_s - before >= expected


def test_one_large_copy_is_cheaper_than_many_small_ones(sim: Running) -> None:
    whole = torch.empty(1 << 22, dtype=torch.bfloat16).pin_memory()
    parts = [torch.empty(1 << 12, dtype=torch.bfloat16).pin_memory() for _ in range(1 << 10)]
    one = elapsed_s(sim, lambda: whole.to("sim", non_blocking=True))
    many = elapsed_s(sim, lambda: [part.to("sim", non_blocking=True) for part in parts])
    assert many > 5 * one


def test_a_card_that_is_idle_for_other_reasons_does_not_stall_on_copies() -> None:
    with Simulation("rtx-4090", num_devices=2) as sim, torch.no_grad():
        first, second = (torch.empty(8192, 8192, dtype=torch.bfloat16, device=f"sim:{index}") for index in range(2))
        first @ first
        second @ second
        torch.sim.synchronize(0)
        torch.sim.synchronize(1)
        sim.machine.start_call()
        for _ in range(20):
            answer = first @ first
        second @ answer.to("sim:1")
        traffic = sim.machine.traffic
        assert 0 < traffic.stall_s <= traffic.copy_s < 0.5 * traffic.kernel_s


def test_only_what_computing_waits_for_is_a_stall(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    weights = torch.empty(1 << 28, dtype=torch.bfloat16).pin_memory()
    stream = torch.sim.Stream()

    def stalled(*, is_hidden: bool) -> float:
        torch.sim.synchronize()
        sim.machine.start_call()
        with torch.sim.stream(stream):
            weights.to("sim", non_blocking=True)
        for _ in range(10 if is_hidden else 1):
            a @ a
        torch.sim.current_stream().wait_stream(stream)
        a @ a
        return sim.machine.traffic.stall_s

    copy_s = elapsed_s(sim, lambda: weights.to("sim", non_blocking=True))
    assert stalled(is_hidden=True) < 0.01 * copy_s < 0.3 * copy_s < stalled(is_hidden=False) < copy_s


def test_events_order_streams_and_measure(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    stream = torch.sim.Stream()
    start, end = torch.sim.Event(enable_timing=True), torch.sim.Event(enable_timing=True)
    start.record()
    a @ a
    end.record()
    stream.wait_event(end)
    assert stream.ready_s == torch.sim.current_stream().ready_s
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 1.0


def test_record_stream_delays_reuse(sim: Running) -> None:
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="sim")
    stream = torch.sim.Stream()
    held = torch.empty(64 << 20, dtype=torch.uint8, device="sim")
    with torch.sim.stream(stream):
        a @ a
    held.record_stream(stream)
    reserved = torch.sim.memory_reserved()
    del held
    again = torch.empty(64 << 20, dtype=torch.uint8, device="sim")
    assert torch.sim.memory_reserved() == reserved + (64 << 20)
    del again
    stream.synchronize()
    kept = [torch.empty(64 << 20, dtype=torch.uint8, device="sim") for _ in range(2)]
    assert torch.sim.memory_reserved() == reserved + (64 << 20)
    del kept


def test_pinned_memory_rounds_up_to_powers_of_two(sim: Running) -> None:
    kept = torch.empty(5 << 20, dtype=torch.uint8).pin_memory()
    assert kept.is_pinned()
    assert torch.sim.host_memory_stats()["allocated_bytes.current"] == 8 << 20


def test_a_stream_entered_again_inside_itself_gives_back_what_was_current(sim: Running) -> None:
    card, stream, other = sim.machine.cards[0], torch.sim.Stream(), torch.sim.Stream()
    with stream:
        with other, torch.sim.stream(stream):
            assert card.current is stream
            with stream:
                assert card.current is stream
        assert card.current is stream
    assert card.current is card.default


def test_copies_of_both_directions_run_at_their_own_rate_on_their_own_engine(sim: Running) -> None:
    card, sheet, latency_s = sim.machine.cards[0], sim.machine.sheet, sim.machine.host.copy_latency_s
    pinned = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    on_card = torch.empty(1 << 30, dtype=torch.uint8, device="sim")
    torch.sim.synchronize()
    for target, source, rate in (
        (on_card, pinned, sheet.pinned_h2d_bytes_per_s),
        (pinned, on_card, sheet.pinned_d2h_bytes_per_s),
    ):
        before = sim.machine.host_s
        target.copy_(source, non_blocking=True)
        called_s = sim.machine.host_s
        torch.sim.synchronize()
        assert called_s - before == pytest.approx(sim.machine.host.copy_call_s)
        assert sim.machine.host_s - called_s == pytest.approx(latency_s + (1 << 30) / rate)
    assert card.h2d_free_s < card.d2h_free_s == card.current.ready_s
