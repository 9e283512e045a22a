"""The way to one device: buffers, copies and the order between the copy stream and the streams that compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paretune.strategies.mechanics.capabilities import device_module
from paretune.strategies.mechanics.ring import Ring

__all__ = ["Link", "Transit", "outside_autograd"]


class outside_autograd:  # noqa: N801 - read as a function; a class, because it surrounds every move of a weight
    """Tensors made inside are ordinary ones, also when the caller runs under inference mode, and record no gradient."""

    __slots__ = ("_ordinary",)

    def __enter__(self) -> None:
        self._ordinary = torch.inference_mode(False)
        self._ordinary.__enter__()
        torch._C._set_grad_enabled(False)  # leaving the other brings back both modes as they were

    def __exit__(self, *error: Any) -> None:
        self._ordinary.__exit__(*error)


@dataclass(kw_only=True, eq=False)
class Transit:
    """Bytes on their way to a device: where they land, small tensors apart, and the event of their arrival."""

    buffer: torch.Tensor
    small: list[torch.Tensor]
    arrived: Any


class Link:
    """Copies host bytes to ``device``.

    use_stream: copies run on a stream of their own. The computing stream waits for the copy that it needs; the host
    never waits. What passes through has memory of the copy stream, and a copy waits for the last computation that read
    such memory. What stays shares the computing stream's memory with the activations, so its copy waits for all that
    was submitted before. record_stream: copies wait for nothing, and the allocator delays reuse until the computing
    stream has passed. ring: reusable buffers for what passes through. api: the device's module, torch's own unless
    given.
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
        self.ring = ring
        self._api = api if api is not None else device_module(device)
        self._stream = self._api.Stream(device=device) if use_stream else None
        self._released: Any = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether a copy can run beside computation, so that fetching ahead of need gains time."""
        return self._stream is not None

    def fetch(
        self,
        num_bytes: int,
        sources: list[tuple[int, torch.Tensor]],
        *,
        small: Sequence[torch.Tensor] = (),
        is_passing: bool = False,
    ) -> Transit:
        """Start copying each source (1-D bytes) to its offset in a buffer of ``num_bytes``, and the small ones beside
        it.

        ``is_passing`` says that the bytes leave again soon, so that a buffer of the ring serves.
        """
        with outside_autograd():
            if self._stream is None:
                buffer = self._take(num_bytes, is_passing)
                return Transit(buffer=buffer, small=self._copy(buffer, sources, small), arrived=None)
            buffer = self._take_beside(num_bytes, is_passing)
            with self._api.stream(self._stream):
                pieces = self._copy(buffer, sources, small)
            return Transit(buffer=buffer, small=pieces, arrived=self._mark(self._stream))

    def _take_beside(self, num_bytes: int, is_passing: bool) -> torch.Tensor:
        if is_passing or self.record_stream:
            with self._api.stream(self._stream):
                return self._take(num_bytes, is_passing)
        buffer = self._take(num_bytes, is_passing)
        self._wait(self._mark(self._api.current_stream(self.device)))
        return buffer

    def arrive(self, transit: Transit) -> None:
        """From here on the caller's stream may read the buffer."""
        if self._stream is None:
            return
        computing = self._api.current_stream(self.device)
        computing.wait_event(transit.arrived)
        for tensor in (transit.buffer, *transit.small) if self.record_stream else transit.small:
            self._record(tensor, computing)

    def leave(self, transit: Transit) -> None:
        """The caller's stream reads the buffer no more once it has done what was submitted so far."""
        if self._stream is not None:
            self._released = self._mark(self._api.current_stream(self.device))
        if self.ring is not None and self.ring.owns(transit.buffer):
            self.ring.give(transit.buffer, self._released)

    def abandon(self, transit: Transit) -> None:
        """Give back a buffer that nothing has read; its memory is free for computing only after the copy."""
        if self._stream is not None:
            self._api.current_stream(self.device).wait_event(transit.arrived)
        self.leave(transit)

    def drain(self) -> None:
        """Let the ring's free buffers go."""
        if self.ring is not None:
            self.ring.clear()

    def settle(self) -> None:
        """The host waits for every copy that was started, so that host buffers may be changed or freed."""
        if self._stream is not None:
            self._stream.synchronize()
        elif self.non_blocking and self.device.type != "cpu":
            self._api.current_stream(self.device).synchronize()

    def _take(self, num_bytes: int, is_passing: bool) -> torch.Tensor:
        if is_passing and self.ring is not None and num_bytes <= self.ring.slot_bytes:
            buffer, last_read = self.ring.take(self.device)
            self._wait(last_read or self._released)
            return buffer
        if is_passing and not self.record_stream:
            self._wait(self._released)
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def _copy(
        self, buffer: torch.Tensor, sources: list[tuple[int, torch.Tensor]], small: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        for offset_bytes, source in sources:
            is_all = source.numel() == buffer.numel()
            target = buffer if is_all else buffer[offset_bytes : offset_bytes + source.numel()]
            target.copy_(source, non_blocking=self.non_blocking)
        return [piece.to(self.device, copy=True) for piece in small]

    def _record(self, tensor: torch.Tensor, stream: Any) -> None:
        tensor.record_stream(stream)

    def _wait(self, event: Any) -> None:
        if self._stream is not None and event is not None:
            self._stream.wait_event(event)

    def _mark(self, stream: Any) -> Any:
        event = self._api.Event()
        event.record(stream)
        return event
