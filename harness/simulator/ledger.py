"""Live, peak and per-phase bytes of one memory, by component and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from paretune.harness.simulator.memory_timeline import MemoryTimeline, Stretch, by_kind

__all__ = ["Context", "Label", "Ledger", "Peak"]

Label = tuple[str, str]


REPEATED: Label = ("", "repeated")
"""Bytes of a repeated stretch beyond the last full picture."""


class Context(Protocol):
    """Who is allocating: an operator inside a module, kept as objects and named only when somebody asks."""

    operator: object
    module: object
    host_s: float

    def name_of(self, module: object) -> str:
        """The module's qualified name."""
        ...


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What was alive at the highest point, and who reached it."""

    total_bytes: int
    operator: str
    module: str
    by_label: dict[Label, int]


class Ledger:
    """Counts bytes; a label is (component, kind). The picture of the peak is taken just before the next release."""

    __slots__ = (
        "_context",
        "_fresh",
        "_high_bytes",
        "_high_kinds",
        "_is_peak",
        "_operator",
        "by_label",
        "now_bytes",
        "peak",
        "peak_bytes",
        "phase",
        "phase_peaks",
        "phase_pictures",
        "timeline",
        "window_kinds",
        "window_peak_bytes",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self.timeline = MemoryTimeline()
        self.window_kinds: Mapping[str, int] = {}
        self._high_bytes = 0
        self._high_kinds: Mapping[str, int] = {}
        self._is_peak = False
        self.now_bytes = 0
        self.peak_bytes = 0
        self.window_peak_bytes = 0
        self.by_label: dict[Label, int] = {}
        self.peak = Peak(total_bytes=0, operator="", module="", by_label={})
        self.phase = "load"
        self.phase_peaks: dict[str, int] = {}
        self.phase_pictures: dict[str, Peak] = {}
        self._fresh = False
        self._operator: tuple[object, object] = ("", "")

    def add(self, size_bytes: int, label: Label) -> None:
        """Count bytes that became live."""
        if self._context.host_s >= self.timeline.ends_s:
            self._end_stretch()
        self.by_label[label] = self.by_label.get(label, 0) + size_bytes
        now = self.now_bytes = self.now_bytes + size_bytes
        if now > self._high_bytes:
            self._high_bytes = now
            self._fresh = True
            if now > self.peak_bytes:
                self.peak_bytes = now
                self._is_peak = True
                context = self._context
                self._operator = (context.operator, context.module)
        if now > self.window_peak_bytes:
            self.window_peak_bytes = now

    def open_window(self) -> None:
        """Start `window_peak_bytes`, and the kinds alive at it, from the live bytes."""
        if self.timeline.is_running:
            self._end_stretch()
        self.window_peak_bytes = self.now_bytes
        self.window_kinds = {}

    def close_window(self) -> Mapping[str, int]:
        """Bytes of each kind at the window's highest point; empty where no timeline runs."""
        if self._fresh:
            self._settle()
        return self.window_kinds

    def touch(self, total_bytes: int, kinds: Mapping[str, int]) -> None:
        """Note that the bytes rose to `total_bytes` and fell again, in a stretch that was repeated without being run.

        kinds: the same bytes by kind, where they are known.
        """
        if self.timeline.is_running and kinds:
            self._end_stretch()
            self._high_bytes, self._high_kinds, self._fresh = total_bytes, kinds, False
        if total_bytes > self.peak_bytes:
            self._take_picture()
            more = total_bytes - sum(self.peak.by_label.values())
            alive = {**self.peak.by_label, REPEATED: self.peak.by_label.get(REPEATED, 0) + more}
            self.peak_bytes = total_bytes
            self.peak = replace(self.peak, total_bytes=total_bytes, by_label=alive)

    def remove(self, size_bytes: int, label: Label) -> None:
        """Count bytes that died."""
        if self._fresh:
            self._settle()
        self.by_label[label] -= size_bytes
        self.now_bytes -= size_bytes

    def relabel(self, size_bytes: int, before: Label, after: Label) -> None:
        """Move live bytes from one label to another: an activation became a weight, a component got its name."""
        self.by_label[before] -= size_bytes
        self.by_label[after] = self.by_label.get(after, 0) + size_bytes

    def begin_phase(self, phase: str) -> None:
        """Close the running phase's peak and start the next phase from what is live now."""
        self.close_phase()
        if self.timeline.is_running:
            self._end_stretch()
        self.phase = phase
        self.reset_peak()

    def end_timeline(self) -> None:
        """Close the running stretch; the timeline stays as it is until it is started again."""
        if self.timeline.is_running:
            self._end_stretch()
            self.timeline.stop()

    def close_phase(self) -> None:
        """Write the running phase's peak down; a phase entered twice keeps its higher one."""
        if self._fresh:
            self._settle()
        if self.peak_bytes >= self.phase_peaks.get(self.phase, 0):
            self.phase_peaks[self.phase] = self.peak_bytes
            self.phase_pictures[self.phase] = self.peak

    def reset_peak(self) -> None:
        """Start the peak again from the live bytes."""
        self.peak_bytes = self._high_bytes = self.now_bytes
        self._fresh = self._is_peak = True
        self._operator = ("", "")

    def picture(self) -> Peak:
        """The state at the highest point since the last reset."""
        if self._fresh:
            self._settle()
        return self.peak

    def _settle(self) -> None:
        """Before bytes die: note what is alive at the highest point so far."""
        if self._is_peak:
            self._take_picture()
        if self.timeline.is_running:
            self._high_kinds = by_kind(self.by_label)
            if self.now_bytes >= self.window_peak_bytes:
                self.window_kinds = self._high_kinds
        self._fresh = False

    def _end_stretch(self) -> None:
        if self._fresh:
            self._settle()
        now_s = self._context.host_s
        self.timeline.add(Stretch(now_s, self.phase, self._high_kinds), now_s)
        self._high_bytes = self.now_bytes
        self._fresh = True

    def _take_picture(self) -> None:
        operator, module = self._operator
        alive = {label: size for label, size in self.by_label.items() if size}
        name = self._context.name_of(module)
        self.peak = Peak(total_bytes=self.peak_bytes, operator=str(operator), module=name, by_label=alive)
        self._is_peak = False
