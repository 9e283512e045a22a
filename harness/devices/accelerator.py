"""Measure on a real accelerator (CUDA, ROCm, XPU) through ``torch.accelerator``: events for time, allocator for memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from paretune.harness.devices import driver, host_memory
from paretune.harness.devices.ballast import Ballast
from paretune.harness.devices.base import Device, Session
from paretune.harness.devices.names import DeviceError
from paretune.harness.devices.phases import PhaseBook
from paretune.harness.records import Kind, Peaks, Phase

__all__ = ["AcceleratorDevice"]


class AcceleratorDevice(Device):
    """One accelerator of this machine: ``cuda``, ``cuda:1``, ``xpu:0``.

    Nothing is initialised before ``facts`` or ``session`` is called, so the parent of a trial may hold one.
    """

    kind: ClassVar[Kind] = Kind.MEASURED

    def __init__(self, spec: str) -> None:
        super().__init__(spec)
        try:
            self._device = torch.device(spec)
        except RuntimeError as error:
            raise DeviceError(f"device {spec!r} is not one: write cuda, cuda:1, cpu, auto or sim:NAME.") from error

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self._device.type, self._device.index or 0)

    def _require(self) -> None:
        current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if current is None or current.type != self._device.type:
            here = current.type if current else "none"
            raise DeviceError(
                f"device {self.spec!r} is not here (accelerator: {here}). Use cpu, or simulate: sim:rtx-4090."
            )
        if (self._device.index or 0) >= torch.accelerator.device_count():
            raise DeviceError(f"device {self.spec!r}: this machine has {torch.accelerator.device_count()} of them.")

    def facts(self) -> Mapping[str, Any]:
        self._require()
        properties = torch.get_device_module(self._device.type).get_device_properties(self.torch_device)
        capability = getattr(properties, "major", None)
        return {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}" if capability is not None else None,
            **driver.identity(self.torch_device),
        }

    @contextmanager
    def session(self, *, memory: bool = True, device_memory_bytes: int | None = None) -> Iterator[Session]:
        """Holds a ballast beyond ``device_memory_bytes``, outside PyTorch's allocator, for as long as it is open."""
        self._require()
        torch.accelerator.set_device_index(self.torch_device.index)
        with Ballast(self.torch_device, device_memory_bytes) as ballast:
            session = _AcceleratorSession(self.torch_device, ballast.held_bytes)
            yield session
            session.close()


class _AcceleratorSession(Session):
    """Peaks from the caching allocator, reset at every mark; steps from events that never make the host wait."""

    def __init__(self, device: torch.device, ballast_bytes: int) -> None:
        self._device, self._ballast_bytes = device, ballast_bytes
        self._book = PhaseBook()
        self._current: tuple[str, float] | None = None
        self._steps: list[torch.Event] = []
        self._has_run = False
        torch.empty(1, device=device)  # resets are silently ignored until the allocator has been used
        self._watch = driver.Watch(device)

    def now_s(self) -> float:
        torch.accelerator.synchronize(self._device)
        return time.perf_counter()

    def mark(self, phase: str) -> None:
        self.close()
        host_memory.reset_peak()
        torch.accelerator.reset_peak_memory_stats(self._device)
        self._current = (phase, self.now_s())

    def close(self) -> None:
        """End the running phase."""
        if self._current is None:
            return
        name, began = self._current
        if name == "denoise" and self._steps:
            self.step()
        ended = self.now_s()
        self._book.add(name, self._peaks(), ended - began)
        self._current = None

    def _peaks(self) -> Peaks:
        allocated = torch.accelerator.max_memory_allocated(self._device)
        reserved = torch.accelerator.max_memory_reserved(self._device)
        outside = driver.bytes_outside_allocator(self._device, self._ballast_bytes)
        return Peaks(
            peak_allocated_bytes=allocated,
            peak_reserved_bytes=reserved,
            peak_used_bytes=None if outside is None else reserved + outside,
            peak_host_bytes=host_memory.peak_bytes(),
            pinned_bytes=driver.pinned_bytes(self._device),
        )

    def start_call(self) -> None:
        if self._has_run:  # the card is as the call before has left it
            self._watch.look()
        self._has_run, self._steps = True, []

    def step(self) -> None:
        event = torch.Event(self._device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self._device))
        self._steps.append(event)

    def step_latency_s(self) -> tuple[float, ...]:
        torch.accelerator.synchronize(self._device)
        self._watch.look()
        return tuple(a.elapsed_time(b) / 1000.0 for a, b in itertools.pairwise(self._steps))

    def phases(self) -> Mapping[str, Phase]:
        return self._book.all()

    def counters(self) -> Mapping[str, Any]:
        return self._watch.seen()
