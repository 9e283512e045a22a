"""Bring a whole component to the device when it is needed and send it back when another one starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.strategies.base import Facts, PipelineStrategy, Undo, tunable
from paretune.strategies.rules import Excludes, Needs

if TYPE_CHECKING:
    import torch

    from paretune.strategies.parts import Parts

__all__ = ["ModelOffload"]

_SAME = "both would move the same weights"


@dataclass(frozen=True, kw_only=True)
class ModelOffload(PipelineStrategy):
    """One component at a time is on the device (diffusers' model offload).

    A component comes when it is called, or one of its methods is, and stays while it is called again; it leaves when
    another component starts or when the pipeline's own call returns or raises. A component that is applied alone,
    outside of a pipeline, leaves when its call returns. The host keeps its copy, so nothing is copied back. Components
    that another setting places take turns with the rest.
    """

    places_weights: ClassVar[bool] = True
    rules = (
        Excludes(other="sequential_offload", because=_SAME),
        Excludes(other="device_map", because=_SAME, divides=True),
        Excludes(other="model_offload", because=_SAME),
        Excludes(other="group_offload", because=_SAME, divides=True),
        Needs(
            capability="pinned_memory", because="page-locked memory serves copies to it", when=lambda s: s.pin_memory
        ),
    )

    pin_memory: bool = tunable(
        default=False,
        choices=(False, True),
        help="hold the host copies in page-locked memory: copies at the link's full rate, the memory cannot be swapped",
    )

    def apply(self, parts: Parts, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.blocks import whole_group
        from paretune.strategies.mechanics.host_store import FoundStore, PinnedStore
        from paretune.strategies.mechanics.link import Link
        from paretune.strategies.mechanics.placement import place
        from paretune.strategies.mechanics.residency import Residency

        facts = {}
        for name, module in parts.modules.items():
            store = PinnedStore() if self.pin_memory else FoundStore()
            link = Link(device, non_blocking=self.pin_memory)
            facts[name] = place(Residency(module, whole_group, link, store=store), undo)
        return facts
