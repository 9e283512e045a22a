"""Kernels for the few operators that PyTorch runs on the `sim` device before, or without, asking a dispatch mode."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo  # PyTorch's shape inference imports it anyway, and must not do so while a function of torch is replaced

from paretune.harness.simulator.attention import sdpa_kernel
from paretune.harness.simulator.fused import linear_kernel, rms_norm_kernel
from paretune.harness.simulator.placement import named_index
from paretune.harness.simulator.registration import active_machine
from paretune.harness.simulator.storage import Storage
from paretune.harness.simulator.tensor import SimulatedTensor, extent_bytes, make_tensor
from paretune.harness.simulator.timeline import copy_over_link

__all__ = ["ShallowCopies", "register_kernels"]

_libraries: list[Any] = []


def register_kernels() -> None:
    """Register once a process.

    `torch.tensor(..., device="sim")` copies with all modes switched off. Scaled dot product attention and RMS norm would be
    taken apart before a mode sees them, while a GPU has kernels for them. A linear layer is taken whole for speed only.
    """
    if _libraries:
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    library.impl("scaled_dot_product_attention", sdpa_kernel, "AutogradPrivateUse1")
    library.impl("rms_norm", rms_norm_kernel, "AutogradPrivateUse1")
    library.impl("linear", linear_kernel, "AutogradPrivateUse1")
    _libraries.append(library)


class ShallowCopies:
    """While a simulation is active, `Module.to` replaces ordinary parameters by simulated ones instead of mixing them."""

    def __enter__(self) -> ShallowCopies:
        self._original = torch._has_compatible_shallow_copy_type
        torch._has_compatible_shallow_copy_type = self._are_compatible  # type: ignore[assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        torch._has_compatible_shallow_copy_type = self._original

    def _are_compatible(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        if isinstance(left, SimulatedTensor) != isinstance(right, SimulatedTensor):
            return False
        return bool(self._original(left, right))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    machine = active_machine()
    index = named_index(machine, device)
    dtype = dtype or torch.get_default_dtype()
    size, stride = tuple(size), tuple(stride)
    return make_tensor(Storage(machine, index, extent_bytes(size, stride, dtype.itemsize)), dtype, size, stride)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(target, SimulatedTensor) or isinstance(source, SimulatedTensor):
        raise RuntimeError("a simulated tensor was copied while its simulation was switched off")
    copy_over_link(
        target.sim_storage.machine.cards[target.sim_storage.index],
        target.sim_storage.nbytes,
        to_device=True,
        pinned=False,
        non_blocking=False,
    )
    target.sim_value = source.to(target.dtype)
    return target
