"""Components of one pipeline share the device: what one leaves there makes room when another starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from paretune.strategies.mechanics.residency import Residency

__all__ = ["Turns"]


class Turns:
    """Knows which component of a pipeline computes.

    When another one starts, and when the pipeline's outermost public call returns or raises, the others give up what
    they only keep in case. takes_turns: they give up everything, so that one component at a time is on the device.
    """

    def __init__(self, members: Sequence[Residency], *, takes_turns: bool) -> None:
        self._members = tuple(members)
        self._takes_turns = takes_turns
        self._lock = threading.RLock()
        self._depth = 0
        self._thread: int | None = None
        self._current: Residency | None = None

    def join(self) -> None:
        """Make every member ask before it starts, under one lock."""
        for member in self._members:
            member.lock, member.turns = self._lock, self

    def leave(self) -> None:
        """Inverse of ``join``."""
        for member in self._members:
            member.turns = None

    def is_running(self, thread: int) -> bool:
        """Whether ``thread`` is inside a public call of the pipeline."""
        return self._thread == thread

    def begin(self, member: Residency) -> None:
        """``member`` is about to compute."""
        if member is not self._current:
            for other in self._members:
                if other is not member:
                    other.yield_device(evict=self._takes_turns)
            self._current = member

    @contextmanager
    def entry(self) -> Iterator[None]:
        """A public call of the pipeline."""
        with self._lock:
            self._depth += 1
            self._thread = threading.get_ident()
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._thread = None
                    self.finish()

    def finish(self) -> None:
        """The pipeline's call is over: the device is left as before it."""
        for member in self._members:
            member.yield_device(evict=self._takes_turns)
        self._current = None
