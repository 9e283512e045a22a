"""Weight formats of 8 and 4 bits: how a matrix is packed into bytes and scales, and what it is unpacked to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["FORMATS", "Format", "Packed", "dequantize", "pack"]

Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Codes, scales, and offsets (empty where the format has none)."""

_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of the normal distribution, QLoRA (Dettmers et al., 2023), appendix E."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way to store a matrix of shape (rows, columns).

    group: how many neighbours in a row share a scale; 0 for the whole row. bits: per value, without scales.
    code_dtype: of the packed codes. scale_dtype: of scales and offsets; ``None`` for the weight's.
    """

    group: int
    bits: int
    code_dtype: torch.dtype
    scale_dtype: torch.dtype | None = None
    has_offset: bool = False
    pack: Callable[[torch.Tensor], Packed] | None = None
    unpack: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

    def fits(self, columns: int) -> bool:
        """Whether rows of so many columns divide into whole groups."""
        return columns % (self.group or 1) == 0 and (columns * self.bits) % 8 == 0

    def empty(self, weight: torch.Tensor) -> Packed:
        """Tensors of the right sizes without values, for devices that compute none."""
        rows, columns = weight.shape
        groups = columns // self.group if self.group else 1
        codes = weight.new_empty((rows, columns * self.bits // 8 // self.code_dtype.itemsize), dtype=self.code_dtype)
        scales = weight.new_empty((rows, groups), dtype=self.scale_dtype or weight.dtype)
        return codes, scales, scales.new_empty((rows, groups if self.has_offset else 0))


def _grouped(weight: torch.Tensor, group: int) -> torch.Tensor:
    return weight.float().reshape(weight.shape[0], -1, group or weight.shape[1])


def _scaled(weight: torch.Tensor, group: int, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    values = _grouped(weight, group)
    scales = values.abs().amax(-1, keepdim=True).clamp_min(1e-12) / limit
    return values / scales, scales.squeeze(-1)


def _nothing(scales: torch.Tensor) -> torch.Tensor:
    return scales.new_empty((scales.shape[0], 0))


def _pack_int8(weight: torch.Tensor, group: int = 0, dtype: torch.dtype | None = None) -> Packed:
    values, scales = _scaled(weight, group, 127.0)
    scales = scales.to(dtype or weight.dtype)
    codes = values.round_().clamp_(-127, 127).to(torch.int8).reshape(weight.shape)
    return codes, scales, _nothing(scales)


def _pack_float8(weight: torch.Tensor) -> Packed:
    values, scales = _scaled(weight, 0, 448.0)
    scales = scales.to(weight.dtype)
    return values.to(torch.float8_e4m3fn).reshape(weight.shape), scales, _nothing(scales)


def _nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Two codes of four bits a byte, the first in the upper half."""
    pairs = codes.to(torch.uint8).reshape(codes.shape[0], -1, 2)
    return pairs[..., 0] << 4 | pairs[..., 1]


def _codes_of(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack((packed >> 4, packed & 15), -1).reshape(packed.shape[0], -1)


def _pack_int4(weight: torch.Tensor) -> Packed:
    values = _grouped(weight, 128)
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    scales = ((high - low) / 15).clamp_min(1e-12)
    codes = ((values - low) / scales).round_().clamp_(0, 15)
    return _nibbles(codes.flatten(1)), scales.squeeze(-1).to(weight.dtype), low.squeeze(-1).to(weight.dtype)


def _pack_nf4(weight: torch.Tensor) -> Packed:
    values, scales = _scaled(weight, 64, 1.0)
    table = torch.tensor(_NF4, device=weight.device)
    middles = (table[1:] + table[:-1]) / 2
    return _nibbles(torch.bucketize(values.flatten(1), middles)), scales, _nothing(scales)


def _pack_q4(weight: torch.Tensor) -> Packed:
    values = _grouped(weight, 32)
    at = values.abs().argmax(-1, keepdim=True)
    scales = values.gather(-1, at) / -8
    codes = (values / scales.where(scales != 0, 1.0) + 8.5).floor_().clamp_(0, 15)
    return _nibbles(codes.flatten(1)), scales.squeeze(-1).half(), _nothing(scales.squeeze(-1).half())


def _times(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    rows, groups = scales.shape
    return (values.reshape(rows, groups, -1) * scales.unsqueeze(-1)).reshape(rows, -1)


def _unpack_plain(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return _times(codes.float(), scales.float())


def _unpack_int4(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    values = _times(_codes_of(codes).float(), scales.float())
    return (values.reshape(*offsets.shape, -1) + offsets.float().unsqueeze(-1)).reshape(codes.shape[0], -1)


def _unpack_nf4(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return _times(torch.tensor(_NF4, device=codes.device)[_codes_of(codes).int()], scales)


def _unpack_q4(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return _times(_codes_of(codes).float() - 8, scales.float())


FORMATS: dict[str, Format] = {
    "int8_weight_only": Format(group=0, bits=8, code_dtype=torch.int8, pack=_pack_int8, unpack=_unpack_plain),
    "float8_weight_only": Format(
        group=0, bits=8, code_dtype=torch.float8_e4m3fn, pack=_pack_float8, unpack=_unpack_plain
    ),
    "int4_weight_only": Format(
        group=128, bits=4, code_dtype=torch.uint8, has_offset=True, pack=_pack_int4, unpack=_unpack_int4
    ),
    "nf4": Format(
        group=64, bits=4, code_dtype=torch.uint8, scale_dtype=torch.float32, pack=_pack_nf4, unpack=_unpack_nf4
    ),
    "bnb_int8": Format(
        group=0,
        bits=8,
        code_dtype=torch.int8,
        scale_dtype=torch.float32,
        pack=lambda weight: _pack_int8(weight, 0, torch.float32),
        unpack=_unpack_plain,
    ),
    "gguf_q8_0": Format(
        group=32,
        bits=8,
        code_dtype=torch.int8,
        scale_dtype=torch.float16,
        pack=lambda weight: _pack_int8(weight, 32, torch.float16),
        unpack=_unpack_plain,
    ),
    "gguf_q4_0": Format(
        group=32, bits=4, code_dtype=torch.uint8, scale_dtype=torch.float16, pack=_pack_q4, unpack=_unpack_q4
    ),
    "gguf_q4_k": Format(
        group=32, bits=4, code_dtype=torch.uint8, scale_dtype=torch.uint8, has_offset=True, unpack=_unpack_int4
    ),
}
"""By the name plans use. Group sizes are the libraries': torchao 128 for int4, bitsandbytes 64 for nf4, GGML 32."""


def pack(weight: torch.Tensor, name: str, *, has_data: bool = True) -> Packed:
    """Pack a matrix some rows at a time, so that little lies beside it and the packed tensors.

    Without data, or for a format that only files hold, the tensors have their sizes and no values.
    """
    chosen = FORMATS[name]
    codes, scales, offsets = chosen.empty(weight)
    if not has_data or chosen.pack is None:
        return codes, scales, offsets
    step = max(_VALUES_AT_ONCE // max(weight.shape[1], 1), 1)
    for start in range(0, weight.shape[0], step):
        rows = slice(start, start + step)
        codes[rows], scales[rows], offsets[rows] = chosen.pack(weight[rows])
    return codes, scales, offsets


@torch.library.custom_op("paretune::dequantize", mutates_args=())
def dequantize(
    codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor, name: str, dtype: torch.dtype
) -> torch.Tensor:
    """The matrix (rows, columns) in ``dtype`` that codes, scales and offsets stand for; one operator to a profiler."""
    matrix = codes.new_empty((codes.shape[0], _columns(codes, name)), dtype=dtype)
    step = max(_VALUES_AT_ONCE // max(matrix.shape[1], 1), 1)
    for start in range(0, matrix.shape[0], step):
        rows = slice(start, start + step)
        matrix[rows] = FORMATS[name].unpack(codes[rows], scales[rows], offsets[rows])
    return matrix


_VALUES_AT_ONCE = 1 << 21
"""So many values are packed or unpacked together: their float32 temporaries stay within tens of MiB, however large it is."""


def _columns(codes: torch.Tensor, name: str) -> int:
    return codes.shape[1] * codes.element_size() * 8 // FORMATS[name].bits


@dequantize.register_fake
def _(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor, name: str, dtype: torch.dtype) -> torch.Tensor:
    return codes.new_empty((codes.shape[0], _columns(codes, name)), dtype=dtype)
