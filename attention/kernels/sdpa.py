"""PyTorch's scaled_dot_product_attention and each of its kernels, with the log-sum-exp where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from paretune.attention.kernels.request import Request, Result, repeat_heads
from paretune.attention.masks import additive, aligned, with_causal

__all__ = ["cudnn", "efficient", "flash", "math", "native"]

Sdpa = Callable[..., torch.Tensor]
Tensor = torch.Tensor


def native(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """Whatever kernel PyTorch chooses; on a GPU no fused kernel takes grouped heads and a mask, so heads are spread."""
    if request.return_lse:
        fused = query.device.type == "cpu" and value.shape[-1] == query.shape[-1]
        return _flash_cpu(query, key, value, request) if fused else math(sdpa, query, key, value, request)
    if request.mask is not None and query.device.type != "cpu":
        key, value = repeat_heads(query, key), repeat_heads(query, value)
    return _call(sdpa, query, key, value, request), None


def math(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """Products and softmax one after the other; the log-sum-exp costs a second product."""
    with sdpa_kernel(SDPBackend.MATH):
        output = _call(sdpa, query, key, value, request)
    return output, _lse(query, key, request) if request.return_lse else None


def flash(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """The FlashAttention kernel built into PyTorch, for CUDA or CPU."""
    if request.return_lse and query.device.type == "cpu":
        return _flash_cpu(query, key, value, request)
    if request.return_lse:
        return _flash_cuda(query, key, value, request)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _call(sdpa, query, key, value, request), None


def efficient(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """The memory-efficient kernel; it wants its addend at aligned strides and never grouped heads with a mask."""
    key, value = repeat_heads(query, key), repeat_heads(query, value)
    if request.return_lse:
        return _efficient_with_lse(query, key, value, request)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return _call(sdpa, query, key, value, request), None


def cudnn(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """cuDNN's kernel; contiguous inputs, because some of its versions mishandle other strides."""
    query, key, value = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (query, key, value))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return _call(sdpa, query, key, value, request), None


def _call(sdpa: Sdpa, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Tensor:
    mask, causal = _mask(query, key, request), request.causal and request.mask is None
    output: Tensor = sdpa(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=causal,
        scale=request.scale,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return output.transpose(1, 2)


def _sizes(query: Tensor, key: Tensor) -> tuple[int, int, int, int]:
    return query.shape[0], query.shape[2], query.shape[1], key.shape[1]


def _mask(query: Tensor, key: Tensor, request: Request) -> Tensor | None:
    """One mask instead of mask and causal; additive in the query's type, the only one every kernel reads right."""
    if request.mask is None:
        return None
    mask = with_causal(request.mask, _sizes(query, key)) if request.causal else request.mask
    return mask if mask.dtype is torch.bool else mask.to(query.dtype)


def _lse(query: Tensor, key: Tensor, request: Request) -> Tensor:
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = torch.einsum("bshd,bkhd->bhsk", query.to(wide), repeat_heads(query, key).to(wide)) * request.scale
    if request.mask is not None:
        scores = scores + additive(request.mask, wide)
    if request.causal:
        scores = with_causal(scores, _sizes(query, key))
    return scores.logsumexp(-1).float()


def _flash_cpu(query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    key, value = repeat_heads(query, key), repeat_heads(query, value)
    mask = _mask(query, key, request)
    op: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = op(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        0.0,
        request.causal and mask is None,
        attn_mask=None if mask is None else additive(mask, query.dtype),
        scale=request.scale,
    )
    return output.transpose(1, 2), lse.float()


def _flash_cuda(query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    op: Any = torch.ops.aten._scaled_dot_product_flash_attention
    size = query.shape[-1]
    key, value = repeat_heads(query, key), repeat_heads(query, value)
    padded = [torch.nn.functional.pad(t, (0, -size % 8)).transpose(1, 2) for t in (query, key, value)]
    output, lse = op(*padded, 0.0, request.causal, False, scale=request.scale)[:2]
    return output[..., :size].transpose(1, 2), lse.float()


def _efficient_with_lse(query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    op: Any = torch.ops.aten._scaled_dot_product_efficient_attention
    mask = _mask(query, key, request)
    bias = None if mask is None else aligned(additive(mask, query.dtype), _sizes(query, key))
    heads_first = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    output, lse = op(*heads_first, bias, True, 0.0, request.causal and mask is None, scale=request.scale)[:2]
    return output.transpose(1, 2), lse[..., : query.shape[1]].float()
