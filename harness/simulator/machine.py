"""The state of one simulated machine: its cards, its host, and who is allocating or computing right now."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.allocator import Allocation, CachingAllocator, OutOfDeviceMemory
from paretune.harness.simulator.host_memory import HostMemory
from paretune.harness.simulator.ledger import Label, Ledger
from paretune.harness.simulator.sheets import GpuSheet, HostSheet
from paretune.harness.simulator.streams import Stream
from paretune.harness.simulator.tensor import own
from paretune.harness.simulator.timeline import LAUNCH_QUEUE
from paretune.harness.simulator.traffic import Traffic
from paretune.harness.simulator.workspaces import cublas_bytes

if TYPE_CHECKING:
    from paretune.harness.simulator.tape import Recorder

__all__ = ["Machine", "SimulatedCard"]

WORKSPACE = "workspace"


class SimulatedCard:
    """One card: its allocator and ledger, its streams, and when its engines are free."""

    def __init__(self, machine: Machine, index: int, *, memory_bytes: int, expandable_segments: bool) -> None:
        self.machine = machine
        self.index = index
        self.sheet = machine.sheet
        self.memory_bytes = memory_bytes
        limit = memory_bytes - self.sheet.context_bytes
        self.allocator = CachingAllocator(limit_bytes=limit, expandable_segments=expandable_segments)
        self.ledger = Ledger(machine)
        self.compute_free_s = self.h2d_free_s = self.d2h_free_s = 0.0
        self.arrivals: deque[tuple[float, float]] = deque()
        self.launched: deque[float] = deque(maxlen=LAUNCH_QUEUE)
        self._streams: list[Stream] = []
        self._deferred: list[tuple[float, Allocation]] = []
        self.current = self.default = Stream(_card=self)
        self.num_allocations = 0
        self.handles: set[int] = set()

    def adopt(self, stream: Stream) -> int:
        """Register a stream; its number."""
        self._streams.append(stream)
        return len(self._streams) - 1

    @property
    def streams(self) -> list[Stream]:
        """All streams of the card, the default one first."""
        return self._streams

    @property
    def deferred(self) -> list[Allocation]:
        """Blocks that were freed and wait for other streams."""
        return [block for _, block in self._deferred]

    def allocate(self, size_bytes: int, label: Label) -> Allocation:
        """Take device memory on the current stream; raises `torch.OutOfMemoryError`."""
        if self._deferred:
            self._settle_deferred()
        self.num_allocations += 1
        try:
            block = self.allocator.allocate(size_bytes, self.current.stream_id)
        except OutOfDeviceMemory:
            block = self._retry(size_bytes)
        self.ledger.add(block.size_bytes, label)
        return block

    def free(self, block: Allocation, label: Label, uses: set[int] | None) -> None:
        """Give memory back; blocks that other streams used return when those streams have passed this point."""
        self.ledger.remove(block.size_bytes, label)
        if uses:
            done_s = max(self._streams[use].ready_s for use in uses)
            if done_s > self.machine.host_s:
                self._deferred.append((done_s, block))
                return
        self.allocator.free(block)

    def workspace(self, size_bytes: int, component: str) -> None:
        """Take and return the temporary memory of one kernel."""
        label = (component, WORKSPACE)
        if self.machine.recorder is not None:
            self.machine.recorder.uses_workspace(self.index, size_bytes, component)
        self.free(self.allocate(size_bytes, label), label, None)

    def need_cublas(self) -> None:
        """The first product on a stream takes the cuBLAS workspace of that stream, for good."""
        stream = self.current.stream_id
        if stream not in self.handles:
            self.machine.spoil()
            self.handles.add(stream)
            self.allocate(cublas_bytes(self.sheet.compute_capability), ("", WORKSPACE))

    def synchronize(self) -> None:
        """The host waits for all streams of the card."""
        self.machine.wait(max(stream.ready_s for stream in self._streams))

    def shift_launched(self, seconds: float) -> None:
        """Move the ends of the kernels in the launch queue, after a stretch of time that was not played out."""
        self.launched = deque((end + seconds for end in self.launched), maxlen=LAUNCH_QUEUE)

    def empty_cache(self) -> None:
        """Wait for the card and return its free segments to the driver."""
        self.synchronize()
        self._settle_deferred()
        self.allocator.release_cached()

    def used_bytes(self) -> int:
        """What the driver sees: reserved memory and the context."""
        return self.allocator.reserved_bytes + self.sheet.context_bytes

    def _settle_deferred(self) -> None:
        now = self.machine.host_s
        waiting = []
        for done_s, block in self._deferred:
            if done_s <= now:
                self.allocator.free(block)
            else:
                waiting.append((done_s, block))
        self._deferred = waiting

    def _retry(self, size_bytes: int) -> Allocation:
        """Wait for blocks that other streams still use, as the real allocator does before it gives up."""
        if self._deferred:
            self.machine.wait(max(done_s for done_s, _ in self._deferred))
            self._settle_deferred()
        try:
            return self.allocator.allocate(size_bytes, self.current.stream_id)
        except OutOfDeviceMemory:
            raise self._out_of_memory(size_bytes) from None

    def _out_of_memory(self, size_bytes: int) -> torch.OutOfMemoryError:
        free = max(self.memory_bytes - self.used_bytes(), 0)
        machine = self.machine
        error = torch.OutOfMemoryError(
            f"SIM out of memory. Tried to allocate {_gib(size_bytes)}. GPU {self.index} ({self.sheet.label}, simulated) has a "
            f"total capacity of {_gib(self.memory_bytes)} of which {_gib(free)} is free. {_gib(self.ledger.now_bytes)} is "
            f"allocated by PyTorch, {_gib(self.allocator.reserved_bytes - self.ledger.now_bytes)} is reserved but "
            f"unallocated, {_gib(self.sheet.context_bytes)} is the context. Operator {machine.operator} "
            f"in module {machine.name_of(machine.module) or 'none'}."
        )
        facts = {
            "requested_bytes": size_bytes,
            "free_bytes": free,
            "limit_bytes": self.memory_bytes,
            "allocated_bytes": self.ledger.now_bytes,
            "reserved_bytes": self.allocator.reserved_bytes,
        }
        error.facts = facts  # type: ignore[attr-defined]
        return error


class Machine:
    """Cards, host memory and the host's clock of one simulation."""

    def __init__(
        self, sheet: GpuSheet, host: HostSheet, *, memory_bytes: int, num_devices: int, options: dict[str, Any]
    ):
        self.sheet = sheet
        self.host = host
        self.operator: object = ""
        self.module: object = None
        self.component = ""
        self.host_s = 0.0
        self.call_began_s = 0.0
        self.traffic = Traffic()
        self.num_operators = 0
        self.operators: Counter[object] = Counter()
        self.plans: dict[Any, Any] = {}
        self.on_next: Callable[[], None] | None = None
        """Called once, before the next operator runs or phase begins."""
        self.recorder: Recorder | None = None
        self.view_s = host.eager_operator_s / 3
        self._names: dict[int, tuple[str, str]] = {}
        self.host_memory = HostMemory(
            self,
            limit_bytes=options.get("host_memory_bytes") or host.memory_bytes,
            max_round_threshold_bytes=options.get("pinned_max_round_threshold_bytes"),
        )
        expandable = bool(options.get("expandable_segments", False))
        self.cards = [
            SimulatedCard(self, index, memory_bytes=memory_bytes, expandable_segments=expandable)
            for index in range(num_devices)
        ]
        self.current_index = 0

    def card(self, device: torch.device | int | str | None) -> SimulatedCard:
        """The card that a device names, the current one for no index; raises `RuntimeError` for one that is not there."""
        if device is None:
            return self.cards[self.current_index]
        index = device if isinstance(device, int) else torch.device(device).index
        if index is None:
            index = self.current_index
        if not 0 <= index < len(self.cards):
            raise RuntimeError(
                f"SIM error: invalid device ordinal {index}; this machine has {len(self.cards)} simulated card(s)"
            )
        return self.cards[index]

    def wait(self, time_s: float) -> None:
        """The host waits until a point in simulated time."""
        self.spoil()
        if time_s > self.host_s:
            self.traffic.host_wait_s += time_s - self.host_s
            self.host_s = time_s

    def spoil(self) -> None:
        """Something happens that no tape can repeat."""
        if self.recorder is not None:
            self.recorder.spoil()

    def label_modules(self, component: str, module: torch.nn.Module) -> None:
        """Name a component's modules, so that peaks and errors can say where they happened."""
        for name, child in module.named_modules():
            self._names[id(child)] = (component, f"{component}.{name}" if name else component)
        for kind, tensors in (("weight", module.parameters()), ("buffer", module.buffers())):
            for tensor in tensors:
                own(tensor, component, kind)

    def component_of(self, module: object) -> str | None:
        """The component that a module belongs to, if it was labelled."""
        entry = self._names.get(id(module))
        return entry[0] if entry else None

    def name_of(self, module: object) -> str:
        """The qualified name of a module, its class when it was not labelled, empty for none."""
        if module is None or module == "":
            return ""
        entry = self._names.get(id(module))
        return entry[1] if entry else type(module).__name__

    def ledgers(self) -> list[Ledger]:
        """All ledgers: the cards', host memory, pinned memory."""
        return [*(card.ledger for card in self.cards), self.host_memory.total, self.host_memory.pinned]

    def start_call(self) -> None:
        """Counts of traffic and waits start anew."""
        self.call_began_s = self.host_s
        for card in self.cards:
            card.ledger.timeline.start(self.host_s)
        self.traffic.reset()

    def end_call(self) -> None:
        """What follows belongs to no call: timelines of memory end."""
        for card in self.cards:
            card.ledger.end_timeline()

    def begin_phase(self, phase: str) -> None:
        """Start a phase in every ledger."""
        if self.on_next is not None:
            self.on_next()
        for card in self.cards:
            card.ledger.begin_phase(phase)
            card.allocator.peak_reserved_bytes = card.allocator.reserved_bytes
        self.host_memory.begin_phase(phase)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
