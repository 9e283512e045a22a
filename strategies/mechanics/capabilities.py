"""What a torch device can do, in the words that rules ask for."""

from __future__ import annotations

from typing import Any

import torch

from paretune.strategies.rules import Surroundings

__all__ = ["device_module", "surroundings"]


def device_module(device: torch.device) -> Any:
    """The module with ``Stream``, ``Event``, ``synchronize`` and memory functions: torch.cuda, torch.cpu, the simulator's."""
    return torch.get_device_module(device.type)


def surroundings(device: torch.device) -> Surroundings:
    """Describe the place a plan would run in; asks the device module, never a list of names."""
    module = device_module(device)
    words = set()
    if device.type not in ("cpu", "mps", "meta"):
        words |= {"streams", "pinned_memory", "device_memory"}
    if device.type == "cpu":
        words.add("real_data")
    capability = getattr(module, "get_device_capability", None)
    return Surroundings(
        device_type=device.type,
        num_devices=module.device_count() if hasattr(module, "device_count") else 1,
        capabilities=frozenset(words),
        compute_capability=_pair(capability(device)) if capability and device.type in ("cuda", "sim") else None,
    )


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) else None
