"""Which backend a routed layer uses: one by name, or the best for each shape."""

from __future__ import annotations

from typing import Protocol

import torch

from paretune.attention.catalog import Entry
from paretune.attention.kernels.loading import Kernel, kernel_on
from paretune.attention.kernels.request import Request

__all__ = ["Named", "Selection"]


class Selection(Protocol):
    """Picks the entry and its loaded kernel for one call; ``name`` is what the user asked for."""

    @property
    def name(self) -> str:
        """A backend's name, or "auto"."""
        ...

    def pick(
        self, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], request: Request
    ) -> tuple[Entry, Kernel | None]:
        """The entry, and its kernel unless the device is simulated."""
        ...


class Named:
    """Always the same backend; the kernel is loaded once, when the route is made."""

    def __init__(self, entry: Entry, device_type: str) -> None:
        self.entry = entry
        self.kernel = kernel_on(entry, device_type)

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.entry.name

    def pick(
        self, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], request: Request
    ) -> tuple[Entry, Kernel | None]:
        """The one backend."""
        return self.entry, self.kernel
