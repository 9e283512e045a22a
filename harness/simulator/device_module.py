"""What `torch.get_device_module("sim")` returns: torch.cuda's names, answered by the active simulated machine."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch

from paretune.harness.simulator.registration import active_machine, active_machine_or_none
from paretune.harness.simulator.streams import Event, Stream

if TYPE_CHECKING:
    from paretune.harness.simulator.machine import SimulatedCard

__all__ = [
    "Event", "OutOfMemoryError", "Stream", "StreamContext", "current_device", "current_stream", "default_stream", "device",
    "device_count", "empty_cache", "get_amp_supported_dtype", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "get_rng_state_all", "host_memory_stats", "initial_seed", "init", "ipc_collect",
    "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "synchronize",
]  # fmt: skip

OutOfMemoryError = torch.OutOfMemoryError
_Properties = namedtuple(
    "_Properties",
    "name major minor total_memory multi_processor_count L2_cache_size is_integrated is_multi_gpu_board warp_size",
)
Where = torch.device | int | str | None


class device:  # noqa: N801 - torch.cuda's name
    """Make a card current for a while; `None` or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self._index = (
            device if isinstance(device, int) else (torch.device(device).index if device is not None else None)
        )
        self._outer: list[int] = []

    def __enter__(self) -> None:
        machine = active_machine()
        self._outer.append(machine.current_index)
        if self._index is not None and self._index >= 0:
            machine.current_index = machine.card(self._index).index

    def __exit__(self, *_: Any) -> None:
        active_machine().current_index = self._outer.pop()


class StreamContext:
    """Submit work to a stream inside the block; `None` changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> Stream | None:
        return None if self._stream is None else self._stream.__enter__()

    def __exit__(self, *args: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(*args)


def stream(stream: Stream | None) -> StreamContext:
    """Submit work to a stream inside a `with` block."""
    return StreamContext(stream)


def is_available() -> bool:
    """Whether a simulation is running."""
    return active_machine_or_none() is not None


def is_initialized() -> bool:
    """Same as `is_available`."""
    return is_available()


def init() -> None:
    """Nothing to initialise."""


def _is_in_bad_fork() -> bool:
    return False


def _lazy_call(callback: Any, **_: Any) -> None:
    callback()


def device_count() -> int:
    """Number of simulated cards; zero outside of a simulation."""
    machine = active_machine_or_none()
    return len(machine.cards) if machine else 0


def current_device() -> int:
    """Index of the current card; 0 outside of a simulation."""
    machine = active_machine_or_none()
    return machine.current_index if machine else 0


def set_device(device: Where) -> None:
    """Make a card the current one."""
    machine = active_machine()
    machine.current_index = machine.card(device).index


def current_stream(device: Where = None) -> Stream:
    """The stream that work is submitted to."""
    return active_machine().card(device).current


def default_stream(device: Where = None) -> Stream:
    """The stream a card starts with."""
    return active_machine().card(device).default


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of its card."""
    if stream is not None:
        card = active_machine().card(stream.device)
        card.machine.spoil()
        card.current = stream


def synchronize(device: Where = None) -> None:
    """The host waits for all work of a card."""
    active_machine().card(device).synchronize()


def get_device_capability(device: Where = None) -> tuple[int, int]:
    """NVIDIA's compute capability of the simulated card."""
    return active_machine().card(device).sheet.compute_capability


def get_device_name(device: Where = None) -> str:
    """The card's name, marked as simulated."""
    return f"{active_machine().card(device).sheet.label} (simulated)"


def get_device_properties(device: Where = None) -> Any:
    """Properties by torch.cuda's names."""
    card = active_machine().card(device)
    sheet = card.sheet
    major, minor = sheet.compute_capability
    name = get_device_name(device)
    return _Properties(name, major, minor, card.memory_bytes, sheet.multiprocessors, sheet.l2_bytes, 0, 0, 32)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the card computes bfloat16 natively, or at all with emulation."""
    return including_emulation or get_device_capability() >= (8, 0)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that autocast may use."""
    return [torch.float16, torch.bfloat16, torch.float32]


def _asked(device: Where = None) -> SimulatedCard:
    """A card whose bytes are read or reset: what follows may depend on them, so no tape repeats it."""
    card = active_machine().card(device)
    card.machine.spoil()
    return card


def mem_get_info(device: Where = None) -> tuple[int, int]:
    """Free and total bytes as the driver would say: reserved memory and the context are used."""
    card = _asked(device)
    return card.memory_bytes - card.used_bytes(), card.memory_bytes


def memory_allocated(device: Where = None) -> int:
    """Live bytes."""
    return _asked(device).ledger.now_bytes


def max_memory_allocated(device: Where = None) -> int:
    """Highest live bytes since the last reset."""
    return _asked(device).ledger.peak_bytes


def memory_reserved(device: Where = None) -> int:
    """Bytes of all segments."""
    return _asked(device).allocator.reserved_bytes


def max_memory_reserved(device: Where = None) -> int:
    """Highest bytes of all segments since the last reset."""
    return _asked(device).allocator.peak_reserved_bytes


def reset_peak_memory_stats(device: Where = None) -> None:
    """Start the peaks again from the present."""
    card = _asked(device)
    card.ledger.reset_peak()
    card.allocator.peak_reserved_bytes = card.allocator.reserved_bytes


def reset_accumulated_memory_stats(device: Where = None) -> None:
    """Start the counts again."""
    card = _asked(device)
    card.num_allocations = card.allocator.num_retries = 0


def memory_stats(device: Where = None) -> dict[str, Any]:
    """The keys of torch.cuda.memory_stats that the simulation knows."""
    card = _asked(device)
    return {
        "allocated_bytes.all.current": card.ledger.now_bytes,
        "allocated_bytes.all.peak": card.ledger.peak_bytes,
        "reserved_bytes.all.current": card.allocator.reserved_bytes,
        "reserved_bytes.all.peak": card.allocator.peak_reserved_bytes,
        "allocation.all.allocated": card.num_allocations,
        "num_alloc_retries": card.allocator.num_retries,
    }


def host_memory_stats() -> dict[str, Any]:
    """Pinned host memory: rounded live bytes, their peak, and what stays locked."""
    memory = _asked().machine.host_memory
    return {
        "allocated_bytes.current": memory.pinned.now_bytes,
        "allocated_bytes.peak": memory.pinned.peak_bytes,
        "reserved_bytes.current": memory.reserved_pinned_bytes,
    }


def empty_cache() -> None:
    """Give free segments back, after waiting for the cards as the real one does."""
    for card in active_machine().cards:
        card.empty_cache()


def ipc_collect() -> None:
    """Nothing is shared between processes."""


def manual_seed(seed: int) -> None:
    """Values of simulated tensors come from the CPU generator, which `torch.manual_seed` seeds."""


def manual_seed_all(seed: int) -> None:
    """See `manual_seed`."""


def seed() -> None:
    """See `manual_seed`."""


def seed_all() -> None:
    """See `manual_seed`."""


def initial_seed() -> int:
    """The CPU generator's seed."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Where = "sim") -> torch.Tensor:
    """The CPU generator's state."""
    return torch.default_generator.get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One state a card."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Where = "sim") -> None:
    """Set the CPU generator's state."""
    torch.default_generator.set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the states of all cards."""
    for state in new_states:
        set_rng_state(state)
