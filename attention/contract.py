"""One contract for every backend: the same arguments mean the same thing, or the call is refused with the reason.

Tensors are (B, S, H, D). Boolean masks attend where True. Causal means query i attends keys 0..i (aligned at the first
key, as PyTorch does). A row with nothing to attend to gives zeros and a log-sum-exp of minus infinity. Blocked
positions never reach the result, even when they hold NaN. The log-sum-exp is natural, (B, H, S) float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paretune.attention.available import compute_capability, require
from paretune.attention.call import TAKES, Call, refusal
from paretune.attention.catalog import Entry, entry
from paretune.attention.errors import BackendRefused
from paretune.attention.kernels.loading import Kernel, kernel_on
from paretune.attention.kernels.request import Request, Result, repeat_heads
from paretune.attention.masks import attended, canonical, mask_kind, simplified, with_causal
from paretune.attention.simulated import simulated

__all__ = ["attend", "call_of", "check", "compute", "refuse_dropout", "scale_of", "sizes_of"]

Tensor = torch.Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    backend: str = "native",
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    dropout_p: float = 0.0,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of ``query`` (B, S, H, D) over ``key`` (B, K, G, D) and ``value`` (B, K, G, E), by one named backend.

    mask: (B, K), (S, K), (B, S, K) or broadcastable to (B, H, S, K); boolean (True attends) or additive. scale: factor
    on the products, by default D ** -0.5. enable_gqa: G divides H and key heads are shared. dropout_p: must be zero,
    this is inference. Returns (B, S, H, E), and with ``return_lse`` also the log-sum-exp (B, H, S). Raises
    ``BackendRefused`` when the backend cannot compute the call, ``BackendUnavailable`` when it is not here,
    ``ValueError`` for an unknown name.
    """
    refuse_dropout(dropout_p)
    name = _ready(backend, query.device.type, query.device.index)
    chosen, kernel = _ENTRIES[name], _KERNELS[name, query.device.type]
    mask = None if mask is None else canonical(mask, sizes_of(query, key))
    request = Request(mask, causal, scale_of(query, scale), enable_gqa, return_lse)
    output, lse = compute(chosen, kernel, (query, *_without_blocked(key, value, mask)), request)
    return output if lse is None else (output, lse)


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    backend: str,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    dropout_p: float = 0.0,
) -> None:
    """Raise what ``attend`` would raise for these arguments before it ran; nothing is computed."""
    chosen = entry(backend)
    refuse_dropout(dropout_p)
    require(chosen, query.device)
    mask = None if mask is None else canonical(mask, sizes_of(query, key))
    _prepared(chosen, (query, key, value), Request(mask, causal, scale_of(query, scale), enable_gqa, return_lse))


def compute(chosen: Entry, kernel: Kernel | None, tensors: tuple[Tensor, Tensor, Tensor], request: Request) -> Result:
    """Check a call, bring it to what the kernel takes without changing its meaning, and run it.

    ``request.mask`` is canonical (see masks.py); ``kernel`` is None on a simulated device. Raises ``BackendRefused`` before
    the kernel is called.
    """
    (query, key, value), request, original = _prepared(chosen, tensors, request)
    if not (query.numel() and key.numel() and value.numel()):
        return _nothing(query, value, request)
    if not chosen.limits_for(query.device.type).gqa:
        key, value = repeat_heads(query, key), repeat_heads(query, value)
    if kernel is None or (query.device.type == "sim" and chosen.name != "native"):
        return simulated(chosen.name, query, key, value, request)
    output, lse = kernel(query, key, value, request)
    return (output, lse) if original is None else _blank(output, lse, original)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale as a number: D ** -0.5 unless given."""
    return float(query.shape[-1]) ** -0.5 if scale is None else scale


def sizes_of(query: Tensor, key: Tensor) -> tuple[int, int, int, int]:
    """Batch, heads, queries, keys. Raises ``BackendRefused`` unless both tensors have four dimensions."""
    if query.ndim != 4 or key.ndim != 4:
        raise BackendRefused(f"tensors are (B, S, H, D); got {tuple(query.shape)} and {tuple(key.shape)}.")
    return query.shape[0], query.shape[2], query.shape[1], key.shape[1]


def refuse_dropout(dropout_p: float) -> None:
    """Raise ``BackendRefused`` for a dropout that is not zero."""
    if dropout_p:
        raise BackendRefused(f"dropout_p={dropout_p}: attention backends are for inference. Call model.eval() first.")


def call_of(query: Tensor, key: Tensor, value: Tensor, request: Request) -> Call:
    """The call as numbers, for the refusal rules."""
    return Call(
        dtype=str(query.dtype).removeprefix("torch."),
        batch=query.shape[0],
        queries=query.shape[1],
        keys=key.shape[1],
        heads=query.shape[2],
        key_heads=key.shape[2],
        head_size=query.shape[3],
        value_size=value.shape[3],
        mask=mask_kind(request.mask),
        causal=request.causal,
        enable_gqa=request.enable_gqa,
        default_scale=request.scale == float(query.shape[3]) ** -0.5,
        return_lse=request.return_lse,
        requires_grad=torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad),
        device_type=query.device.type,
        compute_capability=_capability(query.device.type, query.device.index),
    )


def _prepare(backend: str, kind: str, index: int | None) -> str:
    """Look the backend up, ask whether it is here, and load it; again at every call, because a library may be replaced."""
    chosen = entry(backend)
    require(chosen, torch.device(kind, index) if index is not None else torch.device(kind))
    _ENTRIES[backend] = chosen
    _KERNELS[backend, kind] = kernel_on(chosen, kind)
    return backend


_ENTRIES: dict[str, Entry] = {}
_KERNELS: dict[tuple[str, str], Kernel | None] = {}

# The compiler takes their answers as constants of the graph instead of tracing the look-ups.
_constant: Any = torch.compiler.assume_constant_result
_ready: Callable[[str, str, int | None], str] = _constant(lambda *place: _prepare(*place))
_capability: Callable[[str, int | None], tuple[int, int] | None] = _constant(lambda *place: compute_capability(*place))


Prepared = tuple[tuple[Tensor, Tensor, Tensor], Request, Tensor | None]


def _prepared(chosen: Entry, tensors: tuple[Tensor, Tensor, Tensor], request: Request) -> Prepared:
    """The call in its cheapest equal form, and the mask whose blocked rows must give zeros afterwards."""
    query, key, value = tensors
    _refuse_mismatch(query, key, value)
    mask, causal = request.mask, request.causal
    if causal and query.shape[1] < key.shape[1]:
        # No query reaches keys past the last query, so dropping them changes nothing and leaves a square.
        key, value = key[:, : query.shape[1]], value[:, : query.shape[1]]
        mask = mask if mask is None or mask.shape[3] == 1 else mask[..., : query.shape[1]]
    sizes, takes = sizes_of(query, key), chosen.limits_for(query.device.type).mask
    given = with_causal(mask, sizes) if mask is not None and causal else mask
    if mask is not None and mask_kind(mask) not in TAKES[takes]:
        mask, lower = simplified(mask, sizes)
        causal = causal or lower
    request = Request(mask, causal, request.scale, request.enable_gqa, request.return_lse)
    if reason := refusal(chosen, call_of(query, key, value, request)):
        raise BackendRefused(reason)
    return (query, key, value), request, None if mask is None else given


def _refuse_mismatch(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise BackendRefused("tensors are (B, S, H, D): query, key and value need four dimensions.")
    if not query.dtype == key.dtype == value.dtype:
        raise BackendRefused(
            f"query, key and value have types {query.dtype}, {key.dtype}, {value.dtype}; make them equal."
        )
    if not query.device == key.device == value.device:
        raise BackendRefused(
            f"query, key, value are on {query.device}, {key.device}, {value.device}; move them together."
        )
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
        raise BackendRefused(f"query, key and value of shapes {shapes} do not belong together.")


def _without_blocked(key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Zeros where no query looks: zero times NaN would still be NaN."""
    if mask is None:
        return key, value
    unseen = ~attended(mask).any(dim=2).any(dim=1)[:, :, None, None]
    return key.masked_fill(unseen, 0.0), value.masked_fill(unseen, 0.0)


def _blank(output: Tensor, lse: Tensor | None, mask: Tensor) -> Result:
    blocked = ~attended(mask).any(dim=3)
    rows = blocked.transpose(1, 2)[..., None]
    # In place where no backward pass could miss the old values: the output is fresh, and a second one would show as memory.
    output = output.masked_fill(rows, 0.0) if torch.is_grad_enabled() else output.masked_fill_(rows, 0.0)
    return output, None if lse is None else lse.masked_fill(blocked, float("-inf"))


def _nothing(query: Tensor, value: Tensor, request: Request) -> Result:
    batch, queries, heads, _ = query.shape
    output = query.new_zeros(batch, queries, heads, value.shape[3])
    if not request.return_lse:
        return output, None
    return output, query.new_full((batch, heads, queries), float("-inf"), dtype=torch.float32)
