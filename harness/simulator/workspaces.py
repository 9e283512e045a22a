"""Temporary memory inside operators, which no dispatch mode can see: layout conversions, sorting, antialiased resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["CUBLAS_BYTES", "CUBLAS_HOPPER_BYTES", "cublas_bytes", "workspace_bytes"]

aten = torch.ops.aten
CUBLAS_BYTES = 8_519_680
"""PyTorch's cuBLAS workspace for each handle and stream (`:4096:2:16:8`)."""
CUBLAS_HOPPER_BYTES = 32 << 20
"""The same on compute capability 9.0 and 10.x."""
HALF_CONVERSION_SHARE = 1.0
"""cuDNN converts NCHW half-precision input and output to NHWC inside: their bytes once each."""
SINGLE_CONVERSION_SHARE = 0.5
"""The same in float32 with TF32 tensor cores: half of it, fitted to one published peak (SDXL, float32 decode)."""


def cublas_bytes(compute_capability: tuple[int, int]) -> int:
    """Bytes of one cuBLAS workspace on a card."""
    return CUBLAS_HOPPER_BYTES if compute_capability[0] in (9, 10) else CUBLAS_BYTES


def workspace_bytes(packet: Any, args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    """Bytes that an operator takes from the allocator while it runs, beyond its results."""
    count = _COUNTERS.get(packet)
    return count(args, results) if count is not None else 0


def _convolution(args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    source, weight = args[0], args[1]
    if not _is_planar(source) or weight.shape[1] == 1 or weight.dim() < 4:
        return 0
    if not _is_planar(results[0]):
        return _bytes(source)
    share = HALF_CONVERSION_SHARE if source.element_size() == 2 else SINGLE_CONVERSION_SHARE
    return int(share * (_bytes(source) + _bytes(results[0])))


def _is_planar(tensor: torch.Tensor) -> bool:
    """Whether the channels are not innermost, so that tensor-core kernels need a conversion."""
    is_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    is_last_3d = tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d)
    return not (is_last or is_last_3d)


def _sorted(args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    return sum(_bytes(tensor) for tensor in results)


def _group_norm(args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    """The kernel wants NCHW: any other layout is copied first."""
    return 0 if args[0].is_contiguous() else _bytes(args[0])


def _antialiased(args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    return _bytes(results[0]) * 2


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


_COUNTERS: dict[Any, Callable[[tuple[Any, ...], list[torch.Tensor]], int]] = {
    aten.convolution: _convolution,
    aten.sort: _sorted,
    aten.native_group_norm: _group_norm,
    aten._upsample_bilinear2d_aa: _antialiased,
    aten._upsample_bicubic2d_aa: _antialiased,
}
