"""Who is called between two calls of the same component: nobody, or the same others every time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

__all__ = ["Turns"]

_LONGEST = 32
"""Calls that are remembered: more than two rounds of any pipeline's components."""


class Turns:
    """Remembers the order in which components were called."""

    def __init__(self) -> None:
        self._called: deque[Hashable] = deque(maxlen=_LONGEST)

    def take(self, who: Hashable) -> int | None:
        """Note a call. How many others were called since its last one, if they are those of the time before; 0 for none.

        `None` for a first call, and where other ones were called than the time before.
        """
        since, before = self._since(who, 1), self._since(who, 2)
        self._called.append(who)
        return None if since is None or (since and since != before) else len(since)

    def _since(self, who: Hashable, number: int) -> list[Hashable] | None:
        """The calls of others before the `number`-th last call of this one up to the next; `None` if it was not called."""
        called, end = list(self._called), len(self._called)
        for _ in range(number - 1):
            end = _last(called, who, end)
        start = _last(called, who, end) if end >= 0 else -1
        return called[start + 1 : end] if start >= 0 else None


def _last(called: list[Hashable], who: Hashable, end: int) -> int:
    """The position of its last call before `end`, -1 if there is none."""
    return next((position for position in range(end - 1, -1, -1) if called[position] == who), -1)
