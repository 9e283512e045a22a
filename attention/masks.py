"""Attention masks of every usual shape brought to one form, and what their contents allow.

The form is None or a tensor broadcastable to (batch, heads, queries, keys) with four dimensions: boolean (True attends)
or additive. Additive values at or below the lowest finite number of their type mean blocked, like minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from paretune.attention.errors import BackendRefused

__all__ = [
    "additive",
    "aligned",
    "attended",
    "canonical",
    "causal_part",
    "is_readable",
    "like_sdpa",
    "mask_kind",
    "simplified",
    "with_causal",
]

Sizes = tuple[int, int, int, int]
"""Batch, heads, queries, keys."""


def canonical(mask: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Bring (B, K), (S, K), (B, S, K) or a four-dimensional mask to four dimensions.

    Raises ``BackendRefused`` for other shapes and for those that can be read in two ways.
    """
    batch, heads, queries, keys = sizes
    shape = tuple(mask.shape)
    readings: dict[str, torch.Tensor] = {}
    if mask.ndim == 1 and shape == (keys,):
        readings["(1, 1, 1, K)"] = mask[None, None, None]
    if mask.ndim == 2:
        if shape == (batch, keys):
            readings["(B, 1, 1, K)"] = mask[:, None, None]
        if shape == (queries, keys):
            readings["(1, 1, S, K)"] = mask[None, None]
    if mask.ndim == 3 and shape[1] in (1, queries) and shape[2] in (1, keys):
        if shape[0] in (1, batch):
            readings["(B, 1, S, K)"] = mask[:, None]
        if shape[0] == heads != 1:
            readings["(1, H, S, K)"] = mask[None]
    if mask.ndim == 4 and all(have in (1, want) for have, want in zip(shape, sizes)):
        return _clean(mask)
    if len(readings) > 1 and batch * heads > 1:
        raise BackendRefused(
            f"a mask of shape {shape} can be read as {' or '.join(readings)}. Give it four dimensions."
        )
    if not readings:
        raise BackendRefused(f"a mask of shape {shape} does not fit (batch, heads, queries, keys) = {sizes}.")
    return _clean(next(iter(readings.values())))


def like_sdpa(mask: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Bring a mask to four dimensions as PyTorch's attention broadcasts it: aligned at the last dimension."""
    shape = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    if len(shape) != 4 or not all(have in (1, want) for have, want in zip(shape, sizes)):
        raise BackendRefused(f"a mask of shape {tuple(mask.shape)} does not broadcast to {sizes}.")
    return _clean(mask.view(shape) if mask.ndim < 4 else mask)


def _clean(mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype is torch.bool:
        return mask
    if not mask.is_floating_point():
        raise BackendRefused(f"a mask is boolean or floating point, not {str(mask.dtype).removeprefix('torch.')}.")
    cleaned: torch.Tensor = _remembered(mask, "clean", _lowest_to_infinity)
    return cleaned


def _lowest_to_infinity(mask: torch.Tensor) -> torch.Tensor:
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min, float("-inf"))


def mask_kind(mask: torch.Tensor | None) -> Literal["none", "padding", "boolean", "dense"]:
    """What a kernel must take: "padding" is a boolean mask of keys for each sample, "dense" is additive."""
    if mask is None:
        return "none"
    if mask.dtype is not torch.bool:
        return "dense"
    return "padding" if mask.shape[1] == mask.shape[2] == 1 else "boolean"


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the values can be looked at now: not while tracing, not on a device without data."""
    if torch.compiler.is_compiling() or tensor.device.type in ("meta", "sim"):
        return False
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def simplified(mask: torch.Tensor, sizes: Sizes) -> tuple[torch.Tensor | None, bool]:
    """The cheapest exact form of a canonical mask: (mask or None, causal). Reads the contents, once per mask."""
    if not is_readable(mask):
        return mask, False
    form = _remembered(mask, "form", lambda given: _form(given, sizes))
    if form is _CAUSAL:
        return None, True
    return (None if form is _OPEN else mask if form is None else form), False


_OPEN, _CAUSAL = "open", "causal"


def _form(mask: torch.Tensor, sizes: Sizes) -> torch.Tensor | str | None:
    """``_OPEN``, ``_CAUSAL``, a smaller or boolean mask that means the same, or None when there is none."""
    boolean = mask if mask.dtype is torch.bool else mask == 0
    if bool(boolean.all()):
        return _OPEN
    if mask.dtype is not torch.bool and not bool((boolean | torch.isneginf(mask)).all()):
        return None
    lower = causal_part(sizes, mask.device)
    if mask.shape[2:] == lower.shape[2:] and bool((boolean == lower).all()):
        return _CAUSAL
    first = boolean[:, :1, :1]
    if bool((boolean == first).all()):
        return first.clone()
    return None if mask.dtype is torch.bool else boolean


def causal_part(sizes: Sizes, device: torch.device) -> torch.Tensor:
    """The boolean mask (1, 1, S, K) in which query i attends keys 0..i."""
    _, _, queries, keys = sizes
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()[None, None]


def with_causal(mask: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """The mask that blocks what ``mask`` or causality blocks."""
    lower = causal_part(sizes, mask.device)
    return mask & lower if mask.dtype is torch.bool else mask.masked_fill(~lower, float("-inf"))


def attended(mask: torch.Tensor) -> torch.Tensor:
    """The boolean mask of what is not blocked."""
    return mask if mask.dtype is torch.bool else ~torch.isneginf(mask)


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as an addend of this dtype."""
    if mask.dtype is torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
    return mask.to(dtype)


def aligned(bias: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """The addend expanded to ``sizes``, its rows starting at multiples of eight elements as cutlass kernels demand."""
    keys = sizes[3]
    padded = bias.new_zeros((*bias.shape[:3], -(-keys // 8) * 8))
    padded[..., :keys] = bias
    return padded.expand(*sizes[:3], -1)[..., :keys]


class _Findings:
    """What was computed from one mask; lives in the mask's own attributes, so it dies with it."""

    def __init__(self) -> None:
        self.version = -1
        self.values: dict[str, Any] = {}


def _remembered(mask: torch.Tensor, what: str, compute: Callable[[torch.Tensor], Any]) -> Any:
    if not is_readable(mask) or mask.is_inference():
        return compute(mask)
    owner = mask if mask._base is None else mask._base
    findings: _Findings = owner.__dict__.setdefault("_paretune_findings", _Findings())
    if findings.version != mask._version:
        findings.version, findings.values = mask._version, {}
    key = f"{what} {tuple(mask.shape)} {mask.stride()} {mask.storage_offset()} {mask.dtype}"
    if key not in findings.values:
        findings.values[key] = compute(mask)
    return findings.values[key]
