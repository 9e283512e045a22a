"""Page-lock only what is being sent: a few host buffers that pageable weights pass through on their way."""

from __future__ import annotations

from typing import Any

import torch

from paretune.strategies.mechanics.link import Transit
from paretune.strategies.mechanics.packing import power_of_two

__all__ = ["Staging"]


class Staging:
    """Two or more page-locked buffers, used in turn; a buffer is written again only after its last copy has arrived."""

    def __init__(self, *, num_buffers: int = 2, pin: bool = True) -> None:
        self._pin = pin
        self._buffers: list[torch.Tensor | None] = [None] * num_buffers
        self._sent: list[Any] = [None] * num_buffers
        self._turn = 0

    @property
    def pinned_bytes(self) -> int:
        """Page-locked bytes held now."""
        return sum(buffer.numel() for buffer in self._buffers if buffer is not None) if self._pin else 0

    def gather(self, num_bytes: int, sources: list[tuple[int, torch.Tensor]]) -> list[tuple[int, torch.Tensor]]:
        """Copy the sources into the next buffer; one contiguous source comes back, ready for an asynchronous copy."""
        buffer = self._next(num_bytes)
        for offset, source in sources:
            buffer[offset : offset + source.numel()].copy_(source)
        return [(0, buffer[:num_bytes])]

    def sent(self, transit: Transit) -> None:
        """Remember the copy that reads the buffer just gathered."""
        self._sent[self._turn] = transit.arrived

    def close(self) -> None:
        """Let the buffers go."""
        self._buffers = [None] * len(self._buffers)
        self._sent = [None] * len(self._sent)

    def _next(self, num_bytes: int) -> torch.Tensor:
        self._turn = (self._turn + 1) % len(self._buffers)
        if self._sent[self._turn] is not None:
            self._sent[self._turn].synchronize()
            self._sent[self._turn] = None
        buffer = self._buffers[self._turn]
        if buffer is None or buffer.numel() < num_bytes:
            buffer = torch.empty(power_of_two(num_bytes), dtype=torch.uint8, pin_memory=self._pin)
            self._buffers[self._turn] = buffer
        return buffer
