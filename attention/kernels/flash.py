"""FlashAttention 2, 3 and 4 and AITER: contiguous (B, S, H, D) or packed sequences, return values of every age."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from paretune.attention.errors import BackendRefused
from paretune.attention.kernels.packing import pack, unpack
from paretune.attention.kernels.request import Request, Result

__all__ = ["aiter", "flash2", "flash2_varlen", "flash3", "flash3_varlen", "flash4"]

Tensor = torch.Tensor
Function = Callable[..., Any]


def flash2(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``flash_attn_func``: with return_attn_probs it gives (out, lse (B, H, S), probabilities)."""
    options = {"dropout_p": 0.0, "softmax_scale": request.scale, "causal": request.causal}
    if request.return_lse:
        options["return_attn_probs"] = True
    return _output(function(*_contiguous(query, key, value), **options), request)


def flash3(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``flash_attn_interface.flash_attn_func``, which has no dropout; old builds always return the log-sum-exp."""
    options = {"softmax_scale": request.scale, "causal": request.causal, **_flash3_lse(function, request)}
    return _output(function(*_contiguous(query, key, value), **options), request)


def flash4(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """The CuTe kernel: the log-sum-exp comes only when return_lse asks for it."""
    options = {"softmax_scale": request.scale, "causal": request.causal}
    if request.return_lse:
        options["return_lse"] = True
    return _output(function(*_contiguous(query, key, value), **options), request)


def aiter(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """AITER's build for ROCm; forward only."""
    options = {"dropout_p": 0.0, "softmax_scale": request.scale, "causal": request.causal}
    if request.return_lse:
        options["return_lse"] = True
    return _output(function(*_contiguous(query, key, value), **options), request)


def flash2_varlen(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``flash_attn_varlen_func`` on the keys that are not padding."""
    options = {"dropout_p": 0.0, "softmax_scale": request.scale, "causal": request.causal}
    if request.return_lse:
        options["return_attn_probs"] = True
    return _packed(function, (query, key, value), request, options)


def flash3_varlen(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``flash_attn_interface.flash_attn_varlen_func`` on the keys that are not padding."""
    options = {"softmax_scale": request.scale, "causal": request.causal, **_flash3_lse(function, request)}
    return _packed(function, (query, key, value), request, options)


def _contiguous(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Kernels promise only the last dimension; views of fused projections have gone wrong before."""
    return tuple(tensor.contiguous() for tensor in tensors)


def _flash3_lse(function: Function, request: Request) -> dict[str, bool]:
    """The switch exists since September 2025; before July 2025 the log-sum-exp always came, between the two never."""
    return {"return_attn_probs": True} if request.return_lse and _has_switch(function) else {}


@cache
def _has_switch(function: Function) -> bool:
    try:
        return "return_attn_probs" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _output(result: Any, request: Request) -> Result:
    if not isinstance(result, tuple | list):
        result = (result, None)
    output, lse = result[0], result[1]
    if not request.return_lse:
        return output, None
    if lse is None:
        raise BackendRefused("this build of the kernel does not return the log-sum-exp. Update it.")
    return output, lse.float()


def _packed(
    function: Function, tensors: tuple[Tensor, Tensor, Tensor], request: Request, options: dict[str, Any]
) -> Result:
    packed = pack(*tensors, request.mask)
    if packed.is_empty:
        return unpack(packed, None, None, request)
    result = function(
        packed.query,
        packed.key,
        packed.value,
        cu_seqlens_q=packed.starts_query,
        cu_seqlens_k=packed.starts_key,
        max_seqlen_q=packed.longest_query,
        max_seqlen_k=packed.longest_key,
        **options,
    )
    return unpack(packed, *_output(result, request), request)
