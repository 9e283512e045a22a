"""xFormers: masks as an addend with aligned rows, causal as the library's own mask object."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from paretune.attention.kernels.request import Request, Result
from paretune.attention.masks import additive, aligned, with_causal

__all__ = ["xformers"]

Tensor = torch.Tensor


def xformers(function: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``memory_efficient_attention`` on (B, S, H, D); grouped heads were spread before, so a mask fits every head."""
    output: Tensor = function(
        query.contiguous(),
        key.contiguous(),
        value.contiguous(),
        attn_bias=_bias(query, key, request),
        scale=request.scale,
    )
    return output, None


def _bias(query: Tensor, key: Tensor, request: Request) -> Any:
    if request.mask is None:
        # Looked up by name: the library is optional, and this module must import without it.
        objects = importlib.import_module("xformers.ops") if request.causal else None
        return objects.LowerTriangularMask() if objects else None
    sizes = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    mask = with_causal(request.mask, sizes) if request.causal else request.mask
    return aligned(additive(mask, query.dtype), sizes)
