"""Ask the driver what PyTorch does not know: its own memory, clocks, throttling, and who else is on the card."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from paretune.harness.devices import processes

__all__ = ["Watch", "bytes_outside_allocator", "compute_capability", "identity", "pinned_bytes"]

_THROTTLE = {0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake"}
"""Bits of NVML's clocks event reasons that make a figure worthless; the power cap (0x4) is normal under load."""


def _handle(device: torch.device) -> Any:
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode())
    except pynvml.NVMLError:
        return None


def compute_capability(device: torch.device) -> tuple[int, int] | None:
    """The card's, asked of the driver so that the parent of trials initialises nothing; ``None`` where it does not tell."""
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    import pynvml

    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(torch.cuda._get_pynvml_handler(device))
    except (RuntimeError, ImportError, pynvml.NVMLError):
        return None
    return int(major), int(minor)


def identity(device: torch.device) -> Mapping[str, Any]:
    """Driver version, power limit and link of the card, as far as the driver tells."""
    handle = _handle(device)
    if handle is None:
        return {}
    import pynvml

    questions = {
        "driver": pynvml.nvmlSystemGetDriverVersion,
        "power_limit_mw": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "pcie_generation": lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_width": lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
    }
    return {name: value for name, ask in questions.items() if (value := _answer(ask)) is not None}


def _answer(ask: Any) -> Any:
    import pynvml

    try:
        return ask()
    except pynvml.NVMLError:
        return None


def bytes_outside_allocator(device: torch.device, ballast_bytes: int) -> int | None:
    """Driver's figure for the card less what the allocator reserved and the ballast: context, libraries, other processes."""
    try:
        free, total = torch.accelerator.get_memory_info(device)
    except RuntimeError:
        return None
    return max(0, total - free - torch.accelerator.memory_reserved(device) - ballast_bytes)


def pinned_bytes(device: torch.device) -> int | None:
    """Page-locked host memory, rounded as PyTorch's host allocator rounds; ``None`` where it keeps no count."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0))


class Watch:
    """Clocks, temperature and other processes, before against after. Open it once this process holds device memory.

    nvml: the driver's library; ``None`` asks the real one about ``device``.
    """

    def __init__(self, device: torch.device, nvml: Any = None, *, proc: Path = processes.PROC) -> None:
        self._nvml, self._proc = nvml, proc
        self._handle = _handle(device) if nvml is None else nvml
        if nvml is None and self._handle is not None:
            import pynvml

            self._nvml = pynvml
        self._others_before = self._others()
        self._looks: list[dict[str, int | None]] = []

    def _others(self) -> int | None:
        """Other processes on the card now; ``None`` where the driver does not tell so that it could be known."""
        if self._handle is None:
            return None
        running = _answer(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        pids = None if running is None else [process.pid for process in running]
        return processes.num_others(pids, processes.own_pids(self._proc), self._proc)

    def look(self) -> None:
        """Ask the card how it is. Do it just after a call: a card that slowed down may have recovered at the trial's end."""
        nvml, handle = self._nvml, self._handle
        if handle is not None:
            self._looks.append(
                {
                    "reasons": _answer(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
                    "sm_clock_mhz": _answer(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                    "temperature_c": _answer(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                    "power_mw": _answer(lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
                }
            )

    def seen(self) -> Mapping[str, Any]:
        """What may have disturbed the figures; empty without a driver to ask, ``None`` for what it does not tell.

        Of all looks: every reason for lower clocks, the lowest clock, the highest temperature and power.
        """
        if self._handle is None:
            return {}
        if not self._looks:
            self.look()
        told = {name: [value for look in self._looks if (value := look[name]) is not None] for name in self._looks[-1]}
        return {
            "foreign_processes": processes.most_seen((self._others_before, self._others())),
            "throttled": _words(functools.reduce(operator.or_, told["reasons"])) if told["reasons"] else None,
            "sm_clock_mhz": min(told["sm_clock_mhz"], default=None),
            "temperature_c": max(told["temperature_c"], default=None),
            "power_mw": max(told["power_mw"], default=None),
        }


def _words(reasons: int) -> list[str]:
    return [word for bit, word in _THROTTLE.items() if reasons & bit]
