"""Run a batch through a function one sample at a time and join the answers into the kind the function gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from paretune.strategies.mechanics.structure import take_apart

__all__ = ["sliced"]


def sliced(function: Callable[..., Any], batch: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``function(batch, *args, **kwargs)`` computed sample by sample; ``batch`` has the samples in its first dimension.

    Other tensors, lists and tuples with one entry per sample are split along. The joined tensors are allocated once and
    filled, so the answer is never held twice. A batch of none or one goes through whole.

    Raises ``ValueError`` when the function does not answer one sample with one sample.
    """
    num_samples = batch.shape[0]
    if num_samples <= 1:
        return function(batch, *args, **kwargs)
    joined: list[torch.Tensor] = []
    for index in range(num_samples):
        own_args = [_sample(value, index, num_samples) for value in args]
        own_kwargs = {name: _sample(value, index, num_samples) for name, value in kwargs.items()}
        pieces, rebuild = take_apart(function(batch[index : index + 1], *own_args, **own_kwargs))
        joined = joined or [_room(piece, num_samples) for piece in pieces]
        for whole, piece in zip(joined, pieces, strict=True):
            whole[index : index + 1] = piece
    return rebuild(joined)


def _sample(value: Any, index: int, num_samples: int) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == num_samples:
        return value[index : index + 1]
    if isinstance(value, list | tuple) and len(value) == num_samples:
        return value[index : index + 1]
    return value


def _room(piece: torch.Tensor, num_samples: int) -> torch.Tensor:
    if piece.dim() == 0 or piece.shape[0] != 1:
        raise ValueError(f"one sample was answered with shape {tuple(piece.shape)}; its samples cannot be told apart.")
    return piece.new_empty((num_samples, *piece.shape[1:]))
