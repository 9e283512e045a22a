"""FlexAttention: masks become a score modification, so every shape and type of mask is exact."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from paretune.attention.kernels.request import Request, Result

__all__ = ["flex"]

Tensor = torch.Tensor


def flex(attention: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """Generated for the mask. On a GPU it is compiled here when nothing compiles it from outside."""
    from torch.nn.attention.flex_attention import AuxRequest

    function = attention
    if not torch.compiler.is_compiling():
        function = partial(_unfused, attention) if query.device.type == "cpu" else _compiled(attention)
    options: dict[str, Any] = {"return_aux": AuxRequest(lse=True)} if request.return_lse else {}
    result = function(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        score_mod=_score_mod(request),
        scale=request.scale,
        enable_gqa=query.shape[2] != key.shape[2],
        **options,
    )
    if not request.return_lse:
        return result.transpose(1, 2), None
    return result[0].transpose(1, 2), result[1].lse.float()


def _unfused(attention: Callable[..., Any], *tensors: Tensor, **options: Any) -> Any:
    """Called eagerly on purpose, so PyTorch's advice to compile is not passed on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return attention(*tensors, **options)


@cache
def _compiled(attention: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(attention)


def _score_mod(request: Request) -> Callable[..., Tensor] | None:
    if request.mask is None:
        return _causal if request.causal else None
    mask = request.mask
    sizes = tuple(1 if size == 1 else 2 for size in mask.shape)

    def masked(score: Tensor, batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        where = (batch * (sizes[0] > 1), head * (sizes[1] > 1), q * (sizes[2] > 1), k * (sizes[3] > 1))
        here = mask[where]
        changed = torch.where(here, score, -float("inf")) if mask.dtype is torch.bool else score + here.to(score.dtype)
        return _causal(changed, batch, head, q, k) if request.causal else changed

    return masked


def _causal(score: Tensor, batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.where(q >= k, score, -float("inf"))
