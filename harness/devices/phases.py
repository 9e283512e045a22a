"""Collect peaks per phase when phases are entered again and again: the larger peak and the newest duration stay."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping

from paretune.harness.records import Peaks, Phase

__all__ = ["PhaseBook", "StepTimes"]


class PhaseBook:
    """Peaks and durations by phase, in the order the phases were first entered."""

    def __init__(self) -> None:
        self._phases: dict[str, Phase] = {}

    def add(self, name: str, peaks: Peaks, duration_s: float | None) -> None:
        """One stay in phase ``name`` ended."""
        known = [self._phases[name]] if name in self._phases else []
        top = Peaks.over([*known, peaks])
        self._phases[name] = Phase(**dataclasses.asdict(top), duration_s=duration_s)

    def all(self) -> Mapping[str, Phase]:
        """Everything so far."""
        return dict(self._phases)


class StepTimes:
    """When the denoising steps of one call began, on the host's clock."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._running = False

    def clear(self) -> None:
        """A new call begins."""
        self._times, self._running = [], False

    def begin(self) -> None:
        """A step begins and the one before ends."""
        self._times.append(time.perf_counter())
        self._running = True

    def end(self) -> None:
        """The phase of the steps ended; ends the last step once."""
        if self._running:
            self._times.append(time.perf_counter())
        self._running = False

    def durations_s(self) -> tuple[float, ...]:
        """One duration a step; the last is missing while it runs."""
        return tuple(later - earlier for earlier, later in itertools.pairwise(self._times))
