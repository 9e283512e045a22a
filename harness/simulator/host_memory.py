"""Host memory of the simulated machine: pageable bytes, and pinned blocks that are rounded up to powers of two and cached."""

from __future__ import annotations

from paretune.harness.simulator.ledger import Context, Label, Ledger

__all__ = ["HostMemory", "OutOfHostMemory"]


CACHED: Label = ("", "cached pinned")


class OutOfHostMemory(MemoryError):
    """The simulated host has no room for the request."""


class HostMemory:
    """Counts pageable and pinned bytes of one host; pinned rounding follows PyTorch's CachingHostAllocator."""

    def __init__(self, context: Context, *, limit_bytes: int, max_round_threshold_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.max_round_threshold_bytes = max_round_threshold_bytes
        self.total = Ledger(context)
        self.pinned = Ledger(context)
        self.reserved_pinned_bytes = 0
        self._cached: dict[int, int] = {}

    def allocate(self, size_bytes: int, label: Label) -> None:
        """Count pageable bytes; raises `OutOfHostMemory` past the limit."""
        self._check(size_bytes)
        self.total.add(size_bytes, label)

    def free(self, size_bytes: int, label: Label) -> None:
        """Count pageable bytes that died."""
        self.total.remove(size_bytes, label)

    def allocate_pinned(self, size_bytes: int, label: Label) -> tuple[int, bool]:
        """Count one pinned block; returns its rounded size and whether it had to be newly locked."""
        rounded = self.pinned_block_bytes(size_bytes)
        self.pinned.add(rounded, label)
        if self._cached.get(rounded, 0):
            self._cached[rounded] -= 1
            self.total.relabel(rounded, CACHED, label)
            return rounded, False
        self._check(rounded)
        self.reserved_pinned_bytes += rounded
        self.total.add(rounded, label)
        return rounded, True

    def free_pinned(self, rounded_bytes: int, label: Label) -> None:
        """Keep the locked block for the next request of its size: the host allocator never returns it by itself."""
        self.pinned.remove(rounded_bytes, label)
        self.total.relabel(rounded_bytes, label, CACHED)
        self._cached[rounded_bytes] = self._cached.get(rounded_bytes, 0) + 1

    def pinned_block_bytes(self, size_bytes: int) -> int:
        """A pinned request rounded as the host allocator rounds it: to a power of two below the threshold."""
        threshold = self.max_round_threshold_bytes
        if threshold is not None and size_bytes > threshold:
            return -(-size_bytes // 4096) * 4096
        return 1 << max(size_bytes - 1, 511).bit_length()

    def begin_phase(self, phase: str) -> None:
        """Start a phase in both ledgers."""
        self.total.begin_phase(phase)
        self.pinned.begin_phase(phase)

    def _check(self, size_bytes: int) -> None:
        if self.total.now_bytes + size_bytes > self.limit_bytes:
            raise OutOfHostMemory(
                f"simulated host out of memory. Tried to allocate {size_bytes / 2**30:.2f} GiB; "
                f"{self.total.now_bytes / 2**30:.2f} of {self.limit_bytes / 2**30:.2f} GiB are in use. "
                "Offload less to the host, or give the host more memory."
            )
