"""Attention on a device without data: one operator that carries the backend's name, charged by the simulator.

The simulator (a torch device registered from Python) sees ``paretune::attention`` in its dispatch and takes memory and
time from the catalogue entry; here are only its schema and shapes.
"""

from __future__ import annotations

import torch

from paretune.attention.errors import BackendRefused
from paretune.attention.kernels.request import Request, Result

__all__ = ["simulated"]


@torch.library.custom_op(
    "paretune::attention",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? mask, str backend, bool causal, float? scale, bool gqa) -> Tensor",
)
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    backend: str,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> torch.Tensor:
    raise BackendRefused(f"{backend}: paretune::attention only describes a call on a simulated device.")


@_attention.register_fake
def _shape(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    backend: str,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> torch.Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


def simulated(backend: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, request: Request) -> Result:
    """Ask the simulator for one call: q (B, S, H, D), k and v with their own number of heads; output (B, S, H, E)."""
    gqa = query.shape[2] != key.shape[2]
    output: torch.Tensor = torch.ops.paretune.attention(
        query, key, value, request.mask, backend, request.causal, request.scale, gqa
    )
    if not request.return_lse:
        return output, None
    batch, queries, heads, _ = query.shape
    return output, query.new_empty(batch, heads, queries, dtype=torch.float32)
