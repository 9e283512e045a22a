"""Give a model without weights random ones: seeded, never zero, scaled to stay finite in half precision."""

from __future__ import annotations

import math
import zlib
from functools import cached_property
from typing import TYPE_CHECKING

from paretune.harness.workloads.skeleton import kept_in_float32

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["materialise"]

# A prime number of samples: when a weight repeats them, its rows are never aligned with the repetition.
_NUM_SAMPLES = 1_048_573

_SMALL = 0.02

# Models with more parameters than this are never computed for real on a simulated machine.
_LARGE = 1 << 26

# The last convolution decides how far pixels leave their range; clipped pixels would hide differences between outputs.
_LAST_GAIN = 0.3


def materialise(model: nn.Module, *, dtype: torch.dtype, seed: int, device: str = "cpu") -> None:
    """Replace every parameter of `model`, on meta or not, by a random one of `dtype`, and cast its persistent buffers.

    The values of a parameter depend on `seed` and on its name only, so a model of the same architecture is always the
    same model. Matrices and convolutions get a standard deviation of 1 / sqrt(fan in), biases 0.02, one-dimensional
    weights (norms and gains) 1 + 0.02 n. Tied parameters stay tied. What the model's class keeps in float32 stays so.
    """
    import torch

    kept = kept_in_float32(model, dtype)
    made: dict[int, nn.Parameter] = {}
    count = sum(parameter.numel() for parameter in model.parameters())
    source = _Shapes() if _has_no_values(count) else _Samples(seed=seed, device=device)
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            full = f"{path}.{name}" if path else name
            target = torch.float32 if kept.intersection(full.split(".")) else dtype
            if id(parameter) not in made:
                made[id(parameter)] = source.parameter(full, parameter, dtype=target)
            module._parameters[name] = made[id(parameter)]
        _cast_buffers(module, path, dtype, kept)
    model.requires_grad_(False).eval()


def _cast_buffers(module: nn.Module, path: str, dtype: torch.dtype, kept: frozenset[str]) -> None:
    """Checkpoints hold persistent buffers in their dtype; buffers that are computed at construction keep their own."""
    for name, buffer in module._buffers.items():
        persistent = name not in module._non_persistent_buffers_set
        if buffer is not None and persistent and buffer.is_floating_point() and not kept.intersection(path.split(".")):
            module._buffers[name] = buffer.to(dtype)


class _Samples:
    """A bank of normal samples, drawn once; each parameter reads it, repeatedly if need be, from its own place."""

    def __init__(self, *, seed: int, device: str) -> None:
        self._seed = seed
        self._device = device

    @cached_property
    def _bank(self) -> torch.Tensor:
        import torch

        return torch.randn(_NUM_SAMPLES, generator=torch.Generator().manual_seed(self._seed)).to(self._device)

    def parameter(self, name: str, like: nn.Parameter, *, dtype: torch.dtype) -> nn.Parameter:
        """A parameter of `like`'s shape; values from `name` and the seed."""
        import torch
        from torch import nn

        values = torch.empty(like.shape, dtype=dtype, device=self._device)
        self._fill(values.view(-1), zlib.crc32(f"{self._seed}:{name}".encode()) % _NUM_SAMPLES)
        values.mul_(_scale(name, like))
        if name.endswith("weight") and like.ndim <= 1:
            values.add_(1.0)
        return nn.Parameter(values, requires_grad=False)

    def _fill(self, flat: torch.Tensor, start: int) -> None:
        """Rest of the bank from `start`, whole banks, and what is missing from the bank's beginning."""
        head = min(_NUM_SAMPLES - start, flat.numel())
        flat[:head].copy_(self._bank[start : start + head])
        num_whole, tail = divmod(flat.numel() - head, _NUM_SAMPLES)
        if num_whole:
            flat[head : head + num_whole * _NUM_SAMPLES].view(num_whole, _NUM_SAMPLES).copy_(self._bank)
        if tail:
            flat[-tail:].copy_(self._bank[:tail])


class _Shapes:
    """Parameters for a simulated host, where large tensors have no values: nothing is drawn."""

    def parameter(self, name: str, like: nn.Parameter, *, dtype: torch.dtype) -> nn.Parameter:
        """A parameter of `like`'s shape; the few that are small enough for values hold zeros, never read."""
        import torch
        from torch import nn

        from paretune.harness.simulator.dispatch import KEEP_VALUES_NUMEL

        make = (
            torch.zeros if like.numel() <= KEEP_VALUES_NUMEL else torch.empty
        )  # larger ones would be filled for nothing
        return nn.Parameter(make(like.shape, dtype=dtype), requires_grad=False)


def _has_no_values(num_elements: int) -> bool:
    """Whether a host tensor of that size is only a shape here, as on a simulated machine."""
    import torch

    return num_elements > _LARGE and type(torch.empty(_LARGE, dtype=torch.uint8)) is not torch.Tensor


def _scale(name: str, like: torch.Tensor) -> float:
    if like.ndim < 2:
        return _SMALL
    gain = _LAST_GAIN if name.endswith(("conv_out.weight", "conv_out.conv.weight")) else 1.0
    return gain / math.sqrt(max(1, math.prod(like.shape[1:])))
