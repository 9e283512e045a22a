"""Move tensors that are more than one stretch of memory (quantised weights) with their own ``to``."""

from __future__ import annotations

import torch
from torch import nn

from paretune.strategies.mechanics.bundle import Bundle, WriteBack
from paretune.strategies.mechanics.link import Link, Transit, outside_autograd
from paretune.strategies.mechanics.staging import Staging

__all__ = ["OpaqueBundle", "bytes_of", "exchange", "moved"]


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes of everything inside the tensor, its scales and tables included."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return sum(bytes_of(getattr(tensor, name)) for name in names)
    return tensor.numel() * tensor.element_size()


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on another device, as a parameter if it is one."""
    result = tensor.to(device)
    if isinstance(tensor, nn.Parameter) and not isinstance(result, nn.Parameter):
        return nn.Parameter(result, requires_grad=tensor.requires_grad)
    return result


def exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Let two tensor objects swap everything but their identity, as ``Module.to`` does for such tensors."""
    torch.utils.swap_tensors(one, other)  # type: ignore[no-untyped-call]


class OpaqueBundle(Bundle):
    """Opaque tensors that move together, each with its own copy; the contiguous copy of a bundle is not possible."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__(())
        self._tensors = tensors
        self._homes = [tensor.device for tensor in tensors]
        self._others: list[torch.Tensor] = []
        self._is_here = False
        self.num_bytes = 0
        self.opaque_bytes = sum(map(bytes_of, tensors))

    @property
    def is_on_device(self) -> bool:
        return self._is_here

    def keep_on_host(self, flat: torch.Tensor | None) -> None:
        self._put(torch.device("cpu"))

    def fetch(self, link: Link, staging: Staging | None, *, is_passing: bool) -> None:
        self._num_fetched += 1
        if self._num_fetched == 1:
            with outside_autograd():
                self._others = [moved(tensor, link.device) for tensor in self._tensors]
            self._is_here = True

    def show(self, link: Link) -> None:
        self._num_shown += 1
        if self._num_shown == 1:
            self._swap()

    def hide(self, link: Link, *, write_back: WriteBack = WriteBack.CHANGED) -> None:
        self._num_shown -= 1
        if self._num_shown == 0:
            self._swap()

    def drop(self, link: Link, *, was_read: bool) -> None:
        self._num_fetched -= 1
        if self._num_fetched == 0:
            self._others, self._is_here = [], False

    def is_replaced(self) -> bool:
        return False

    def restore(self) -> None:
        for tensor, home in zip(self._tensors, self._homes):
            if tensor.device != home:
                exchange(tensor, moved(tensor, home))

    def _put(self, device: torch.device) -> None:
        for tensor in self._tensors:
            if tensor.device != device:
                exchange(tensor, moved(tensor, device))

    def _swap(self) -> None:
        for tensor, other in zip(self._tensors, self._others):
            exchange(tensor, other)

    def _send(self, link: Link, staging: Staging | None, is_passing: bool) -> Transit:
        raise NotImplementedError("opaque tensors are not sent as bytes")
