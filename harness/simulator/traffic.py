"""What moved and who waited: bytes copied, time of the copy engines, how much of it computing hid, and stalls."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

__all__ = ["Traffic"]


NOTABLE_BYTES = 256 << 20
"""Less than this is inputs and outputs, not weights."""


@dataclass(slots=True)
class Traffic:
    """Sums over one call; times in simulated seconds."""

    h2d_bytes: int = 0
    d2h_bytes: int = 0
    peer_bytes: int = 0
    pageable_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    num_copies: int = 0
    num_kernels: int = 0
    num_synchronisations: int = 0
    copy_s: float = 0.0
    kernel_s: float = 0.0
    stall_s: float = 0.0
    host_wait_s: float = 0.0
    overlap_s: float = 0.0

    def reset(self) -> None:
        """Start a new call."""
        for item in fields(self):
            setattr(self, item.name, type(getattr(self, item.name))())

    def copy(self) -> Traffic:
        """The sums so far."""
        return replace(self)

    def minus(self, earlier: Traffic) -> Traffic:
        """What was added since `earlier`."""
        return Traffic(**{item.name: getattr(self, item.name) - getattr(earlier, item.name) for item in fields(self)})

    def add(self, more: Traffic) -> None:
        """Add what a repeated stretch adds."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(more, item.name))

    def kind(self) -> str:
        """How weights reached the card in this call, which decides how well its time can be predicted."""
        if self.pageable_bytes > NOTABLE_BYTES:
            return "pageable"
        return "streamed" if self.h2d_bytes > NOTABLE_BYTES else "resident"

    def copied(self) -> tuple[int, ...]:
        """The counts that must agree before two stretches are the same."""
        return (
            self.h2d_bytes,
            self.d2h_bytes,
            self.peer_bytes,
            self.disk_read_bytes,
            self.num_copies,
            self.num_kernels,
        )

    def summary(self, elapsed_s: float) -> dict[str, Any]:
        """JSON values, with shares of the elapsed time and of the copy time."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        values["stall_share"] = self.stall_s / elapsed_s if elapsed_s else 0.0
        values["overlap_share"] = self.overlap_s / self.copy_s if self.copy_s else 0.0
        return values
