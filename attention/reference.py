"""Attention in float64, written out, and how far from it each kind of kernel may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paretune.attention.catalog import Entry
from paretune.attention.kernels.request import Request, Result, repeat_heads
from paretune.attention.masks import additive, with_causal

__all__ = ["Distance", "distance", "exceeded", "reference"]

Tensor = torch.Tensor

# Largest error of kernels with an exact softmax, from FlashAttention's and xFormers' own tests.
_ABSOLUTE = {"float64": 1e-6, "float32": 5e-6, "bfloat16": 3e-2, "float16": 4e-3}
_FLOAT32_ON_GPU = 3e-4
# Quantised kernels: cosine at least, relative L1 at most. Their largest error grows with the data.
_LOSSY = {"sage_int8_fp16": (0.999, 0.03), "sage_fp4": (0.9, 0.4)}
_LOSSY_DEFAULT = (0.998, 0.06)


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far an output is from the reference: largest error, cosine, and summed error over summed magnitude."""

    largest: float
    cosine: float
    relative_l1: float


def reference(query: Tensor, key: Tensor, value: Tensor, request: Request) -> Result:
    """Attention of the contract in float64: q (B, S, H, D), k and v (B, K, G, D); output and log-sum-exp in float64."""
    query, key, value = (tensor.double() for tensor in (query, repeat_heads(query, key), repeat_heads(query, value)))
    scores = torch.einsum("bshd,bkhd->bhsk", query, key) * request.scale
    if request.mask is not None:
        scores = scores + additive(request.mask, torch.float64)
    if request.causal:
        scores = with_causal(scores, (query.shape[0], query.shape[2], query.shape[1], key.shape[1]))
    lse = scores.logsumexp(dim=3)
    weights = (scores - lse[..., None]).exp().masked_fill(torch.isneginf(lse)[..., None], 0.0)
    return torch.einsum("bhsk,bkhd->bshd", weights, value), lse


def distance(output: Tensor, expected: Tensor) -> Distance:
    """Compare two tensors of one shape, in float64."""
    given, wanted = output.double().flatten(), expected.double().flatten()
    norm = given.norm() * wanted.norm()
    return Distance(
        largest=float((given - wanted).abs().max()) if given.numel() else 0.0,
        cosine=float(given @ wanted / norm) if norm > 0 else float(torch.equal(given, wanted)),
        relative_l1=float((given - wanted).abs().sum() / wanted.abs().sum().clamp_min(1e-30)),
    )


def exceeded(entry: Entry, found: Distance, *, dtype: str, on_gpu: bool) -> str:
    """Which tolerance of the entry's kind a distance breaks, as a sentence; empty when it holds. NaN never holds."""
    if entry.is_lossy:
        cosine, relative = _LOSSY.get(entry.cost.family, _LOSSY_DEFAULT)
        if found.cosine >= cosine and found.relative_l1 <= relative:
            return ""
        return (
            f"cosine {found.cosine:.5f} (at least {cosine}), relative L1 {found.relative_l1:.4f} (at most {relative})."
        )
    limit = _FLOAT32_ON_GPU if on_gpu and dtype == "float32" else _ABSOLUTE[dtype]
    return (
        ""
        if found.largest <= limit
        else f"largest error {found.largest:.2e} in {dtype}, at most {limit:.0e} is expected."
    )
