"""Multiply-add work of matrix products and convolutions: how many operations, at which rate, in how many tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from paretune.harness.simulator.sheets import GpuSheet

__all__ = ["Product", "product_of"]

aten = torch.ops.aten
TILE = 128
"""Rows and columns of the output tile that one multiprocessor computes at a time; typical for tensor-core kernels."""
CONVOLUTION_SHARE = 0.95
"""Convolutions reach this share of what plain products reach."""


@dataclass(frozen=True, slots=True)
class Product:
    """Work of one kernel: floating-point operations, the name of the rate, and output tiles."""

    flops: float
    dtype: str
    tiles: float
    share: float = 1.0
    uses_cublas: bool = True

    def waves(self, sheet: GpuSheet) -> float:
        """Output tiles for each multiprocessor."""
        return max(self.tiles / sheet.multiprocessors, 1e-3)


def product_of(packet: Any, args: tuple[Any, ...], results: list[torch.Tensor]) -> Product | None:
    """The product that an operator computes, or `None` for operators bound by memory."""
    build = _BUILDERS.get(packet)
    return build(args, results) if build is not None else None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _matrix(rows: int, columns: int, inner: int, dtype: torch.dtype, batch: int = 1) -> Product:
    tiles = batch * -(-rows // TILE) * -(-columns // TILE)
    return Product(2.0 * batch * rows * columns * inner, _name(dtype), tiles)


def _mm(args: tuple[Any, ...], _: list[torch.Tensor]) -> Product:
    left, right = args[0], args[1]
    return _matrix(left.shape[0], right.shape[1], left.shape[1], left.dtype)


def _addmm(args: tuple[Any, ...], results: list[torch.Tensor]) -> Product:
    return _mm(args[1:], results)


def _linear(args: tuple[Any, ...], results: list[torch.Tensor]) -> Product:
    source, weight = args[0], args[1]
    return _matrix(source.shape[:-1].numel(), weight.shape[0], source.shape[-1], source.dtype)


def _bmm(args: tuple[Any, ...], _: list[torch.Tensor]) -> Product:
    left, right = args[0], args[1]
    return _matrix(left.shape[1], right.shape[2], left.shape[2], left.dtype, left.shape[0])


def _baddbmm(args: tuple[Any, ...], results: list[torch.Tensor]) -> Product:
    return _bmm(args[1:], results)


def _convolution(args: tuple[Any, ...], results: list[torch.Tensor]) -> Product:
    source, weight = args[0], args[1]
    is_transposed = bool(args[6])
    positions = (source if is_transposed else results[0]).numel() // max(weight.shape[0], 1)
    if is_transposed:
        positions = source.numel() // max(source.shape[1], 1)
    flops = 2.0 * positions * weight.numel()
    rate = "tfloat32" if source.dtype == torch.float32 else _name(source.dtype)
    tiles = -(-positions // TILE) * -(-weight.shape[0] // TILE)
    return Product(flops, rate, tiles, CONVOLUTION_SHARE, uses_cublas=False)


_BUILDERS: dict[Any, Callable[[tuple[Any, ...], list[torch.Tensor]], Product]] = {
    aten.linear: _linear,
    aten.mm: _mm,
    aten._scaled_mm: _mm,
    aten._int_mm: _mm,
    aten.addmm: _addmm,
    aten.bmm: _bmm,
    aten.baddbmm: _baddbmm,
    aten.convolution: _convolution,
}
