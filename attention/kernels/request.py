"""What an adapter is asked for, after every check has passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Adapter", "Request", "Result", "repeat_heads"]


@dataclass(frozen=True)
class Request:
    """Options of one call. Tensors go beside it: q (B, S, H, D), k (B, K, G, D), v (B, K, G, E).

    mask: None or four-dimensional, broadcastable to (B, H, S, K), boolean (True attends) or additive.
    causal: query i attends keys 0..i. scale: always a number, the factor on query-key products.
    """

    mask: torch.Tensor | None
    causal: bool
    scale: float
    enable_gqa: bool
    return_lse: bool


Result = tuple[torch.Tensor, torch.Tensor | None]
"""Output (B, S, H, E) and, when asked for, the natural log-sum-exp (B, H, S) in float32."""

Adapter = Callable[[Callable[..., Any], torch.Tensor, torch.Tensor, torch.Tensor, Request], Result]


def repeat_heads(query: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Give every query head (dimension 2) a key or value head of its own."""
    groups = query.shape[2] // tensor.shape[2]
    return tensor if groups == 1 else tensor.repeat_interleave(groups, dim=2)
