"""What the harness asks of a device: facts, a clock that waits for the work, and peaks per phase."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.harness.records import Kind, Phase

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "Session"]


class Session(ABC):
    """One stretch of measuring, opened before the model loads and closed after it was undone.

    A phase lasts from its ``mark`` to the next one. Entering a phase again (the next call) keeps the larger peaks and
    the newer duration. ``mark`` may wait for the device: phases are marked a handful of times a call, never per step.
    """

    @abstractmethod
    def mark(self, phase: str) -> None:
        """The previous phase ends and ``phase`` begins; peaks start anew from what is live now."""

    @abstractmethod
    def phases(self) -> Mapping[str, Phase]:
        """All phases so far, the running one included; after the session closed: all of them."""

    @abstractmethod
    def now_s(self) -> float:
        """Seconds on the device's clock after all work submitted so far is done (waits for it)."""

    def watch(self, loaded: Any) -> None:  # noqa: B027 - only devices that attribute memory to components need it
        """The workload is loaded: learn the names of its components."""

    def step(self) -> None:  # noqa: B027 - a device without cheap events has nothing to do here
        """A denoising step begins; must not wait for the device."""

    def start_call(self) -> None:  # noqa: B027 - optional
        """A whole call begins: counters of transfers and steps start anew."""

    def step_latency_s(self) -> tuple[float, ...]:
        """Durations of the denoising steps of the last call; empty when the device cannot tell."""
        return ()

    def transfers(self) -> Mapping[str, Any] | None:
        """Copies of the last call: h2d_bytes, d2h_bytes, num_copies, copy_s, stall_s, stall_share, overlap_share."""
        return None

    def counters(self) -> Mapping[str, Any]:
        """Deterministic counts of the last call, such as the number of operators by name."""
        return {}

    def uncertainty(self) -> Mapping[str, float] | None:
        """Relative uncertainty by metric (``latency_s``, ``peak_allocated_bytes``) of a predicting device."""
        return None


class Device(ABC):
    """A place to run on. ``spec`` is what the user wrote; two devices with one spec are interchangeable.

    kind: what figures taken here are. memory_pass: whether memory must be measured in a pass of its own because
    measuring it slows the run. is_deterministic: one timed call tells everything.
    """

    kind: ClassVar[Kind]
    memory_pass: ClassVar[bool] = False
    is_deterministic: ClassVar[bool] = False
    has_data: ClassVar[bool] = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    @property
    @abstractmethod
    def torch_device(self) -> torch.device:
        """The device tensors are put on."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """JSON values that identify the hardware: name, memory_bytes, driver, compute_capability, ..."""

    @abstractmethod
    def session(
        self, *, memory: bool = True, device_memory_bytes: int | None = None
    ) -> AbstractContextManager[Session]:
        """Open a measuring session; ``memory=False`` leaves out what would slow the run.

        ``device_memory_bytes`` is enforced: allocations beyond it raise ``torch.OutOfMemoryError`` (by the simulator
        itself; on a real card by a ballast allocation that leaves only so much).
        """

    def total_memory_bytes(self) -> int | None:
        """Memory of the card, ``None`` where memory is not a card's (the CPU)."""
        value = self.facts().get("memory_bytes")
        return int(value) if value is not None else None
