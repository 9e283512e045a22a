"""Streams and events that compute nothing and forget nothing: every access to device memory is checked for its order."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paretune.strategies.mechanics.link import Link

__all__ = ["Computing", "FakeDevice", "Race", "TracedLink"]


class Race(AssertionError):
    """Two accesses to the same memory, at least one a write, of which neither must come first."""


@dataclass(eq=False)
class FakeStream:
    """A stream as a vector clock: how far it knows every stream to be."""

    name: str
    clock: dict[str, int] = field(default_factory=dict)
    api: Any = None

    def wait_event(self, event: FakeEvent) -> None:
        for name, tick in event.clock.items():
            self.clock[name] = max(self.clock.get(name, 0), tick)

    def synchronize(self) -> None:
        """The host waits; what it submits afterwards comes later on any stream."""
        for stream in self.api.streams:
            stream.wait_event(FakeEvent(dict(self.clock)))


@dataclass(eq=False)
class FakeEvent:
    """A point on a stream."""

    clock: dict[str, int] = field(default_factory=dict)
    api: Any = None

    def record(self, stream: FakeStream) -> None:
        self.clock = dict(stream.clock)

    def synchronize(self) -> None:
        for stream in self.api.streams:
            stream.wait_event(self)


@dataclass(eq=False)
class Memory:
    """One device buffer: the pool it is from, and who touched it when."""

    pool: FakeStream
    accesses: list[tuple[str, int, bool]] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)


class FakeDevice:
    """What ``torch.get_device_module`` would return for a device with streams."""

    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        self.default = self.Stream()
        self._current = [self.default]
        self.live: dict[int, Memory] = {}
        self.dead: list[Memory] = []
        self.log: list[str] = []

    def Stream(self, device: Any = None) -> FakeStream:  # noqa: N802 - torch's name
        stream = FakeStream(name=f"stream{len(self.streams)}", api=self)
        self.streams.append(stream)
        return stream

    def Event(self) -> FakeEvent:  # noqa: N802 - torch's name
        return FakeEvent(api=self)

    def current_stream(self, device: Any = None) -> FakeStream:
        return self._current[-1]

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self._current.append(stream)
        yield
        self._current.pop()

    def allocated(self, buffer: torch.Tensor) -> None:
        """A buffer may lie where any dead buffer of the same pool lay: all of their uses must be over by then."""
        pool = self.current_stream()
        for memory in self.dead:
            if memory.pool is pool:
                for name, tick, _ in memory.accesses:
                    if name not in memory.recorded:
                        self._must_know(pool, name, tick, "memory is reused")
        key = buffer.untyped_storage()._cdata
        memory = self.live[key] = Memory(pool, [(pool.name, pool.clock.get(pool.name, 0), True)])
        weakref.finalize(buffer.untyped_storage(), self._died, key, memory)

    def access(self, tensor: torch.Tensor, *, writes: bool) -> None:
        """The current stream touches the buffer behind ``tensor``."""
        memory = self.live.get(tensor.untyped_storage()._cdata)
        if memory is None:
            return
        stream = self.current_stream()
        for name, tick, wrote in memory.accesses:
            if wrote or writes:
                self._must_know(stream, name, tick, "a write" if writes else "a read")
        stream.clock[stream.name] = stream.clock.get(stream.name, 0) + 1
        memory.accesses.append((stream.name, stream.clock[stream.name], writes))
        self.log.append(f"{'write' if writes else 'read'} on {stream.name}")

    def recorded(self, tensor: torch.Tensor, stream: FakeStream) -> None:
        """``record_stream``: the pool waits for this stream before it gives the memory out again."""
        self.live[tensor.untyped_storage()._cdata].recorded.add(stream.name)

    def _died(self, key: int, memory: Memory) -> None:
        if self.live.get(key) is memory:
            del self.live[key]
        self.dead.append(memory)

    def _must_know(self, stream: FakeStream, name: str, tick: int, what: str) -> None:
        if stream.clock.get(name, 0) < tick:
            raise Race(f"{what} on {stream.name} does not wait for {name}, tick {tick}")


class TracedLink(Link):
    """A link to the fake device, whose memory is the host's."""

    def __init__(self, api: FakeDevice, **options: Any) -> None:
        super().__init__(torch.device("cpu"), api=api, use_stream=True, **options)
        self.fake = api

    def _take(self, num_bytes: int, is_passing: bool) -> torch.Tensor:
        buffer = super()._take(num_bytes, is_passing)
        if buffer.untyped_storage()._cdata not in self.fake.live:
            self.fake.allocated(buffer)
        return buffer

    def _copy(self, buffer: torch.Tensor, sources: Any, small: Any) -> list[torch.Tensor]:
        pieces = super()._copy(buffer, sources, small)
        self.fake.access(buffer, writes=True)
        return pieces

    def _record(self, tensor: torch.Tensor, stream: Any) -> None:
        if tensor.untyped_storage()._cdata in self.fake.live:
            self.fake.recorded(tensor, stream)


class Computing(TorchDispatchMode):
    """Counts every operator as a read of the device buffers among its inputs, on the stream that is current."""

    def __init__(self, api: FakeDevice) -> None:
        super().__init__()
        self._api = api

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func.overloadpacket.__name__ not in ("copy_", "detach", "as_strided", "slice", "view"):
            for leaf in tree_leaves((args, kwargs or {})):
                if isinstance(leaf, torch.Tensor):
                    self._api.access(leaf, writes=False)
        return result
