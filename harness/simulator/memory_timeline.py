"""Live bytes over simulated time: a bounded number of stretches, each with what was alive at its highest point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MOST_STRETCHES", "MemoryTimeline", "Stretch", "by_kind"]

MOST_STRETCHES = 100
"""When there are more, neighbours are joined and later stretches last twice as long: maxima stay, detail goes."""
FIRST_STRETCH_S = 1e-4


@dataclass(frozen=True, slots=True)
class Stretch:
    """The highest point of one stretch of time: when, in which phase, and the bytes of each kind."""

    second: float
    phase: str
    bytes_by_kind: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """All live bytes at that point."""
        return sum(self.bytes_by_kind.values())


class MemoryTimeline:
    """Stretches of one memory since it was last started; `ends_s` is when the running one ends, never while stopped."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.ends_s = math.inf
        self._lasts_s = FIRST_STRETCH_S

    def start(self, now_s: float) -> None:
        """Forget everything and begin."""
        self.stretches, self._lasts_s = [], FIRST_STRETCH_S
        self.ends_s = now_s + self._lasts_s

    def stop(self) -> None:
        """Add nothing more."""
        self.ends_s = math.inf

    def rows(self, began_s: float) -> list[list[Any]]:
        """JSON values: [seconds since `began_s`, live bytes, phase, bytes by kind] of every stretch after it."""
        after = [stretch for stretch in self.stretches if stretch.second > began_s]
        return [[one.second - began_s, one.total_bytes, one.phase, dict(one.bytes_by_kind)] for one in after]

    @property
    def is_running(self) -> bool:
        """Whether stretches are being added."""
        return self.ends_s != math.inf

    def add(self, stretch: Stretch, now_s: float) -> None:
        """The running stretch ended with this highest point; the next one begins. Of one instant the higher one stays."""
        last = self.stretches[-1] if self.stretches else None
        if last is not None and (last.second, last.phase) == (stretch.second, stretch.phase):
            self.stretches[-1] = _higher(last, stretch)
        else:
            self.stretches.append(stretch)
        if len(self.stretches) > MOST_STRETCHES:
            self._join()
        self.ends_s = now_s + self._lasts_s

    def _join(self) -> None:
        joined: list[Stretch] = []
        open_to_join = False
        for stretch in self.stretches:
            if open_to_join and joined[-1].phase == stretch.phase:
                joined[-1] = _higher(joined[-1], stretch)
                open_to_join = False
            else:
                joined.append(stretch)
                open_to_join = True
        self.stretches = joined
        self._lasts_s *= 2


def _higher(one: Stretch, other: Stretch) -> Stretch:
    return other if other.total_bytes > one.total_bytes else one


def by_kind(by_label: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Bytes of each kind from bytes of each (component, kind)."""
    found: dict[str, int] = {}
    for (_, kind), size in by_label.items():
        if size:
            found[kind] = found.get(kind, 0) + size
    return found
