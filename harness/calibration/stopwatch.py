"""Time small pieces of work on any device: what the host spends submitting, and what the device spends working."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Stopwatch"]


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """Times work on ``device``.

    api: the device's module (torch.cuda, torch.cpu, the simulator's). host_clock: seconds of the host's clock; the
    simulated machine has one of its own. repeats: samples, of which the median counts.
    """

    device: torch.device
    api: Any
    host_clock: Callable[[], float] = time.perf_counter
    repeats: int = 7

    @classmethod
    def on(cls, device: torch.device) -> Stopwatch:
        """The stopwatch of a device, on the simulated clock where the device is simulated."""
        api = torch.get_device_module(device.type)
        if device.type != "sim":
            return cls(device=device, api=api)
        from paretune.harness.simulator.registration import active_machine

        return cls(device=device, api=api, host_clock=lambda: active_machine().host_s, repeats=2)

    def whole_s(self, work: Callable[[], object], *, times: int = 1) -> float:
        """Median seconds of one ``work()``, from before it is submitted until the device has done it."""
        work()
        self.wait()
        return statistics.median(self._whole(work, times) for _ in range(self.repeats))

    def _whole(self, work: Callable[[], object], times: int) -> float:
        began = self.host_clock()
        for _ in range(times):
            work()
        self.wait()
        return (self.host_clock() - began) / times

    def submitting_s(self, work: Callable[[], object], *, times: int = 100) -> float:
        """Median seconds the host spends on one ``work()`` while the device is not waited for."""
        work()
        samples = []
        for _ in range(self.repeats):
            self.wait()
            began = self.host_clock()
            for _ in range(times):
                work()
            samples.append((self.host_clock() - began) / times)
        self.wait()
        return statistics.median(samples)

    def wait(self) -> None:
        """Until the device has done everything submitted."""
        self.api.synchronize()
