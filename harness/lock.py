"""Hold a file for one writer at a time, across threads, processes and (where the file system can) machines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked"]

_threads: dict[str, threading.Lock] = {}
_guard = threading.Lock()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for, hold and release the lock of ``path``; the operating system releases it when the process dies."""
    with _guard:
        mine = _threads.setdefault(str(path.resolve()), threading.Lock())
    with mine, path.with_name(path.name + ".lock").open("a+b") as handle:
        _acquire(handle.fileno())
        try:
            yield
        finally:
            _release(handle.fileno())


try:
    import fcntl

    def _acquire(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

except ImportError:  # Windows
    import msvcrt

    def _acquire(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]

    def _release(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
