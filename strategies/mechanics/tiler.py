"""Run a decoder or encoder over overlapping tiles of its input and blend the answers without seams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paretune.strategies.mechanics.structure import take_apart
from paretune.strategies.mechanics.tiles import Span, Zone

__all__ = ["Cut", "tiled"]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How one dimension is cut: what each tile reads, and where its answer belongs and is blended in.

    ``reads`` are in units of the input, ``writes`` and ``zones`` in units of the answer.
    """

    dim: int
    reads: Sequence[Span]
    writes: Sequence[Span]
    zones: Sequence[Zone]


def tiled(function: Callable[[torch.Tensor], Any], whole: torch.Tensor, cuts: Sequence[Cut]) -> Any:
    """``function(whole)``, computed tile by tile along ``cuts``; the answer is of the kind the function gives.

    Neighbours are blended linearly, one dimension inside the other, so the weights of a pixel add up to one, are the
    product of one weight per dimension, and tiles that agree are kept to the bit.

    Raises ``ValueError`` when a tile's answer does not have the size that the compression ratio promises.
    """
    kept: list[Callable[[Sequence[torch.Tensor]], Any]] = []

    def leaf(tile: torch.Tensor) -> list[torch.Tensor]:
        tensors, rebuild = take_apart(function(tile))
        kept[:] = [rebuild]
        return tensors

    joined = _along(leaf, whole, cuts)
    return kept[0](joined)


def _along(
    leaf: Callable[[torch.Tensor], list[torch.Tensor]], part: torch.Tensor, cuts: Sequence[Cut]
) -> list[torch.Tensor]:
    if not cuts:
        return leaf(part)
    cut, inner = cuts[0], cuts[1:]
    canvases: list[torch.Tensor] = []
    for index, (start, stop) in enumerate(cut.reads):
        strips = _along(leaf, part.narrow(cut.dim, start, stop - start), inner)
        for strip in strips:
            _check(strip, cut, index)
        if len(cut.reads) == 1:
            return strips
        canvases = canvases or [_canvas(strip, cut) for strip in strips]
        for canvas, strip in zip(canvases, strips, strict=True):
            _blend(canvas, strip, cut, index)
    return canvases


def _check(strip: torch.Tensor, cut: Cut, index: int) -> None:
    (start, stop), (first, last) = cut.reads[index], cut.writes[index]
    if strip.shape[cut.dim] != last - first:
        raise ValueError(
            f"a tile of {stop - start} along dimension {cut.dim} gave {strip.shape[cut.dim]}, not {last - first}: "
            "this model's compression is not the one it states. Do not tile it."
        )


def _canvas(strip: torch.Tensor, cut: Cut) -> torch.Tensor:
    shape = list(strip.shape)
    shape[cut.dim] = cut.writes[-1][1]
    return strip.new_empty(shape)


def _blend(canvas: torch.Tensor, strip: torch.Tensor, cut: Cut, index: int) -> None:
    (first, last), (begin, end) = cut.writes[index], cut.zones[index]
    if end > begin:
        old = canvas.narrow(cut.dim, begin, end - begin)
        new = strip.narrow(cut.dim, begin - first, end - begin)
        old.add_((new - old).mul_(_ramp(old, cut.dim)))
    canvas.narrow(cut.dim, end, last - end).copy_(strip.narrow(cut.dim, end - first, last - end))


def _ramp(like: torch.Tensor, dim: int) -> torch.Tensor:
    """Weights in the middle of ``length`` steps from 0 to 1: no jump exceeds 1/length, also where ramps meet."""
    length = like.shape[dim]
    weights = torch.arange(length, device=like.device, dtype=torch.float32).add_(0.5).div_(length).to(like.dtype)
    shape = [1] * like.dim()
    shape[dim] = length
    return weights.view(shape)
