"""Tell other processes on a card from our own, whichever namespace the driver counts process numbers in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

__all__ = ["PROC", "most_seen", "num_others", "own_pids"]

PROC = Path("/proc")
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The kernel's fixed inode of the machine's first pid namespace; containers have others."""
_NOT_SHOWN = 0
"""What a driver reports in place of a process that it may not name here."""


def own_pids(proc: Path = PROC) -> frozenset[int]:
    """Numbers of this process and of all that it started, in every namespace that the kernel shows them in."""
    return frozenset({os.getpid(), *_numbers("self", proc), *_of_children(proc)})


def _of_children(proc: Path) -> Iterator[int]:
    """Nothing where this ``/proc`` belongs to another namespace: there, our number is another process's."""
    try:
        if str((proc / "self").readlink()) != str(os.getpid()):
            return
        children = psutil.Process().children(recursive=True)
    except (OSError, psutil.Error):
        return
    for child in children:
        yield child.pid
        yield from _numbers(str(child.pid), proc)


def _numbers(process: str, proc: Path) -> list[int]:
    """The process's numbers from the outermost namespace that this ``/proc`` knows to its own."""
    try:
        lines = (proc / process / "status").read_text().splitlines()
    except OSError:
        return []
    return [int(number) for line in lines if line.startswith("NSpid:") for number in line.split()[1:]]


def num_others(listed: Sequence[int] | None, own: frozenset[int], proc: Path = PROC) -> int | None:
    """How many listed processes are not ours; ``None`` where that cannot be known.

    listed: process numbers as the driver of the card told them, ``None`` if it told none. Call it while this process
    holds memory on the card: a list that lacks us is then either not complete or counted in another namespace.

    On the machine itself numbers mean what they say. In a container the driver may count as the machine does, so that a
    number equal to ours may be a stranger's, or it may name the container's processes only. There, a list is believed
    as far as all its numbers are processes of this container and ours is among them; nobody beside us in such a list
    does not mean nobody on the card.
    """
    if listed is None:
        return None
    others = [pid for pid in listed if pid not in own]
    is_complete = len(others) < len(listed)
    if _is_first_namespace(proc):
        return len(others) if is_complete or any(others) else None
    is_translated = is_complete and all(pid == _NOT_SHOWN or (proc / str(pid)).exists() for pid in others)
    return (len(others) or None) if is_translated else None


def _is_first_namespace(proc: Path) -> bool:
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def most_seen(counts: Iterable[int | None]) -> int | None:
    """The largest of several looks; nobody only where every look could tell."""
    looked = list(counts)
    seen = max((count for count in looked if count is not None), default=0)
    return seen if seen or None not in looked else None
