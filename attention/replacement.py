"""What a routed layer calls: stand-ins for PyTorch's and diffusers' attention functions, with their signatures."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from paretune.attention.contract import compute, refuse_dropout, scale_of
from paretune.attention.errors import BackendRefused
from paretune.attention.kernels.request import Request
from paretune.attention.masks import like_sdpa
from paretune.attention.selection import Selection

__all__ = ["STAND_INS", "dispatch_for", "sdpa_for"]

Tensor = torch.Tensor
STAND_INS: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]] = weakref.WeakKeyDictionary()
"""Every stand-in alive, and the function it stands for."""


def sdpa_for(selection: Selection, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function with the signature of ``F.scaled_dot_product_attention``; ``native`` is the original itself."""
    if selection.name == "native":
        return original

    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        refuse_dropout(dropout_p)
        leading, (query, key, value) = query.shape[:-2], _four_dimensional(query, key, value, enable_gqa)
        sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        mask = None if attn_mask is None else like_sdpa(_flat_batch(attn_mask, leading), sizes)
        tensors = (query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        request = Request(mask, is_causal, scale_of(query, scale), enable_gqa, False)
        output = compute(*selection.pick(tensors, request), tensors, request)[0].transpose(1, 2)
        return output.reshape(*leading, *output.shape[-2:])

    STAND_INS[scaled_dot_product_attention] = original
    return scaled_dot_product_attention


def dispatch_for(selection: Selection, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the signature of diffusers' ``dispatch_attention_fn``; the layer's own backend is overruled."""
    from diffusers.models.attention_dispatch import AttentionBackendName

    def dispatch_attention_fn(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        attention_kwargs: dict[str, Any] | None = None,
        *,
        backend: Any = None,
        parallel_config: Any = None,
    ) -> Any:
        block_mask = attn_mask is not None and not isinstance(attn_mask, torch.Tensor)
        if selection.name == "native" or (selection.name == "flex" and block_mask):
            own = AttentionBackendName.FLEX if block_mask else AttentionBackendName.NATIVE
            options = (dropout_p, is_causal, scale, enable_gqa, attention_kwargs)
            return original(query, key, value, attn_mask, *options, backend=own, parallel_config=parallel_config)
        if block_mask:
            raise BackendRefused(
                f"{selection.name}: the layer passes a {type(attn_mask).__name__}; only flex takes it."
            )
        refuse_dropout(dropout_p)
        return_lse = _only_lse(selection.name, attention_kwargs, parallel_config)
        tensors = (query, key, value)
        mask = None if attn_mask is None else _dispatched_mask(attn_mask, query, key)
        request = Request(mask, is_causal, scale_of(query, scale), enable_gqa, return_lse)
        output, lse = compute(*selection.pick(tensors, request), tensors, request)
        return (output, lse) if return_lse else output

    STAND_INS[dispatch_attention_fn] = original
    return dispatch_attention_fn


def _four_dimensional(query: Tensor, key: Tensor, value: Tensor, gqa: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(B, H, S, D) from anything PyTorch takes: fewer or more leading dimensions, broadcast batches and heads."""
    if query.ndim < 2 or key.ndim != query.ndim or value.ndim != query.ndim:
        raise BackendRefused("query, key and value need the same number of dimensions, at least two.")
    shared = query.shape[:-3] if gqa else query.shape[:-2]
    tensors = [query]
    for tensor in (key, value):
        own = tensor.shape[-3:] if gqa else tensor.shape[-2:]
        tensors.append(tensor.expand(*shared, *own))
    return (
        tensors[0].reshape(_shape(query)),
        tensors[1].reshape(_shape(tensors[1])),
        tensors[2].reshape(_shape(tensors[2])),
    )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    if tensor.ndim <= 4:
        return (1,) * (4 - tensor.ndim) + tuple(tensor.shape)
    return (-1, *tensor.shape[-3:])


def _flat_batch(mask: Tensor, leading: torch.Size) -> Tensor:
    if mask.ndim <= 4:
        if len(leading) <= 2 or mask.ndim <= 3:
            return mask
        mask = mask.view((1,) * (len(leading) + 2 - mask.ndim) + tuple(mask.shape))
    return mask.expand(*leading[:-1], *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])


def _dispatched_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """As diffusers reads it: two dimensions that fit are (batch, keys), everything else broadcasts."""
    if mask.ndim == 2 and tuple(mask.shape) == (query.shape[0], key.shape[1]):
        mask = mask[:, None, None]
    return like_sdpa(mask, (query.shape[0], query.shape[2], query.shape[1], key.shape[1]))


def _only_lse(name: str, options: Mapping[str, Any] | None, parallel: Any) -> bool:
    if parallel is not None:
        raise BackendRefused(
            f"{name}: context parallelism is not routed. Reset the route or the parallel configuration."
        )
    given = {key: value for key, value in (options or {}).items() if value is not None}
    return_lse = bool(given.pop("return_lse", False))
    if given:
        raise BackendRefused(
            f"{name}: the layer passes {', '.join(given)}, which no backend here is given. Use native."
        )
    return return_lse
