"""Advance the simulated clocks: kernels on a card's compute engine, copies on its two copy engines, work of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine, SimulatedCard

__all__ = ["LAUNCH_QUEUE", "copy_between_cards", "copy_over_link", "host_work", "launch"]


H2D, D2H, PEER = "copy from host to device", "copy from device to host", "copy from device to device"
"""Copies stand among the operators of a trial under these names, whichever operator asked for them."""
LAUNCH_QUEUE = 1024
"""Kernels that may wait for a card before a launch holds the host: the depth of CUDA's launch queue."""


def launch(card: SimulatedCard, kernel_s: float, host_s: float) -> None:
    """Submit a kernel on the current stream: it starts after the host, its stream and the compute engine are ready.

    The host itself waits while `LAUNCH_QUEUE` earlier kernels are not done.
    """
    machine, stream, queue = card.machine, card.current, card.launched
    recorder = machine.recorder
    if recorder is not None:
        recorder.launches(card.index, kernel_s, host_s)
    host_now = machine.host_s + host_s
    if len(queue) == LAUNCH_QUEUE and queue[0] > host_now:
        host_now = queue[0]
    machine.host_s = host_now
    idle_since = card.compute_free_s
    start = stream.ready_s
    if host_now > start:
        start = host_now
    if idle_since > start:
        start = idle_since
    traffic = machine.traffic
    stream.ready_s = card.compute_free_s = end = start + kernel_s
    if card.h2d_free_s > idle_since:
        if start > idle_since:
            traffic.stall_s += _arriving_s(card, max(idle_since, machine.call_began_s), start)
        traffic.overlap_s += _arriving_s(card, start, end)
    queue.append(end)
    traffic.kernel_s += kernel_s
    traffic.num_kernels += 1
    if recorder is not None:
        recorder.submitted()


def host_work(machine: Machine, seconds: float) -> None:
    """The host computes by itself."""
    machine.host_s += seconds


def copy_over_link(card: SimulatedCard, size_bytes: int, *, to_device: bool, pinned: bool, non_blocking: bool) -> None:
    """Copy between the host and a card: pinned copies run on their direction's engine, pageable ones hold the host."""
    machine, sheet, host = card.machine, card.sheet, card.machine.host
    machine.spoil()
    traffic = machine.traffic
    if to_device:
        traffic.h2d_bytes += size_bytes
        machine.operators[H2D] += 1
        engine, rate, pageable_rate = "h2d_free_s", sheet.pinned_h2d_bytes_per_s, host.pageable_h2d_bytes_per_s
    else:
        traffic.d2h_bytes += size_bytes
        machine.operators[D2H] += 1
        engine, rate, pageable_rate = "d2h_free_s", sheet.pinned_d2h_bytes_per_s, host.pageable_d2h_bytes_per_s
    if not pinned:
        traffic.pageable_bytes += size_bytes
        rate = min(rate, pageable_rate)
    end = _on_engine(card, engine, size_bytes / rate)
    if not pinned or not non_blocking:
        traffic.num_synchronisations += 1
        machine.wait(end)


def copy_between_cards(source: SimulatedCard, target: SimulatedCard, size_bytes: int) -> None:
    """Copy from card to card over their link; both current streams take part."""
    machine = source.machine
    machine.spoil()
    machine.traffic.peer_bytes += size_bytes
    machine.operators[PEER] += 1
    machine.traffic.num_copies += 1
    machine.host_s += machine.host.copy_call_s
    start = max(source.current.ready_s, target.current.ready_s, machine.host_s, source.d2h_free_s, target.h2d_free_s)
    seconds = machine.host.copy_latency_s + size_bytes / source.sheet.peer_bytes_per_s
    end = start + seconds
    source.current.ready_s = target.current.ready_s = source.d2h_free_s = target.h2d_free_s = end
    _remember_arrival(target, start, end)
    machine.traffic.copy_s += seconds


def _on_engine(card: SimulatedCard, engine: str, transfer_s: float) -> float:
    machine, stream = card.machine, card.current
    host = machine.host
    machine.host_s += host.copy_call_s
    free_s: float = getattr(card, engine)
    start = max(stream.ready_s, machine.host_s, free_s)
    seconds = host.copy_latency_s + transfer_s
    end = start + seconds
    setattr(card, engine, end)
    if engine == "h2d_free_s":
        _remember_arrival(card, start, end)
    stream.ready_s = end
    traffic = machine.traffic
    traffic.num_copies += 1
    traffic.copy_s += seconds
    traffic.overlap_s += max(min(end, card.compute_free_s) - start, 0.0)
    return end


def _remember_arrival(card: SimulatedCard, start: float, end: float) -> None:
    """Keep when the engine towards the device worked, as far as computing has not passed that time yet."""
    arrivals = card.arrivals
    while arrivals and arrivals[0][1] <= card.compute_free_s:
        arrivals.popleft()
    arrivals.append((start, end))


def _arriving_s(card: SimulatedCard, since: float, until: float) -> float:
    """For how long of a stretch of time the engine towards the device works on copies that were submitted so far."""
    shared = (min(until, end) - max(since, began) for began, end in card.arrivals)
    return sum(seconds for seconds in shared if seconds > 0)
