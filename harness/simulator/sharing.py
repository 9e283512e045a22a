"""Memory that does not exist is not handed to other libraries: DLPack capsules of simulated tensors are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack

from paretune.harness.simulator.errors import missing_value
from paretune.harness.simulator.tensor import SimulatedTensor

__all__ = ["RefusedCapsules"]

_MAKERS = (
    (torch.utils.dlpack, "to_dlpack"),
    (torch._C, "_to_dlpack"),
    (torch._C, "_to_dlpack_versioned"),
)


class RefusedCapsules:
    """While a simulation is active, PyTorch's functions that make a capsule of a tensor ask whether there are bytes behind it.

    They would put a null pointer in, and whoever takes the capsule would read from there.
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> RefusedCapsules:
        for holder, name in _MAKERS:
            original = getattr(holder, name, None)
            if original is not None:
                self._replaced.append((holder, name, original))
                setattr(holder, name, _checked(original))
        return self

    def __exit__(self, *_: Any) -> None:
        while self._replaced:
            holder, name, original = self._replaced.pop()
            setattr(holder, name, original)


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, SimulatedTensor):
            raise missing_value(tensor.sim_storage.machine, "to_dlpack", tensor)
        return original(tensor, *args, **kwargs)

    return make
