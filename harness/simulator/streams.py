"""Streams and events of a simulated device: points in simulated time, with the surface of torch.cuda's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import Machine, SimulatedCard

__all__ = ["Event", "Stream"]


class Stream:
    """A queue of work on one card; `ready_s` is when everything submitted so far is done."""

    def __init__(
        self, device: torch.device | int | None = None, priority: int = 0, *, _card: SimulatedCard | None = None
    ):
        from paretune.harness.simulator.registration import active_machine

        machine = active_machine() if _card is None else _card.machine
        self._card = machine.card(device) if _card is None else _card
        self.device = torch.device("sim", self._card.index)
        self.priority = priority
        self.stream_id = self._card.adopt(self)
        self.ready_s = 0.0
        self._outer: list[Stream] = []

    def wait_event(self, event: Event) -> None:
        """Later work on this stream starts after the event."""
        self._machine.spoil()
        self._machine.host_s += self._machine.host.event_call_s
        if event.time_s > self.ready_s:
            self.ready_s = event.time_s

    def wait_stream(self, other: Stream) -> None:
        """Later work on this stream starts after all work submitted to the other so far."""
        self._machine.spoil()
        self._machine.host_s += 2 * self._machine.host.event_call_s
        if other.ready_s > self.ready_s:
            self.ready_s = other.ready_s

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event at the end of the work submitted so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """The host waits for this stream."""
        self._machine.wait(self.ready_s)

    def query(self) -> bool:
        """Whether all submitted work is done at the host's present."""
        return self.ready_s <= self._machine.host_s

    @property
    def _machine(self) -> Machine:
        return self._card.machine

    @property
    def cuda_stream(self) -> int:
        """The raw handle's stand-in."""
        return self.stream_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._card, self.stream_id) == (other._card, other.stream_id)

    def __hash__(self) -> int:
        return hash((self._card.index, self.stream_id))

    def __enter__(self) -> Stream:
        self._machine.spoil()
        self._outer.append(self._card.current)
        self._card.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        self._card.current = self._outer.pop()

    def __repr__(self) -> str:
        return f"<simulated Stream device={self.device} id={self.stream_id}>"


class Event:
    """A point on a stream."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        if interprocess:
            raise ValueError("simulated events live in one process: interprocess=True is not supported")
        self.enable_timing = enable_timing
        self.blocking = blocking
        self.time_s = 0.0
        self._machine: Machine | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of what the stream has been given so far."""
        from paretune.harness.simulator.registration import active_machine

        if stream is None:
            stream = active_machine().card(None).current
        machine = self._machine = stream._machine
        machine.spoil()
        machine.host_s += machine.host.event_call_s
        self.time_s = max(stream.ready_s, machine.host_s)

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream (the current one by default) wait for this event."""
        from paretune.harness.simulator.registration import active_machine

        (active_machine().card(None).current if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the event has passed at the host's present; an event never recorded has."""
        return self._machine is None or self.time_s <= self._machine.host_s

    def synchronize(self) -> None:
        """The host waits for the event."""
        if self._machine is not None:
            self._machine.wait(self.time_s)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`; both need `enable_timing=True` and a record."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("both events must be created with argument 'enable_timing=True'.")
        if self._machine is None or end._machine is None:
            raise RuntimeError("both events must be recorded before calculating elapsed time.")
        return (end.time_s - self.time_s) * 1e3
