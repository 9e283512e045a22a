"""Decode and encode an image or video in overlapping tiles, so that peak memory follows the tile, not the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import PlanError
from paretune.strategies.rules import Before, Excludes

if TYPE_CHECKING:
    import torch

    from paretune.strategies.mechanics.tiled_calls import TiledCalls
    from paretune.strategies.mechanics.tiling import Tiling

__all__ = ["VaeTiling"]


@dataclass(frozen=True, kw_only=True)
class VaeTiling(ComponentStrategy):
    """Cut height and width, and on demand time, of what ``decode`` and ``encode`` compute (diffusers' VAE tiling).

    The model's own functions run on each tile, and the tiles are blended linearly. Sizes need not divide: a tile is the
    largest multiple of the compression ratio within ``tile_size``, the last one is moved back to end at the edge.
    Lossy, because a convolution near a tile's edge, and attention over the picture, see less than the whole.

    Where an offload brings the model's weights group by group, every tile brings them anew; a record's facts say how
    many loads that were. ``keep_weights`` keeps what a call has brought until it returns: one load a group, at the
    price of the whole model on the device beside a tile.

    Raises ``Unsupported`` with the class's name for autoencoders that cannot be tiled.
    """

    changes_output: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ("vae",)
    rules = (
        Before(other="vae_slicing", because="slicing is the outer of the two: each sample is tiled by itself"),
        Excludes(other="vae_tiling", because="a picture can be cut up once"),
    )

    tile_size: int | tuple[int, int] = tunable(
        default=512,
        choices=(256, 384, 512, 768, 1024),
        free=True,
        help="tile in pixels of the image: one number, or [height, width]",
    )
    overlap: float = tunable(
        default=0.25, choices=(0.125, 0.25), free=True, help="fraction of a tile shared, in [0, 1)"
    )
    min_size: int | None = tunable(
        default=None, free=True, help="images of at most this many pixels a side are left whole; null for tile_size"
    )
    tile_frames: int | None = tunable(default=None, free=True, help="frames per tile in time; null leaves time whole")

    keep_weights: bool = tunable(
        default=False, choices=(False,), free=True, help="keep what an offload brings until all tiles are done"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.tile_size, list):
            object.__setattr__(self, "tile_size", tuple(self.tile_size))
        sizes = self.tile_size if isinstance(self.tile_size, tuple) else (self.tile_size,) * 2
        if len(sizes) != 2 or not all(_is_count(size) for size in sizes):
            raise PlanError(f"vae_tiling.tile_size: {self.tile_size!r} is not a positive number or [height, width].")
        if isinstance(self.overlap, bool) or not isinstance(self.overlap, int | float) or not 0 <= self.overlap < 1:
            raise PlanError(f"vae_tiling.overlap: {self.overlap!r} is not a fraction of a tile: at least 0, below 1.")
        for name in ("min_size", "tile_frames"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise PlanError(f"vae_tiling.{name}: {value!r} is not a positive number.")
        if not isinstance(self.keep_weights, bool):
            raise PlanError(f"vae_tiling.keep_weights: {self.keep_weights!r} is neither true nor false.")

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics import codec
        from paretune.strategies.mechanics.override import Specialised
        from paretune.strategies.mechanics.tiled_calls import TiledCalls

        codec.refuse_class(model, strategy=self.name, flag="use_tiling")
        tiling = self._tiling(codec.spatial_ratio(model), codec.temporal_ratio(model))
        latents = tiling.latent_tile(tiling.ratio) if tiling.ratio else None
        original, ways = type(model), codec.directions(model)
        fixed = {
            "tiled": list(ways),
            "tile_size_latents": list(latents) if latents else None,
            "compression_ratio": tiling.ratio,
            "temporal_ratio": tiling.frame_ratio,
        }
        calls = TiledCalls(fixed, keeps_weights=self.keep_weights)
        members = {way: _in_tiles(way, getattr(original, way), getattr(tiling, way), calls) for way in ways}
        Specialised(undo).apply(model, **members)
        return calls

    def _tiling(self, ratio: int | None, frame_ratio: int | None) -> Tiling:
        from paretune.strategies.mechanics.tiling import Tiling

        height, width = self.tile_size if isinstance(self.tile_size, tuple) else (self.tile_size, self.tile_size)
        return Tiling(
            tile_size=(height, width),
            overlap=float(self.overlap),
            min_size=min(height, width) if self.min_size is None else self.min_size,
            tile_frames=self.tile_frames,
            ratio=ratio,
            frame_ratio=frame_ratio,
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _in_tiles(entry: str, original: Any, in_tiles: Any, calls: TiledCalls) -> Any:
    from paretune.strategies.mechanics.codec import leading_tensor

    def cut(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole, rest, named = leading_tensor(original, args, kwargs)
        return calls.run(self, entry, in_tiles, lambda tile: original(self, tile, *rest, **named), whole)

    return cut
