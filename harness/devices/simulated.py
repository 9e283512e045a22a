"""Run on a simulated card: `sim:rtx-4090`, `sim:rtx-4090,memory=80GiB`, `sim:rtx-4090x2`. Figures are predictions."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.harness.devices.base import Device, Session
from paretune.harness.devices.names import DeviceError
from paretune.harness.devices.phases import PhaseBook
from paretune.harness.records import Kind, Peaks, Phase
from paretune.harness.simulator.explain import NOT_A_CALL, explain
from paretune.harness.simulator.sheets import load_gpu, load_host
from paretune.strategies.sizes import SizeError, parse_size

if TYPE_CHECKING:
    import torch

    from paretune.harness.simulator.simulation import Simulation

__all__ = ["SimulatedDevice", "SimulatedSpec", "parse_spec"]

_OPTIONS = {"memory": "size", "host_memory": "size", "host": "name", "expandable_segments": "flag"}


@dataclass(frozen=True, kw_only=True)
class SimulatedSpec:
    """What a device name asks for."""

    gpu: str
    num_devices: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


def parse_spec(spec: str) -> SimulatedSpec:
    """Read `sim:NAME[xCOUNT][,key=value...]`; keys: memory, host_memory, host, expandable_segments.

    Raises `DeviceError` that names the part it cannot read.
    """
    family, _, rest = spec.partition(":")
    name, *pairs = rest.split(",")
    if family != "sim" or not name:
        raise DeviceError(
            f"device {spec!r}: write sim:NAME, for instance sim:rtx-4090, sim:rtx-4090x2 or sim:t4,memory=24GiB."
        )
    counted = re.fullmatch(r"(.+)x([0-9]+)", name)
    options = dict(_option(pair, spec) for pair in pairs)
    if counted is None:
        return SimulatedSpec(gpu=name, options=options)
    if int(counted[2]) < 1:
        raise DeviceError(f"device {spec!r}: {counted[2]} cards cannot compute. Write a count of at least 1.")
    return SimulatedSpec(gpu=counted[1], num_devices=int(counted[2]), options=options)


def _option(pair: str, spec: str) -> tuple[str, Any]:
    key, equals, text = pair.partition("=")
    if not equals or key not in _OPTIONS:
        raise DeviceError(f"device {spec!r}: {pair!r} is no option. Known: {', '.join(f'{k}=...' for k in _OPTIONS)}.")
    if _OPTIONS[key] == "size":
        try:
            return key, parse_size(text, name=f"device {spec!r}: {key}")
        except SizeError as error:
            raise DeviceError(str(error)) from None
    if _OPTIONS[key] == "flag":
        if text not in ("true", "false"):
            raise DeviceError(f"device {spec!r}: {key} is true or false, not {text!r}.")
        return key, text == "true"
    return key, text


class SimulatedDevice(Device):
    """A card from `configs/gpus/` that exists only as figures."""

    kind: ClassVar[Kind] = Kind.SIMULATED
    is_deterministic: ClassVar[bool] = True
    has_data: ClassVar[bool] = False

    def __init__(self, spec: str) -> None:
        super().__init__(spec)
        self._asked = parse_spec(spec)
        try:
            self._sheet = load_gpu(self._asked.gpu)
            self._host = load_host(self._asked.options.get("host", "host-default"))
        except ValueError as error:
            raise DeviceError(f"device {spec!r}: {error}") from None

    @property
    def torch_device(self) -> torch.device:
        import torch

        from paretune.harness.simulator.registration import register

        register()
        return torch.device("sim", 0)

    def facts(self) -> Mapping[str, Any]:
        major, minor = self._sheet.compute_capability
        return {
            "name": f"{self._sheet.label} (simulated)",
            "simulated": True,
            "memory_bytes": self._asked.options.get("memory", self._sheet.memory_bytes),
            "num_devices": self._asked.num_devices,
            "compute_capability": f"{major}.{minor}",
            "host": self._host.name,
            "host_memory_bytes": self._asked.options.get("host_memory", self._host.memory_bytes),
        }

    @contextmanager
    def session(self, *, memory: bool = True, device_memory_bytes: int | None = None) -> Iterator[Session]:
        """Everything inside runs on the simulated machine; the smaller of the card and `device_memory_bytes` is its limit."""
        from paretune.harness.simulator.simulation import Simulation

        card_bytes = int(self.facts()["memory_bytes"])
        limit = card_bytes if device_memory_bytes is None else min(card_bytes, device_memory_bytes)
        options = {
            "host_memory_bytes": self._asked.options.get("host_memory"),
            "expandable_segments": self._asked.options.get("expandable_segments", False),
        }
        simulation = Simulation(
            self._sheet, memory_bytes=limit, num_devices=self._asked.num_devices, host=self._host, options=options
        )
        session = _SimulatedSession(simulation)
        with simulation:
            yield session
        session.close()


class _SimulatedSession(Session):
    """Peaks from the ledgers and seconds from the simulated clock."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._machine = simulation.machine
        self._book = PhaseBook()
        self._current: tuple[str, float] | None = None
        self._step_times: list[float] = []
        self._call_began_s = 0.0
        self._operators_before: Counter[object] = Counter()

    def watch(self, loaded: Any) -> None:
        """Learn the names of the loaded components, so that peaks have addresses."""
        from paretune.strategies.parts import Parts

        for name, module in Parts.of(loaded).modules.items():
            self._simulation.label(name, module)

    def now_s(self) -> float:
        for card in self._machine.cards:
            card.synchronize()
        return self._machine.host_s

    def mark(self, phase: str) -> None:
        self.close()
        if phase in NOT_A_CALL:
            self._machine.end_call()
        self._machine.begin_phase(phase)
        self._current = (phase, self.now_s())

    def close(self) -> None:
        """End the running phase."""
        if self._current is None:
            return
        name, began = self._current
        if name == "denoise" and self._step_times:
            self.step()
        self._book.add(name, self._peaks(), self.now_s() - began)
        self._current = None

    def _peaks(self) -> Peaks:
        machine = self._machine
        top = max(machine.cards, key=lambda card: card.ledger.peak_bytes)
        reserved = max(card.allocator.peak_reserved_bytes for card in machine.cards)
        return Peaks(
            peak_allocated_bytes=top.ledger.peak_bytes,
            peak_reserved_bytes=reserved,
            peak_used_bytes=reserved + machine.sheet.context_bytes,
            peak_host_bytes=machine.host_memory.total.peak_bytes,
            pinned_bytes=machine.host_memory.pinned.peak_bytes,
        )

    def start_call(self) -> None:
        self._step_times = []
        self._call_began_s = self.now_s()
        self._operators_before = self._machine.operators.copy()
        self._machine.start_call()

    def step(self) -> None:
        self._step_times.append(max(card.default.ready_s for card in self._machine.cards))

    def step_latency_s(self) -> tuple[float, ...]:
        times = self._step_times
        return tuple(later - earlier for earlier, later in itertools.pairwise(times))

    def transfers(self) -> Mapping[str, Any]:
        return self._machine.traffic.summary(self.now_s() - self._call_began_s)

    def uncertainty(self) -> Mapping[str, float]:
        from paretune.harness.validation.uncertainty import relative_uncertainty

        return relative_uncertainty(self._machine.traffic.kind())

    def counters(self) -> Mapping[str, Any]:
        called = self._machine.operators - self._operators_before
        return {
            "num_operators": sum(called.values()),
            "operators": {
                str(operator): count for operator, count in sorted(called.items(), key=lambda item: str(item[0]))
            },
            "num_allocations": sum(card.num_allocations for card in self._machine.cards),
            "explain": explain(self._machine),
            "memory_timeline": self._timeline(),
            "num_replayed_calls": self._simulation.replay.num_replayed,
            "num_alloc_retries": sum(card.allocator.num_retries for card in self._machine.cards),
        }

    def _timeline(self) -> list[list[Any]]:
        """Live bytes over the last call, of the card that holds most."""
        timelines = [card.ledger.timeline.rows(self._call_began_s) for card in self._machine.cards]
        return max(timelines, key=lambda rows: max((row[1] for row in rows), default=0))

    def phases(self) -> Mapping[str, Phase]:
        return self._book.all()
