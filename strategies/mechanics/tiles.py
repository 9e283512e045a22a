"""Cut one axis into overlapping tiles and say where neighbours are blended: whole numbers only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Axis", "Span", "Zone", "largest_fitting", "overlap_of", "zones"]

Span = tuple[int, int]
"""First index, and the index after the last."""

Zone = tuple[int, int]
"""Where a tile is blended into what came before; the tile is dropped before it and taken alone after it."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of the latents: ``length`` latents, cut into tiles of ``tile`` that share ``overlap`` with the next.

    ratio: pixels (or frames) per latent. causal: the first latent stands for one frame, the others for ``ratio`` each,
    so n latents are 1 + (n - 1) * ratio frames.

    Raises ``ValueError`` unless 0 <= overlap < tile and all sizes are positive.
    """

    length: int
    tile: int
    overlap: int
    ratio: int = 1
    causal: bool = False

    def __post_init__(self) -> None:
        if self.length < 1 or self.tile < 1 or self.ratio < 1:
            raise ValueError(f"length {self.length}, tile {self.tile} and ratio {self.ratio} must be positive.")
        if not 0 <= self.overlap < self.tile:
            raise ValueError(f"an overlap of {self.overlap} leaves no step between tiles of {self.tile} latents.")

    def latents(self) -> list[Span]:
        """Spans of the tiles in latents; all have the same length, the last one is moved back to end at the end."""
        if self.length <= self.tile:
            return [(0, self.length)]
        step = self.tile - self.overlap
        starts = list(range(0, self.length - self.tile, step))
        return [(start, start + self.tile) for start in [*starts, self.length - self.tile]]

    def pixels(self) -> list[Span]:
        """The same spans in pixels or frames."""
        if self.causal:
            return [(start * self.ratio, (stop - 1) * self.ratio + 1) for start, stop in self.latents()]
        return [(start * self.ratio, stop * self.ratio) for start, stop in self.latents()]


def overlap_of(fraction: float, tile: int) -> int:
    """The part of a tile of ``tile`` latents that it shares with the next: a whole number below ``tile``."""
    return min(int(fraction * tile + 1e-9), tile - 1)


def zones(spans: Sequence[Span], *, skip: int = 0) -> list[Zone]:
    """Where each tile is blended in, by index; the first has an empty one at its start.

    A zone ends where the tile before ends. It begins ``skip`` after its own tile begins (a causal tile's first frame is
    not trusted), but never before the zone before it ended, so no pixel is blended twice and slopes never add up.
    """
    found: list[Zone] = [(spans[0][0], spans[0][0])]
    for before, own in itertools.pairwise(spans):
        end = before[1]
        found.append((min(max(own[0] + skip, found[-1][1]), end), end))
    return found


def largest_fitting(sizes: Sequence[int], peak_bytes: Callable[[int], int], cap_bytes: int) -> int | None:
    """The largest of ``sizes`` whose peak is at most the cap; peaks grow with the size. ``None`` if none fits."""
    ranked, best = sorted(sizes), None
    low, high = 0, len(ranked) - 1
    while low <= high:
        middle = (low + high) // 2
        if peak_bytes(ranked[middle]) <= cap_bytes:
            best, low = ranked[middle], middle + 1
        else:
            high = middle - 1
    return best
