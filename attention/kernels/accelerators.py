"""Ascend's and TPUs' attention; written to their documentation, run only where such a device is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paretune.attention.kernels.request import Request, Result
from paretune.attention.masks import with_causal

__all__ = ["npu", "xla"]

Tensor = torch.Tensor


def npu(function: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``npu_fusion_attention``: its mask blocks where True, and its output is the first of seven."""
    sizes = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    mask = request.mask
    if request.causal:
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=query.device)
        mask = with_causal(everything if mask is None else mask, sizes)
    blocked = None if mask is None else ~mask.expand(sizes[0], 1 if mask.shape[1] == 1 else sizes[1], *sizes[2:])
    result = function(
        query.contiguous(),
        key.contiguous(),
        value.contiguous(),
        query.shape[2],
        input_layout="BSND",
        atten_mask=blocked,
        scale=request.scale,
        keep_prob=1.0,
    )
    return result[0], None


def xla(function: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """torch_xla's TPU kernel on (B, H, S, D); its own scale would be 1, so it is always given."""
    output: Tensor = function(
        query.transpose(1, 2).contiguous(),
        key.transpose(1, 2).contiguous(),
        value.transpose(1, 2).contiguous(),
        causal=request.causal,
        sm_scale=request.scale,
    )
    return output.transpose(1, 2), None
