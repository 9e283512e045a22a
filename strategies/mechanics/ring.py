"""A few device buffers of equal size, used again and again; a buffer is free or held, never guessed from an index."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Ring"]


class Ring:
    """Hands out buffers of ``slot_bytes``; makes at most ``num_buffers`` that it keeps, more only while all are held.

    A buffer returns with the event after which nothing reads it, and whoever writes it next waits for that event.
    """

    def __init__(self, *, num_buffers: int, slot_bytes: int) -> None:
        self.num_buffers = num_buffers
        self.slot_bytes = slot_bytes
        self._free: list[tuple[torch.Tensor, Any]] = []
        self._num_held = 0

    @property
    def num_held(self) -> int:
        """Buffers that are in use now."""
        return self._num_held

    def take(self, device: torch.device) -> tuple[torch.Tensor, Any]:
        """A buffer and the event to wait for before writing it; the buffer longest free comes first."""
        self._num_held += 1
        if self._free:
            return self._free.pop(0)
        return torch.empty(self.slot_bytes, dtype=torch.uint8, device=device), None

    def give(self, buffer: torch.Tensor, last_read: Any) -> None:
        """Take a buffer back; one beyond the ring's number is let go."""
        self._num_held -= 1
        if len(self._free) + self._num_held < self.num_buffers:
            whole = buffer if buffer.numel() == self.slot_bytes else buffer.as_strided((self.slot_bytes,), (1,), 0)
            self._free.append((whole, last_read))

    def clear(self) -> None:
        """Let the free buffers go."""
        self._free.clear()
