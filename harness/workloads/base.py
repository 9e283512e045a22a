"""What the harness asks of a workload: load it, name its phases, run it once from a seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["Observer", "Workload", "WorkloadError"]


class WorkloadError(UsageError):
    """A workload that cannot be found, read or loaded; names the key path and what to do."""


class Observer(Protocol):
    """Who wants to know where a call stands. Calls must be cheap and never wait for the device in ``step``."""

    def phase(self, name: str) -> None:
        """The call enters a phase: encode, denoise, decode (pipelines), forward (plain modules)."""
        ...

    def step(self) -> None:
        """A denoising step begins."""
        ...


class Workload(ABC):
    """A pipeline or module with the inputs of one call.

    ``spec`` is the resolved description (name, source, pipeline class, dtype, height, width, num_frames, steps,
    batch_size, seed, ...), JSON values only; with the plan and the device it identifies a trial.
    """

    spec: Mapping[str, Any]

    @property
    @abstractmethod
    def phases(self) -> tuple[str, ...]:
        """Names of the phases a call passes through, in order."""

    @abstractmethod
    def load(self) -> Any:
        """Load onto the host and return the pipeline or module; same seed, same weights. Raises ``WorkloadError``."""

    @abstractmethod
    def run(self, loaded: Any, *, device: torch.device, observer: Observer | None = None) -> Any:
        """Call it once from the seed and return the output (tensors, or a tuple or mapping of them).

        ``device`` is where the computation happens; weights are where a plan put them. Hooks that serve ``observer``
        are gone when this returns or raises. The same plan gives bit-equal output on every call.
        """

    def with_steps(self, num_steps: int) -> Workload | None:
        """The same call with fewer denoising steps, of what ``load`` returned last; ``None`` where it has no such call."""
        return None
