"""What a torch device can do, in the words that rules ask for."""

from __future__ import annotations

from typing import Any

import torch

from paretune.strategies.rules import Surroundings

__all__ = ["device_module", "surroundings"]


def device_module(device: torch.device) -> Any:
    """The module with ``Stream``, ``Event``, ``synchronize`` and memory functions: torch.cuda, torch.cpu, the simulator's."""
    return torch.get_device_module(device.type)


def surroundings(device: torch.device, *, compute_capability: tuple[int, int] | None = None) -> Surroundings:
    """Describe the place a plan would run in; asks the device module, never a list of names.

    compute_capability: where it is known. Asking the device module for it initialises the device in this process.
    """
    module = device_module(device)
    words = set()
    if device.type not in ("cpu", "mps", "meta"):
        words |= {"streams", "pinned_memory", "device_memory"}
    if device.type == "cpu":
        words.add("real_data")
    ask = getattr(module, "get_device_capability", None)
    if compute_capability is None and ask is not None and device.type in ("cuda", "sim"):
        compute_capability = _pair(ask(device))
    return Surroundings(
        device_type=device.type,
        num_devices=module.device_count() if hasattr(module, "device_count") else 1,
        capabilities=frozenset(words),
        compute_capability=compute_capability,
    )


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) else None
