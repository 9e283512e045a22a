"""Functions that PyTorch composes of small operators while a GPU has one kernel for them: linear layers and RMS norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paretune.harness.simulator.adopt import adopt
from paretune.harness.simulator.dispatch import SPECIAL, execute
from paretune.harness.simulator.machine import Machine
from paretune.harness.simulator.registration import active_machine

__all__ = ["linear_kernel", "rms_norm_kernel"]

aten = torch.ops.aten
_without_modes = torch._C._DisableTorchDispatch
"""Kernels are called above the dispatch modes; what they run on the meta device must not come back in through one."""


def linear_kernel(source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """One product with its bias; what PyTorch's dispatcher calls for `linear` on simulated cards."""
    with _without_modes():
        return _linear(active_machine(), aten.linear.default, (source, weight, bias), {})


def rms_norm_kernel(
    source: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> Any:
    """One kernel, as CUDA has; what PyTorch's dispatcher calls for `rms_norm` on simulated cards."""
    if weight is not None and weight.dtype != source.dtype:
        return _in_steps(source, weight, len(normalized_shape), torch.finfo(source.dtype).eps if eps is None else eps)
    with _without_modes():
        return _rms_norm(active_machine(), aten.rms_norm.default, (source, normalized_shape, weight, eps), {})


def _linear(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    machine.operator = func
    arguments = [adopt(item) for item in (*args, *kwargs.values()) if item is not None]
    return execute(machine, func, tuple(arguments), {})


def _rms_norm(machine: Machine, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source, shape, weight, eps = (*args, *kwargs.values(), None, None)[:4]
    machine.operator = func
    return execute(machine, aten._fused_rms_norm.default, (adopt(source), list(shape), weight, eps), {})[0]


def _in_steps(source: torch.Tensor, weight: torch.Tensor, num_dims: int, eps: float) -> Any:
    """PyTorch computes it in steps, on a GPU too, when input and weight differ in dtype."""
    wide = source.float()
    dims = list(range(-num_dims, 0))
    return (wide * torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + eps)).type_as(source) * weight


SPECIAL[aten.linear.default] = _linear
SPECIAL[aten.rms_norm.default] = _rms_norm
