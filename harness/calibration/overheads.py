"""What the host pays for each operator, module call, hook and event, and what the device pays for each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paretune.harness.calibration.stopwatch import Stopwatch

__all__ = ["overheads"]


def overheads(watch: Stopwatch) -> Mapping[str, float]:
    """Seconds per eager operator, module call, hook, event call (host) and tiny kernel (device)."""
    tiny = torch.ones(8, device=watch.device)
    plain, hooked = torch.nn.Identity(), torch.nn.Identity()
    hooked.register_forward_pre_hook(_does_nothing)
    operator_s = watch.submitting_s(lambda: tiny.add(1))
    call_s = watch.submitting_s(lambda: plain(tiny))
    hook_s = watch.submitting_s(lambda: hooked(tiny)) - call_s
    found = {
        "eager_operator_s": operator_s,
        "module_call_s": call_s,
        "hook_s": max(hook_s, 1e-7),
        "kernel_s": _kernel_s(watch, tiny, operator_s),
    }
    if hasattr(watch.api, "Event"):
        event = watch.api.Event()
        found["event_call_s"] = watch.submitting_s(lambda: event.record())
    return found


def _kernel_s(watch: Stopwatch, tiny: torch.Tensor, operator_s: float) -> float:
    """Time between two tiny kernels that wait in line behind a long one, so that the host is not in the way."""
    if watch.device.type == "cpu":
        return operator_s
    start, end = (torch.Event(watch.device, enable_timing=True) for _ in range(2))
    if watch.device.type == "sim":
        start, end = (watch.api.Event(enable_timing=True) for _ in range(2))
    large = torch.ones(4096, 4096, device=watch.device)
    for _ in range(20):
        large @ large
    start.record()
    for _ in range(100):
        tiny.add(1)
    end.record()
    watch.wait()
    return float(start.elapsed_time(end)) / 1000.0 / 100


def _does_nothing(module: Any, args: Any) -> None:
    return None
