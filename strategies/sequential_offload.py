"""Bring each smallest module's weights to the device for its own call only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.strategies.base import Facts, PipelineStrategy, Undo
from paretune.strategies.rules import Excludes

if TYPE_CHECKING:
    import torch

    from paretune.strategies.parts import Parts

__all__ = ["SequentialOffload"]

_SAME = "both would move the same weights"


@dataclass(frozen=True, kw_only=True)
class SequentialOffload(PipelineStrategy):
    """The least memory and the slowest: every leaf of every component comes and goes by itself (diffusers' CPU
    offload).

    Copies are made when a leaf is called and finish before it computes; ``group_offload(level=leaf_level,
    use_stream=true)`` hides them behind computation. The components are never moved to the device whole.
    """

    places_weights: ClassVar[bool] = True
    rules = (
        Excludes(other="group_offload", because=_SAME, divides=True),
        Excludes(other="block_residency", because=_SAME, divides=True),
        Excludes(other="device_map", because=_SAME, divides=True),
        Excludes(other="sequential_offload", because=_SAME),
    )

    def apply(self, parts: Parts, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.blocks import leaf_groups
        from paretune.strategies.mechanics.link import Link
        from paretune.strategies.mechanics.placement import place
        from paretune.strategies.mechanics.residency import Residency

        return {
            name: place(Residency(module, leaf_groups, Link(device)), undo) for name, module in parts.modules.items()
        }
