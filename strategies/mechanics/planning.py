"""Decide which device each part of a model lives on, from sizes and budgets alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["DISK", "HOST", "Item", "PlacementError", "assign"]

HOST = "cpu"
DISK = "disk"


class PlacementError(ValueError):
    """The budgets do not hold the model; the text states how many bytes are missing."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that lives on one device. fixed: where it must be, because something else reads it there."""

    name: str
    num_bytes: int
    fixed: str | None = None


def assign(
    items: Sequence[Item], budgets: Mapping[str, int | None], *, balanced: bool, overflow: Sequence[str] = ()
) -> dict[str, str]:
    """A device for every item, in order; the first device with room takes it, and no room is ever skipped for good.

    budgets: bytes by device, ``None`` for no limit; a device that is not named gets nothing. balanced: devices are
    filled evenly, as far as whole items allow, before any is filled to its budget. overflow: where the rest goes, in
    order, such as ``("cpu", "disk")``; these too must have a budget. Fixed items are counted first.

    Raises ``PlacementError``.
    """
    accelerators = [device for device in budgets if device not in (HOST, DISK)]
    free = {device: float("inf") if limit is None else float(limit) for device, limit in budgets.items()}
    placed: dict[str, str] = {}
    for item in items:
        if item.fixed is not None:
            _take(item, item.fixed, free, placed)
    waiting = [item for item in items if item.fixed is None]
    if balanced and len(accelerators) > 1:
        _fill_evenly(waiting, accelerators, free, placed, _share(items, accelerators))
    for item in waiting:
        if item.name not in placed:
            device = next((d for d in (*accelerators, *overflow) if free.get(d, -1) >= item.num_bytes), None)
            if device is None:
                raise PlacementError(_missing(item, free))
            _take(item, device, free, placed)
    return {item.name: placed[item.name] for item in items}


def _share(items: Sequence[Item], accelerators: Sequence[str]) -> float:
    return sum(item.num_bytes for item in items) / len(accelerators)


def _fill_evenly(
    waiting: Sequence[Item], accelerators: Sequence[str], free: dict[str, float], placed: dict[str, str], share: float
) -> None:
    """Walk along the model and change to the next device when one has its share; what does not fit waits."""
    index, held = 0, 0.0
    for item in waiting:
        if index < len(accelerators) - 1 and held + item.num_bytes / 2 > share:
            index, held = index + 1, 0.0
        device = accelerators[index]
        if free[device] >= item.num_bytes:
            _take(item, device, free, placed)
            held += item.num_bytes


def _take(item: Item, device: str, free: dict[str, float], placed: dict[str, str]) -> None:
    if free.get(device, -1.0) < item.num_bytes:
        raise PlacementError(_missing(item, {device: max(free.get(device, 0.0), 0.0)}))
    free[device] -= item.num_bytes
    placed[item.name] = device


def _missing(item: Item, free: Mapping[str, float]) -> str:
    most = max(free.values(), default=0.0)
    left = ", ".join(f"{device}: {int(room)}" for device, room in free.items())
    return (
        f"{item.name or 'the model itself'} needs {item.num_bytes} bytes and no device has room for it: "
        f"{int(item.num_bytes - most)} bytes are missing (free {left or 'nowhere'}). "
        "Raise max_memory, or allow cpu or disk in it."
    )
