"""Record what the simulated allocator does, in the form that PyTorch's memory visualiser (pytorch.org/memory_viz) reads.

The form is that of `torch.cuda.memory._snapshot()`: segments with their blocks as they are at the end, and for each card a
trace of what led there. A frame names the operator, and in place of a file the module it ran in. Calls that were repeated
without being run leave no entries: they do what the call before them did.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from paretune.harness.simulator.allocator import Allocation, Segment
    from paretune.harness.simulator.ledger import Label
    from paretune.harness.simulator.machine import Machine, SimulatedCard

__all__ = ["Recorder", "recording", "watch", "write_snapshot"]

Frames = list[dict[str, Any]]

_recorders: list[Recorder] = []


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record every simulated machine that is made inside; the recorder has the snapshot of the last one."""
    recorder = Recorder()
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


def watch(machine: Machine) -> None:
    """A machine was made: whoever records wants to know what its allocators do."""
    for recorder in _recorders:
        recorder.attach(machine)


def write_snapshot(snapshot: dict[str, Any], path: Path) -> None:
    """Write a snapshot as the visualiser reads it. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(snapshot))


class Recorder:
    """Follows the allocators of one machine."""

    def __init__(self) -> None:
        self._cards: list[_CardTrace] = []
        self._frozen: dict[str, Any] | None = None

    def attach(self, machine: Machine) -> None:
        """Follow this machine from now on, in place of any other."""
        self._frozen = None
        self._cards = [_CardTrace(card) for card in machine.cards]
        end_call = machine.end_call

        def freeze() -> None:
            if any(card.ledger.timeline.is_running for card in machine.cards):
                self._frozen = self._now()
            end_call()

        machine.end_call = freeze  # type: ignore[method-assign]

    def snapshot(self) -> dict[str, Any]:
        """As of the end of the last call, or as of now where none has ended."""
        return self._now() if self._frozen is None else self._frozen

    def _now(self) -> dict[str, Any]:
        return {
            "segments": [segment for trace in self._cards for segment in trace.segments()],
            "device_traces": [list(trace.entries) for trace in self._cards],
            "external_annotations": [],
            "allocator_settings": {
                "expandable_segments": any(t.card.allocator.expandable_segments for t in self._cards)
            },
        }


class _CardTrace:
    """Stands in front of a card's methods that take and return memory; without a recorder they cost nothing more."""

    def __init__(self, card: SimulatedCard) -> None:
        self.card = card
        self.entries: list[dict[str, Any]] = []
        self._frames: dict[tuple[Any, Any, Label], Frames] = {}
        self._live: dict[int, Frames] = {}
        self._take, self._give, self._complete = card.allocate, card.free, card.allocator.free
        card.allocate = self._allocate  # type: ignore[method-assign]
        card.free = self._free  # type: ignore[method-assign]
        card.allocator.free = self._free_completed  # type: ignore[method-assign]
        card.allocator.on_segment = self._segment

    def segments(self) -> list[dict[str, Any]]:
        """Every segment with its blocks, in the order of addresses."""
        allocator = self.card.allocator
        return [self._described(segment) for _, segment in sorted(allocator.segments.items())]

    def _allocate(self, size_bytes: int, label: Label) -> Allocation:
        frames = self._frames_of(label)
        try:
            block = self._take(size_bytes, label)
        except torch.OutOfMemoryError:
            self._note("oom", 0, size_bytes, self.card.current.stream_id, frames)
            self.entries[-1]["device_free"] = max(self.card.memory_bytes - self.card.used_bytes(), 0)
            raise
        self._live[block.address] = frames
        self._note("alloc", block.address, block.size_bytes, block.stream, frames)
        return block

    def _free(self, block: Allocation, label: Label, uses: set[int] | None) -> None:
        self._note("free_requested", block.address, block.size_bytes, block.stream, self._frames_of(label))
        self._give(block, label, uses)

    def _free_completed(self, block: Allocation) -> None:
        self._note("free_completed", block.address, block.size_bytes, block.stream, self._live.pop(block.address, []))
        self._complete(block)

    def _segment(self, action: str, address: int, size_bytes: int, stream: int) -> None:
        self._note(action, address, size_bytes, stream, [])

    def _note(self, action: str, address: int, size_bytes: int, stream: int, frames: Frames) -> None:
        entry = {"action": action, "addr": address, "size": size_bytes, "stream": stream, "frames": frames}
        self.entries.append({**entry, "time_us": int(self.card.machine.host_s * 1e6), "compile_context": "N/A"})

    def _frames_of(self, label: Label) -> Frames:
        """One list for each operator, module and label, so that a snapshot of many entries stays small."""
        machine = self.card.machine
        key = (machine.operator, machine.module, label)
        found = self._frames.get(key)
        if found is None:
            component, kind = label
            where = machine.name_of(machine.module) or component or "none"
            held = {"name": kind, "filename": component or "none", "line": 0}
            found = self._frames[key] = [{"name": str(machine.operator), "filename": where, "line": 0}, held]
        return found

    def _described(self, segment: Segment) -> dict[str, Any]:
        blocks = [self._block(block) for block in self.card.allocator.blocks(segment)]
        live = [block for block in blocks if block["state"] != "inactive"]
        return {
            "device": self.card.index,
            "address": segment.address,
            "total_size": segment.size_bytes,
            "allocated_size": sum(block["size"] for block in live if block["state"] == "active_allocated"),
            "active_size": sum(block["size"] for block in live),
            "requested_size": sum(block["requested_size"] for block in live),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": segment.is_expandable,
            "frames": [],
            "blocks": blocks,
        }

    def _block(self, block: Allocation) -> dict[str, Any]:
        waits = any(waiting is block for waiting in self.card.deferred)
        state = "active_pending_free" if waits else "active_allocated" if block.in_use else "inactive"
        return {
            "address": block.address,
            "size": block.size_bytes,
            "requested_size": block.requested_bytes if block.in_use else 0,
            "state": state,
            "frames": self._live.get(block.address, []) if block.in_use else [],
        }
