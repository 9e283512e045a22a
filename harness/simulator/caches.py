"""Libraries that empty "the accelerator's" cache reach the simulated cards too."""

from __future__ import annotations

import sys
from typing import Any

from paretune.harness.simulator.machine import Machine

__all__ = ["SimulatedCaches"]

_HOLDERS = (
    "accelerate.utils.memory",
    "accelerate.utils.modeling",
    "accelerate.hooks",
    "diffusers.modular_pipelines.components_manager",
)
"""Modules that hold accelerate's `clear_device_cache`; they took it by name when they were imported."""


class SimulatedCaches:
    """While a simulation is active, accelerate's `clear_device_cache` empties the caches of the simulated cards.

    accelerate asks for the kinds of device it knows, one after another; a simulated card is none of them, and without
    this the segments of a model that left the card would still be counted as reserved.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._replaced: list[tuple[Any, Any]] = []

    def __enter__(self) -> SimulatedCaches:
        import accelerate.hooks  # noqa: F401 - loads every holder of accelerate

        for name in _HOLDERS:
            holder = sys.modules.get(name)
            original = getattr(holder, "clear_device_cache", None)
            if original is not None:
                self._replaced.append((holder, original))
                holder.clear_device_cache = self._clear  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: Any) -> None:
        while self._replaced:
            holder, original = self._replaced.pop()
            holder.clear_device_cache = original

    def _clear(self, garbage_collection: bool = False) -> None:
        if garbage_collection:
            import gc

            gc.collect()
        for card in self._machine.cards:
            card.empty_cache()
