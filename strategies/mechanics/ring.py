"""A few device buffers of equal size, used again and again; a buffer is free or held, never guessed from an index."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Ring"]


class Ring:
    """Hands out buffers of ``slot_bytes``; keeps at most ``num_buffers``, makes more only while all of them are held.

    A buffer returns with the event after which nothing reads it, and whoever writes it next waits for that event.
    """

    def __init__(self, *, num_buffers: int, slot_bytes: int) -> None:
        self.num_buffers = num_buffers
        self.slot_bytes = slot_bytes
        self._free: list[tuple[torch.Tensor, Any]] = []
        self._held: dict[int, torch.Tensor] = {}

    @property
    def num_held(self) -> int:
        """Buffers that are in use now."""
        return len(self._held)

    def owns(self, buffer: torch.Tensor) -> bool:
        """Whether the buffer was taken from here and not given back."""
        return self._held.get(id(buffer)) is buffer

    def take(self, device: torch.device) -> tuple[torch.Tensor, Any]:
        """A buffer and the event to wait for before writing it; the buffer that is free for longest comes first."""
        if self._free:
            buffer, last_read = self._free.pop(0)
        else:
            buffer, last_read = torch.empty(self.slot_bytes, dtype=torch.uint8, device=device), None
        self._held[id(buffer)] = buffer
        return buffer, last_read

    def give(self, buffer: torch.Tensor, last_read: Any) -> None:
        """Take a buffer back; one beyond the ring's number is let go."""
        del self._held[id(buffer)]
        if len(self._free) + len(self._held) < self.num_buffers:
            self._free.append((buffer, last_read))

    def clear(self) -> None:
        """Let the free buffers go."""
        self._free.clear()
