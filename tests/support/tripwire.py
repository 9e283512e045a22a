"""Make the CPU behave like two devices: computing with a weight that is not onloaded raises, as a GPU would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["HostWeightUsed", "Tripwire"]

_MOVES = {
    "copy_",
    "_to_copy",
    "clone",
    "detach",
    "alias",
    "view",
    "as_strided",
    "slice",
    "_unsafe_view",
    "empty_strided",
}


class HostWeightUsed(RuntimeError):
    """An operator met a weight on the host."""


class Tripwire(TorchDispatchMode):
    """While active, operators other than copies and views refuse the memory that ``weights`` have now.

    Enter it while everything is offloaded: the memory that the weights have then is host memory.
    """

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._host = {w.untyped_storage()._cdata for w in weights if w.numel()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ not in _MOVES:
            for leaf in tree_leaves((args, kwargs or {})):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in self._host:
                    raise HostWeightUsed(f"{func} used a weight of shape {tuple(leaf.shape)} that is on the host")
        return func(*args, **(kwargs or {}))
