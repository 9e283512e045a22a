"""Make the arguments of a call that cannot be written down: seeded tensors and pictures."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paretune.harness.workloads.architecture import Input

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

__all__ = ["make_inputs"]


def make_inputs(declared: Mapping[str, Input], *, dtype: torch.dtype, seed: int, batch_size: int = 1) -> dict[str, Any]:
    """The declared arguments by name, on the host.

    Args:
        dtype: of floating tensors that name no dtype of their own.
        batch_size: factor on the first dimension of every tensor that has one; pictures stay single.

    A name with a dot (`added_cond_kwargs.time_ids`) is an entry of a mapping argument.
    """
    made: dict[str, Any] = {}
    for name, one in declared.items():
        outer, _, inner = name.partition(".")
        value = _make(name, one, dtype, seed, batch_size)
        if inner:
            made.setdefault(outer, {})[inner] = value
        else:
            made[outer] = value
    return made


def _make(name: str, declared: Input, dtype: torch.dtype, seed: int, batch_size: int) -> Any:
    own_seed = zlib.crc32(f"{seed}:{name}".encode())
    if declared.kind == "image":
        return _picture(declared.height, declared.width, own_seed)
    return _tensor(declared, dtype, own_seed, batch_size)


def _tensor(declared: Input, dtype: torch.dtype, seed: int, batch_size: int) -> torch.Tensor:
    import torch

    shape = declared.shape if declared.shared else (declared.shape[0] * batch_size, *declared.shape[1:])
    chosen = getattr(torch, declared.dtype) if declared.dtype else dtype
    if declared.kind == "constant":
        return torch.full(shape, declared.value, dtype=chosen)
    generator = torch.Generator().manual_seed(seed)
    if declared.kind == "integers":
        return torch.randint(0, declared.high, shape, generator=generator, dtype=torch.int64)
    return torch.randn(shape, generator=generator).to(chosen)


def _picture(height: int, width: int, seed: int) -> Image:
    """Soft coloured noise: a picture of a few large shapes, as an autoencoder expects, rather than static."""
    import numpy as np
    from PIL import Image

    coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
