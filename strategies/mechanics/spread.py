"""Choose which blocks stay on the device: the first ones, or spread evenly, by number or by bytes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["by_bytes", "by_count"]


def by_count(num_blocks: int, num_resident: int, *, even: bool) -> list[int]:
    """Indices of ``num_resident`` of ``num_blocks``; evenly spread ones begin with the first block."""
    if not even:
        return list(range(num_resident))
    return [i for i in range(num_blocks) if i * num_resident // num_blocks != (i - 1) * num_resident // num_blocks]


def by_bytes(sizes_bytes: Sequence[int], budget_bytes: int, *, even: bool) -> list[int]:
    """Indices of blocks whose sizes sum to at most the budget.

    Evenly spread: the share of bytes that stay keeps close to the budget's share all along the model, and what the
    budget then has left goes to the blocks that fit, the largest first.
    """
    chosen = _evenly(sizes_bytes, budget_bytes) if even else _first(sizes_bytes, budget_bytes)
    left = budget_bytes - sum(sizes_bytes[index] for index in chosen)
    for index in sorted(range(len(sizes_bytes)), key=lambda i: (-sizes_bytes[i], i)):
        if index not in chosen and sizes_bytes[index] <= left:
            chosen.append(index)
            left -= sizes_bytes[index]
    return sorted(chosen)


def _first(sizes_bytes: Sequence[int], budget_bytes: int) -> list[int]:
    chosen = []
    for index, size in enumerate(sizes_bytes):
        if size > budget_bytes:
            break
        chosen.append(index)
        budget_bytes -= size
    return chosen


def _evenly(sizes_bytes: Sequence[int], budget_bytes: int) -> list[int]:
    total = sum(sizes_bytes)
    if total <= budget_bytes:
        return list(range(len(sizes_bytes)))
    chosen, passed, held = [], 0, 0
    for index, size in enumerate(sizes_bytes):
        passed += size
        if held < budget_bytes * passed / total and held + size <= budget_bytes:
            chosen.append(index)
            held += size
    return chosen
