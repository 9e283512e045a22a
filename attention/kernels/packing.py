"""Batches with padding to one packed row of tokens and back: any pattern of padding, empty samples included."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paretune.attention.kernels.request import Request, Result

__all__ = ["Packed", "pack", "unpack"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Packed:
    """query (T, H, D), key and value (U, G, D) of the samples that have keys; starts (N + 1) are int32 offsets.

    kept: which of the ``shape[0]`` samples those are. shape: (B, S, H, E) of the output to be made.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    starts_query: Tensor
    starts_key: Tensor
    longest_query: int
    longest_key: int
    kept: Tensor
    shape: tuple[int, int, int, int]

    @property
    def is_empty(self) -> bool:
        """Whether no sample has a key."""
        return self.longest_key == 0


def pack(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Packed:
    """Drop the keys that a padding mask (B or 1, 1, 1, K) blocks, and the samples that have none left.

    Kernels have crashed on empty sequences or left their rows unwritten, so they never see one.
    """
    batch, queries, heads, _ = query.shape
    keys = key.shape[1]
    open_keys = torch.ones(batch, keys, dtype=torch.bool, device=key.device)
    if mask is not None:
        open_keys = mask[:, 0, 0].expand(batch, keys)
    lengths = open_keys.sum(dim=1)
    kept = lengths > 0
    open_keys, lengths = open_keys[kept], lengths[kept]
    return Packed(
        query=query[kept].flatten(0, 1).contiguous(),
        key=key[kept][open_keys].contiguous(),
        value=value[kept][open_keys].contiguous(),
        starts_query=_starts(torch.full_like(lengths, queries)),
        starts_key=_starts(lengths),
        longest_query=queries,
        longest_key=int(lengths.max()) if lengths.numel() else 0,
        kept=kept,
        shape=(batch, queries, heads, value.shape[3]),
    )


def unpack(packed: Packed, output: Tensor | None, lse: Tensor | None, request: Request) -> Result:
    """(B, S, H, E) from packed rows (T, H, E), (B, H, S) from (H, T); zeros and minus infinity for empty samples."""
    batch, queries, heads, size = packed.shape
    full = packed.query.new_zeros(packed.shape)
    full_lse = packed.query.new_full((batch, heads, queries), float("-inf"), dtype=torch.float32)
    if output is not None:
        full[packed.kept] = output.view(-1, queries, heads, size).to(full.dtype)
    if lse is not None:
        full_lse[packed.kept] = lse.view(heads, -1, queries).transpose(0, 1).float()
    return full, full_lse if request.return_lse else None


def _starts(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
