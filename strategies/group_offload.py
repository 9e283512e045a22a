"""Keep blocks or leaves on the host; bring each group to the device just before it runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import PlanError, Unsupported
from paretune.strategies.rules import Excludes, Forbids, Needs

if TYPE_CHECKING:
    import torch

    from paretune.strategies.mechanics.holdings import Grouping
    from paretune.strategies.mechanics.host_store import HostStore

__all__ = ["GroupOffload"]

_SAME = "both would move the same weights"
_BESIDE = "the next group is copied beside computation"


@dataclass(frozen=True, kw_only=True)
class GroupOffload(ComponentStrategy):
    """Groups of a component's weights come to the device one after another (diffusers' group offload).

    ``block_level`` moves repeated blocks, several at once if asked; ``leaf_level`` the smallest modules that hold
    weights. With ``use_stream`` the next group is copied while the current one computes, from page-locked memory: all
    of it is locked beforehand, or with ``low_cpu_mem_usage`` only what is being sent. ``offload_to_disk_path`` keeps
    the weights in a file of its own there. Without a component in the plan it works on every component; ``exclude``
    names components or modules in them that stay on the device.

    Raises ``Unsupported`` if ``exclude`` names nothing, or the component has no weights to move.
    """

    places_weights: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ("denoiser", "text_encoder", "vae", "other")
    rules = (
        Excludes(other="group_offload", because=_SAME),
        Excludes(other="block_residency", because=_SAME),
        Excludes(other="device_map", because=_SAME),
        Forbids(
            when=lambda s: s.use_stream and s.level == "block_level" and s.num_blocks_per_group != 1,
            because="with a stream the next group is copied ahead, so two groups are on the device and larger ones "
            "only cost memory. Write num_blocks_per_group=1, or leave the stream out",
        ),
        Needs(capability="streams", because=_BESIDE, when=lambda s: s.use_stream),
    )

    level: str = tunable(
        default="block_level", choices=("block_level", "leaf_level"), alias="offload_type", help="size of the groups"
    )
    num_blocks_per_group: int = tunable(
        default=1,
        choices=(1, 2, 4),
        free=True,
        when=lambda s: s.level == "block_level",
        help="blocks that move together",
    )
    use_stream: bool = tunable(default=False, choices=(False, True), help="copy the next group beside computation")
    record_stream: bool = tunable(
        default=False,
        choices=(False, True),
        when=lambda s: s.use_stream,
        help="let the allocator delay the reuse of a group's memory, rather than the copy stream wait for it",
    )
    non_blocking: bool = tunable(
        default=False, choices=(False,), free=True, when=lambda s: not s.use_stream, help="do not wait for copies"
    )
    low_cpu_mem_usage: bool = tunable(
        default=False,
        choices=(False, True),
        when=lambda s: s.use_stream and s.offload_to_disk_path is None,
        help="page-lock only what is being sent",
    )
    offload_to_disk_path: str | None = tunable(
        default=None, choices=(None,), free=True, help="folder for the weights, in place of host memory"
    )
    exclude: tuple[str, ...] = tunable(
        default=(), choices=((),), free=True, help="components, or modules in them, that stay on the device"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.exclude, str):
            object.__setattr__(self, "exclude", (self.exclude,))
        count = self.num_blocks_per_group
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlanError(f"group_offload.num_blocks_per_group: {count!r} is not a count. Write 1 or more.")

    def for_component(self, name: str) -> GroupOffload | None:
        """The setting for one component of a pipeline: names in ``exclude`` that are not in it are taken out."""
        if name in self.exclude:
            return None
        mine = tuple(entry.removeprefix(f"{name}.") for entry in self.exclude if entry.startswith(f"{name}."))
        return dataclasses.replace(self, exclude=mine)

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.link import Link
        from paretune.strategies.mechanics.placement import place
        from paretune.strategies.mechanics.residency import Residency
        from paretune.strategies.mechanics.staging import Staging

        unknown = [entry for entry in self.exclude if entry not in dict(model.named_modules())]
        if unknown:
            raise Unsupported(f"group_offload.exclude: {type(model).__name__} has no module named {unknown[0]!r}.")
        stages = self.use_stream and (self.low_cpu_mem_usage or self.offload_to_disk_path is not None)
        link = Link(
            device,
            use_stream=self.use_stream,
            record_stream=self.use_stream and self.record_stream,
            non_blocking=self.non_blocking,
        )
        residency = Residency(
            model,
            self._grouping(),
            link,
            store=self._store(),
            staging=Staging(num_buffers=3) if stages else None,
            look_ahead=1,
        )
        return place(residency, undo)

    def _grouping(self) -> Grouping:
        from paretune.strategies.mechanics.blocks import block_groups, excluding, leaf_groups

        def grouping(model: torch.nn.Module) -> Any:
            if self.level == "leaf_level":
                groups = leaf_groups(model)
            else:
                groups = block_groups(model, num_blocks_per_group=self.num_blocks_per_group)
            return excluding(groups, model, self.exclude)

        return grouping

    def _store(self) -> HostStore:
        from pathlib import Path

        from paretune.strategies.mechanics.host_store import DiskStore, FoundStore, PinnedStore

        if self.offload_to_disk_path is not None:
            return DiskStore(Path(self.offload_to_disk_path))
        return PinnedStore() if self.use_stream and not self.low_cpu_mem_usage else FoundStore()
