"""Measure on the CPU: wall clock, and the exact peak of tensor bytes from the profiler's allocation events.

The profiler reports every allocation and release of PyTorch's CPU allocator with its size. Added up in time order from a
session that was open before the model was loaded, and cut at the marks of the phases, they give the peak to the byte,
workspaces inside operators included; a dispatch mode sees none of those. Releases of memory from before the session, and
allocations of other Python threads, are invisible to it. The session slows the run, so timing has a pass of its own.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from paretune.harness.devices import host_memory
from paretune.harness.devices.base import Device, Session
from paretune.harness.devices.names import DeviceError
from paretune.harness.devices.phases import PhaseBook, StepTimes
from paretune.harness.environment import host_memory_limit_bytes
from paretune.harness.records import Kind, Peaks, Phase
from paretune.harness.simulator.explain import NOT_A_CALL
from paretune.harness.simulator.memory_timeline import MemoryTimeline, Stretch

__all__ = ["CpuDevice"]

_MARK = "paretune.phase."
_MEMORY_EVENT = "[memory]"


class CpuDevice(Device):
    """The processor of this machine; takes no options."""

    kind: ClassVar[Kind] = Kind.MEASURED
    memory_pass: ClassVar[bool] = True

    def __init__(self, spec: str) -> None:
        if spec != "cpu":
            raise DeviceError(f"device {spec!r}: the CPU takes no options. Write `cpu`.")
        super().__init__(spec)

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def facts(self) -> Mapping[str, Any]:
        return {
            "name": platform.machine(),
            "num_threads": torch.get_num_threads(),
            "host_memory_bytes": host_memory_limit_bytes(),
        }

    @contextmanager
    def session(self, *, memory: bool = True, device_memory_bytes: int | None = None) -> Iterator[Session]:
        """``device_memory_bytes`` means nothing here: host memory is bounded by the machine."""
        if not memory:
            timing = _Timing()
            try:
                yield timing
            finally:
                timing.close()
            return
        tracing = _Tracing()
        profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        try:
            with profiler:
                try:
                    yield tracing
                finally:
                    tracing.close()
        finally:
            tracing.settle(profiler)


class _Timing(Session):
    """Wall clock and the kernel's high-water mark of the whole process."""

    def __init__(self) -> None:
        self._book = PhaseBook()
        self._current: tuple[str, float] | None = None
        self._steps = StepTimes()

    def now_s(self) -> float:
        return time.perf_counter()

    def mark(self, phase: str) -> None:
        self.close()
        host_memory.reset_peak()
        self._current = (phase, time.perf_counter())

    def close(self) -> None:
        """End the running phase."""
        self._steps.end()
        ended = time.perf_counter()
        if self._current is not None:
            name, began = self._current
            self._book.add(name, Peaks(peak_host_bytes=host_memory.peak_bytes()), ended - began)
        self._current = None

    def start_call(self) -> None:
        self._steps.clear()

    def step(self) -> None:
        self._steps.begin()

    def step_latency_s(self) -> tuple[float, ...]:
        return self._steps.durations_s()

    def phases(self) -> Mapping[str, Phase]:
        return self._book.all()


class _Tracing(Session):
    """Marks phases inside a profiler session; ``settle`` reads the peaks off its events afterwards."""

    def __init__(self) -> None:
        self._phases: Mapping[str, Phase] = {}
        self._counters: dict[str, Any] = {}

    def now_s(self) -> float:
        return time.perf_counter()

    def mark(self, phase: str) -> None:
        with record_function(_MARK + phase):
            pass

    def close(self) -> None:
        """End the last phase."""
        self.mark("")

    def settle(self, profiler: profile) -> None:
        """Add up the allocation events of the finished session, phase by phase."""
        session: Any = profiler.profiler
        events = session.kineto_results.events()
        self._phases = _peaks_by_phase(events)
        self._counters = {
            "num_allocations": sum(1 for e in events if e.name() == _MEMORY_EVENT and e.nbytes() > 0),
            "memory_timeline": _timeline(_in_order(events)),
        }

    def phases(self) -> Mapping[str, Phase]:
        return self._phases

    def counters(self) -> Mapping[str, Any]:
        return self._counters


def _peaks_by_phase(events: Any) -> Mapping[str, Phase]:
    book, live, name, top = PhaseBook(), 0, "", 0
    for event in _in_order(events):
        if event.name() == _MEMORY_EVENT:
            live += event.nbytes()
            top = max(top, live)
            continue
        if name:
            book.add(name, Peaks(peak_allocated_bytes=top), None)
        name, top = event.name().removeprefix(_MARK), live
    return book.all()


def _in_order(events: Any) -> list[Any]:
    """Allocations, releases and marks, by time."""
    relevant = [e for e in events if e.name() == _MEMORY_EVENT or e.name().startswith(_MARK)]
    return sorted(relevant, key=lambda e: e.start_ns())


def _timeline(events: list[Any]) -> list[list[Any]]:
    """Live bytes over the seconds of the call; what they are of, the profiler does not know."""
    timeline, live, high, phase, began_s = MemoryTimeline(), 0, 0, "", 0.0
    for event in events:
        now_s, is_mark = event.start_ns() / 1e9, event.name() != _MEMORY_EVENT
        if timeline.is_running and (is_mark or now_s >= timeline.ends_s):
            timeline.add(Stretch(now_s, phase, {"allocated": high}), now_s)
            high = live
        if is_mark:
            phase = event.name().removeprefix(_MARK)
            if phase in NOT_A_CALL:
                timeline.stop()
            elif not timeline.is_running:
                began_s, high = now_s, live
                timeline.start(now_s)
            continue
        live += event.nbytes()
        high = max(high, live)
    return timeline.rows(began_s)
