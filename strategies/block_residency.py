"""Let some of a model's blocks stay on the device and stream the others through a few reusable buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import PlanError, Unsupported
from paretune.strategies.rules import Excludes, Needs
from paretune.strategies.sizes import SizeError, parse_size

if TYPE_CHECKING:
    import torch

    from paretune.strategies.mechanics.holdings import Grouping

__all__ = ["BlockResidency"]

_SAME = "both would move the same weights"


@dataclass(frozen=True, kw_only=True)
class BlockResidency(ComponentStrategy):
    """Between all resident and all offloaded: memory that is left over holds blocks, and only the rest crosses the
    link.

    Blocks that stay are given by number or by bytes, and are the first ones or spread evenly, so that the time of a
    copy is hidden behind the computation of the resident blocks before it. The others come with one contiguous copy
    each from page-locked memory (up to ``max_pinned_bytes``; what lies beyond passes through small page-locked
    buffers), ``look_ahead`` blocks ahead of need. What lies outside of blocks stays too. With ``model_offload`` in the
    plan resident blocks leave when another component has its turn.

    Raises ``Unsupported`` for a model without repeated blocks, or with fewer than are to stay.
    """

    places_weights: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ("denoiser", "text_encoder", "vae", "other")
    rules = (
        Excludes(other="block_residency", because=_SAME),
        Excludes(other="device_map", because=_SAME),
        Needs(
            capability="streams",
            because="blocks are copied beside computation; look_ahead=0 copies them before",
            when=lambda s: s.look_ahead > 0,
        ),
    )

    num_resident_blocks: int = tunable(
        default=0,
        choices=(0, 4, 8, 16, 24, 32, 48),
        free=True,
        when=lambda s: s.resident_bytes is None,
        help="blocks that stay on the device",
    )
    resident_bytes: int | str | None = tunable(
        default=None,
        choices=(None,),
        free=True,
        help="bytes of blocks that stay, such as 6GiB, in place of their number",
    )
    spread: str = tunable(default="even", choices=("even", "prefix"), help="which blocks stay")
    look_ahead: int = tunable(default=1, choices=(1, 2), free=True, help="blocks copied ahead of need; 0 for none")
    num_buffers: int | None = tunable(
        default=None, choices=(None,), free=True, help="reusable device buffers; null for as many as look_ahead needs"
    )
    max_pinned_bytes: int | str | None = tunable(
        default=None, choices=(None,), free=True, help="limit of page-locked host memory, such as 8GiB; null for none"
    )
    pin_resident: bool = tunable(
        default=False, choices=(False,), free=True, help="page-lock resident blocks too: worth it where they take turns"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_resident_blocks", "look_ahead", "num_buffers"):
            _refuse_no_count(name, getattr(self, name))
        for name in ("resident_bytes", "max_pinned_bytes"):
            _size_of(name, getattr(self, name))

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.host_store import FoundStore, PinnedStore
        from paretune.strategies.mechanics.link import Link
        from paretune.strategies.mechanics.placement import place
        from paretune.strategies.mechanics.residency import Residency
        from paretune.strategies.mechanics.ring import Ring
        from paretune.strategies.mechanics.staging import Staging

        chosen = self._choose(model)
        streams = self.look_ahead > 0
        num_buffers = self.look_ahead + 1 if self.num_buffers is None else self.num_buffers
        link = Link(device, use_stream=streams, ring=Ring(num_buffers=num_buffers, slot_bytes=0))
        budget = _size_of("max_pinned_bytes", self.max_pinned_bytes)
        residency = Residency(
            model,
            self._grouping(),
            link,
            store=PinnedStore(budget_bytes=budget, pins_resident=self.pin_resident) if streams else FoundStore(),
            staging=Staging(num_buffers=num_buffers) if streams else None,
            look_ahead=self.look_ahead,
        )
        return {**place(residency, undo), **chosen}

    def _choose(self, model: torch.nn.Module) -> dict[str, int]:
        from paretune.strategies.mechanics.blocks import find_blocks

        blocks = find_blocks(model)
        name = type(model).__name__
        if not blocks:
            raise Unsupported(f"block_residency: {name} has no ModuleList or Sequential of blocks. Use group_offload.")
        if self.resident_bytes is None and self.num_resident_blocks > len(blocks):
            raise Unsupported(
                f"block_residency.num_resident_blocks: {name} has {len(blocks)} blocks, "
                f"not {self.num_resident_blocks}. Ask for fewer, or leave it resident."
            )
        resident = self._resident(model)
        return {
            "num_blocks": len(blocks),
            "num_resident_blocks": len(resident),
            "resident_bytes": sum(block.num_bytes for block in blocks if block.module in resident),
        }

    def _resident(self, model: torch.nn.Module) -> set[torch.nn.Module]:
        from paretune.strategies.mechanics.blocks import find_blocks
        from paretune.strategies.mechanics.spread import by_bytes, by_count

        blocks = find_blocks(model)
        even = self.spread == "even"
        budget = _size_of("resident_bytes", self.resident_bytes)
        sizes = [block.num_bytes for block in blocks]
        if budget is None:
            chosen = by_count(sizes, min(self.num_resident_blocks, len(blocks)), even=even)
        else:
            chosen = by_bytes(sizes, budget, even=even)
        return {blocks[index].module for index in chosen}

    def _grouping(self) -> Grouping:
        from paretune.strategies.mechanics.blocks import block_groups
        from paretune.strategies.mechanics.units import Keep

        return lambda model: block_groups(model, resident=self._resident(model), keep_rest=Keep.ALWAYS)


def _refuse_no_count(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise PlanError(f"block_residency.{name}: {value!r} is not a count. Write 0 or more.")


def _size_of(name: str, value: int | str | None) -> int | None:
    try:
        return None if value is None else parse_size(value, name=f"block_residency.{name}")
    except SizeError as error:
        raise PlanError(str(error)) from error
