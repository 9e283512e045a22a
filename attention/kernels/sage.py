"""SageAttention: quantised products; the library swallows unknown keywords, so it is given only what it documents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from paretune.attention.kernels.packing import pack, unpack
from paretune.attention.kernels.request import Request, Result

__all__ = ["blackwell", "sage", "variant", "varlen"]

Tensor = torch.Tensor
Function = Callable[..., Any]


def sage(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``sageattn`` in its "NHD" layout, which is (B, S, H, D); the log-sum-exp is (B, H, S) float32."""
    with _on_device(query):
        result = function(
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            tensor_layout="NHD",
            is_causal=request.causal,
            sm_scale=request.scale,
            return_lse=request.return_lse,
        )
    return (result[0], result[1].float()) if request.return_lse else (result, None)


def variant(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """One of the ``sageattn_qk_int8_*`` functions, with the library's own granularity and accumulation."""
    return sage(function, query, key, value, request)


def varlen(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``sageattn_varlen`` on the keys that are not padding."""
    packed = pack(query, key, value, request.mask)
    if packed.is_empty:
        return unpack(packed, None, None, request)
    with _on_device(query):
        output = function(
            packed.query,
            packed.key,
            packed.value,
            packed.starts_query,
            packed.starts_key,
            packed.longest_query,
            packed.longest_key,
            is_causal=request.causal,
            sm_scale=request.scale,
        )
    return unpack(packed, output, None, request)


def blackwell(function: Function, query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """``sageattn3_blackwell``: (B, H, S, D), scale fixed, and it subtracts the mean from k in place, hence the copy."""
    heads_first = [tensor.transpose(1, 2).contiguous() for tensor in (query, key, value)]
    heads_first[1] = heads_first[1].clone()
    output: Tensor = function(*heads_first, is_causal=request.causal)
    return output.transpose(1, 2), None


def _on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """The library makes the tensor's device current and leaves it so; this puts the old one back."""
    return torch.cuda.device(tensor.device) if tensor.device.type == "cuda" else nullcontext()
