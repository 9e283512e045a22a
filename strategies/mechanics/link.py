"""The way to one device: buffers, copies and the order between the copy stream and the streams that compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from paretune.strategies.mechanics.capabilities import device_module
from paretune.strategies.mechanics.ring import Ring

__all__ = ["Link", "Transit", "outside_autograd"]


@contextmanager
def outside_autograd() -> Iterator[None]:
    """Tensors made inside are ordinary ones, also when the caller runs under inference mode, and record no gradient."""
    with torch.inference_mode(False), torch.no_grad():
        yield


@dataclass(kw_only=True, eq=False)
class Transit:
    """Bytes on their way to a device: where they land, and the event after which they are there."""

    buffer: torch.Tensor
    arrived: Any


class Link:
    """Copies host bytes to ``device``.

    use_stream: copies run on a stream of their own. The compute stream waits for the copy it needs; the copy stream waits
    for the compute that read the buffer which is written again, so the host never waits. record_stream: instead of the
    second wait, the allocator keeps a released buffer back until the computing stream has passed. ring: reusable buffers
    instead of fresh ones. api: the device's module; ``torch.get_device_module(device)`` unless given.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        use_stream: bool = False,
        record_stream: bool = False,
        non_blocking: bool = False,
        ring: Ring | None = None,
        api: Any = None,
    ) -> None:
        self.device = device
        self.non_blocking = non_blocking or use_stream
        self.record_stream = record_stream
        self._api = api if api is not None else device_module(device)
        self._ring = ring
        self._stream = self._api.Stream(device=device) if use_stream else None
        self._released: Any = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether a copy can run beside computation, so that fetching ahead of need gains time."""
        return self._stream is not None

    def fetch(self, num_bytes: int, sources: list[tuple[int, torch.Tensor]]) -> Transit:
        """Start copying: each source (1-D bytes) to its offset in a buffer of ``num_bytes``."""
        with outside_autograd(), self._copying():
            buffer = self._take(num_bytes)
            for offset_bytes, source in sources:
                target = buffer if source.numel() == num_bytes else buffer[offset_bytes : offset_bytes + source.numel()]
                target.copy_(source, non_blocking=self.non_blocking)
            return Transit(buffer=buffer, arrived=self._mark(self._stream))

    def arrive(self, transit: Transit) -> None:
        """From here on the caller's stream may read the buffer."""
        if self._stream is None:
            return
        computing = self._api.current_stream(self.device)
        computing.wait_event(transit.arrived)
        if self.record_stream:
            transit.buffer.record_stream(computing)

    def leave(self, transit: Transit) -> None:
        """The caller's stream reads the buffer no more; its memory may be written again after what was submitted."""
        if self._stream is not None:
            self._released = self._mark(self._api.current_stream(self.device))
        if self._ring is not None:
            self._ring.give(transit.buffer, self._released)

    def abandon(self, transit: Transit) -> None:
        """Give back a buffer that nothing has read; the copy stream itself orders its reuse."""
        if self._ring is not None:
            self._ring.give(transit.buffer, None)

    def drain(self) -> None:
        """Let the ring's free buffers go; the host waits until no copy reads host memory any more."""
        if self._ring is not None:
            self._ring.clear()

    def settle(self) -> None:
        """The host waits for every copy that was started, so that host buffers may be changed or freed."""
        if self._stream is not None:
            self._stream.synchronize()
        elif self.non_blocking and self.device.type != "cpu":
            self._api.current_stream(self.device).synchronize()

    def _take(self, num_bytes: int) -> torch.Tensor:
        if self._ring is not None and num_bytes <= self._ring.slot_bytes:
            buffer, last_read = self._ring.take(self.device)
            self._wait_for(last_read)
            return buffer[:num_bytes] if num_bytes < buffer.numel() else buffer
        if not self.record_stream:
            self._wait_for(self._released)
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def _wait_for(self, event: Any) -> None:
        if event is not None and self._stream is not None:
            self._stream.wait_event(event)

    def _mark(self, stream: Any) -> Any:
        if self._stream is None:
            return None
        event = self._api.Event()
        event.record(stream)
        return event

    @contextmanager
    def _copying(self) -> Iterator[None]:
        if self._stream is None:
            yield
        else:
            with self._api.stream(self._stream):
                yield
