"""Decide, for one call of ``decode`` or ``encode``, how its input is cut into tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from paretune.strategies.errors import Unsupported
from paretune.strategies.mechanics.structure import take_apart
from paretune.strategies.mechanics.tiler import Cut, tiled
from paretune.strategies.mechanics.tiles import Axis, overlap_of, zones

__all__ = ["Tiling"]

_PROBE_LATENTS, _PROBE_PIXELS = 8, 64


@dataclass(kw_only=True)
class Tiling:
    """Tile sizes in pixels of the image (height, width) and in frames of the video; ``None`` leaves time whole.

    overlap: fraction of a tile shared with the next. min_size: images no larger in either direction are left whole.
    ratio, frame_ratio: pixels and frames per latent; ``None`` is measured once, on a small corner of the first input.
    """

    tile_size: tuple[int, int]
    overlap: float
    min_size: int
    tile_frames: int | None = None
    ratio: int | None = None
    frame_ratio: int | None = None
    _measured: dict[str, int] = field(default_factory=dict)

    def decode(self, function: Callable[[torch.Tensor], Any], latents: torch.Tensor) -> Any:
        """Decode tile by tile; ``latents`` are (batch, channels, [frames,] height, width)."""
        _refuse_rank(latents)
        ratio = self._ratio("decode", function, latents)
        height, width = latents.shape[-2:]
        cuts = self._frames_decoded(function, latents)
        if max(height, width) * ratio > self.min_size:
            axes = self._axes(height, width, ratio)
            cuts += [_cut(dim, axis.latents(), axis.pixels()) for dim, axis in axes]
        return tiled(function, latents, cuts)

    def encode(self, function: Callable[[torch.Tensor], Any], image: torch.Tensor) -> Any:
        """Encode tile by tile; ``image`` is (batch, channels, [frames,] height, width)."""
        _refuse_rank(image)
        ratio = self._ratio("encode", function, image)
        height, width = image.shape[-2:]
        cuts = self._frames_encoded(image)
        if max(height, width) > self.min_size and min(height, width) >= ratio:
            axes = self._axes(height // ratio, width // ratio, ratio)
            cuts += [_cut(dim, _reach(axis.pixels(), image.shape[dim]), axis.latents()) for dim, axis in axes]
        return tiled(function, image, cuts)

    def latent_tile(self, ratio: int) -> tuple[int, int]:
        """Tile height and width in latents. Raises ``Unsupported`` when a tile is smaller than one latent."""
        height, width = (size // ratio for size in self.tile_size)
        if not height or not width:
            raise Unsupported(
                f"vae_tiling: tiles of {self.tile_size} pixels hold no latent of {ratio} pixels. Enlarge."
            )
        return height, width

    def _axes(self, height: int, width: int, ratio: int) -> list[tuple[int, Axis]]:
        lengths = zip((-2, -1), (height, width), self.latent_tile(ratio), strict=True)
        return [
            (dim, Axis(length=length, tile=tile, overlap=overlap_of(self.overlap, tile), ratio=ratio))
            for dim, length, tile in lengths
        ]

    def _ratio(self, way: str, function: Callable[[torch.Tensor], Any], whole: torch.Tensor) -> int:
        if self.ratio is not None:
            return self.ratio
        if way not in self._measured:
            limit = _PROBE_LATENTS if way == "decode" else _PROBE_PIXELS
            corner = whole[..., :limit, :limit]
            (answer, *_), _ = take_apart(function(corner))
            latents, pixels = (corner, answer) if way == "decode" else (answer, corner)
            self._measured[way] = _ratio_between(latents.shape[-2:], pixels.shape[-2:])
        return self._measured[way]

    def _frames_decoded(self, function: Callable[[torch.Tensor], Any], latents: torch.Tensor) -> list[Cut]:
        if self.tile_frames is None or latents.dim() != 5:
            return []
        ratio, num_latents = self._frame_ratio(), latents.shape[2]
        tile = self._frame_tile(ratio)
        if num_latents <= tile:
            return []
        (answer, *_), _ = take_apart(function(latents[:, :, :tile, :_PROBE_LATENTS, :_PROBE_LATENTS]))
        axis = self._frame_axis(num_latents, tile, ratio, causal=answer.shape[2] != tile * ratio)
        return [_cut(2, axis.latents(), axis.pixels(), skip=int(axis.causal))]

    def _frames_encoded(self, video: torch.Tensor) -> list[Cut]:
        if self.tile_frames is None or video.dim() != 5:
            return []
        ratio, num_frames = self._frame_ratio(), video.shape[2]
        causal = num_frames % ratio != 0
        num_latents = (num_frames - 1) // ratio + 1 if causal else num_frames // ratio
        tile = self._frame_tile(ratio)
        if num_latents <= tile:
            return []
        axis = self._frame_axis(num_latents, tile, ratio, causal=causal)
        return [_cut(2, _reach(axis.pixels(), num_frames), axis.latents(), skip=int(causal))]

    def _frame_ratio(self) -> int:
        if self.frame_ratio is None:
            raise Unsupported("vae_tiling: the model does not state its temporal compression. Leave tile_frames out.")
        return self.frame_ratio

    def _frame_tile(self, ratio: int) -> int:
        tile = (self.tile_frames or 0) // ratio
        if tile < 2:
            raise Unsupported(
                f"vae_tiling: tile_frames must be at least {2 * ratio} here: two latents of {ratio} frames."
            )
        return tile

    def _frame_axis(self, length: int, tile: int, ratio: int, *, causal: bool) -> Axis:
        """Causal tiles share at least one latent: the first frame of each was made without its past and is dropped."""
        overlap = max(overlap_of(self.overlap, tile), int(causal))
        return Axis(length=length, tile=tile, overlap=overlap, ratio=ratio, causal=causal)


def _ratio_between(latents: Sequence[int], pixels: Sequence[int]) -> int:
    """The whole number by which both sides shrink, pixels too few for a latent being dropped; powers of two first."""
    fitting = [
        ratio
        for ratio in range(1, max(pixels) + 1)
        if all(size // ratio == length for size, length in zip(pixels, latents, strict=True))
    ]
    if not fitting:
        raise Unsupported(f"vae_tiling: {tuple(pixels)} pixels for {tuple(latents)} latents is no whole ratio.")
    return max(fitting, key=lambda ratio: (ratio & (ratio - 1) == 0, ratio))


def _cut(dim: int, reads: list[tuple[int, int]], writes: list[tuple[int, int]], *, skip: int = 0) -> Cut:
    return Cut(dim=dim, reads=reads, writes=writes, zones=zones(writes, skip=skip))


def _reach(spans: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Let the last span take the rest that is too small for a latent."""
    return [*spans[:-1], (spans[-1][0], length)]


def _refuse_rank(tensor: torch.Tensor) -> None:
    if tensor.dim() not in (4, 5):
        raise Unsupported(f"vae_tiling: cannot cut a tensor of shape {tuple(tensor.shape)}; it needs height and width.")
