"""Choose which blocks stay on the device: the first ones, or the largest spread evenly, by number or by bytes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["by_bytes", "by_count"]

_LEAD = 2
"""Evenly spread blocks begin with this many in a row: the first copy of a call hides in their computation alone."""


def by_count(sizes_bytes: Sequence[int], num_resident: int, *, even: bool) -> list[int]:
    """Indices of ``num_resident`` blocks, in order.

    Evenly: large blocks come before small ones, because their copies are the hardest to hide and the buffers must hold
    the largest that is streamed; among blocks of one size those that stay are spread evenly.
    """
    if not even:
        return list(range(num_resident))
    chosen: list[int] = []
    for alike in _by_size(sizes_bytes):
        wanted = min(num_resident - len(chosen), len(alike))
        chosen += [alike[place] for place in _evenly(len(alike), wanted)]
    return sorted(chosen)


def by_bytes(sizes_bytes: Sequence[int], budget_bytes: int, *, even: bool) -> list[int]:
    """Indices of blocks whose sizes sum to at most the budget, chosen as by ``by_count``.

    What the budget has left in the end goes to the blocks that fit, the largest first.
    """
    chosen: list[int] = []
    left = budget_bytes
    for alike in _by_size(sizes_bytes) if even else _runs(sizes_bytes):
        largest = max((sizes_bytes[index] for index in alike), default=0)
        wanted = min(left // largest, len(alike)) if largest else len(alike)
        places = _evenly(len(alike), wanted) if even else range(wanted)
        chosen += [alike[place] for place in places]
        left = budget_bytes - sum(sizes_bytes[index] for index in chosen)
    for index in sorted(range(len(sizes_bytes)), key=lambda i: (-sizes_bytes[i], i)):
        if index not in chosen and sizes_bytes[index] <= left:
            chosen.append(index)
            left -= sizes_bytes[index]
    return sorted(chosen)


def _runs(sizes_bytes: Sequence[int]) -> list[list[int]]:
    return [[index] for index in range(len(sizes_bytes))]


def _by_size(sizes_bytes: Sequence[int]) -> list[list[int]]:
    """Blocks of about one size (within a tenth) together, the largest first."""
    groups: list[list[int]] = []
    for index in sorted(range(len(sizes_bytes)), key=lambda i: (-sizes_bytes[i], i)):
        if groups and sizes_bytes[index] * 10 >= sizes_bytes[groups[-1][0]] * 9:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [sorted(group) for group in groups]


def _evenly(count: int, wanted: int) -> list[int]:
    lead = min(_LEAD, wanted)
    places, rest = count - lead, wanted - lead
    spread = [place for place in range(places) if (place + 1) * rest // places != place * rest // places]
    return [*range(lead), *(lead + place for place in spread)]
