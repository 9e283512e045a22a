"""Tell from an exception which outcome a trial had, and how much memory was asked for when it ran out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paretune.harness.records import Outcome
from paretune.strategies.errors import InfeasiblePlan, PlanError, Unsupported

__all__ = ["classify", "is_device_oom", "is_host_oom", "oom_sizes"]

_DEVICE_OOM = re.compile(
    r"\b(cuda|hip|xpu|mps|sim|device)\b.{0,40}out of memory|out of memory.{0,40}\b(cuda|gpu|device)\b", re.I
)
_HOST_OOM = re.compile(r"can't allocate memory|cannot allocate memory|DefaultCPUAllocator: not enough memory", re.I)
_SIZE = re.compile(r"([0-9.]+)\s*(KiB|MiB|GiB|TiB|bytes)", re.I)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def is_device_oom(error: BaseException) -> bool:
    """Whether the device's memory ran out, by class or, for libraries that raise their own, by message."""
    if isinstance(error, MemoryError):  # the host's, whatever its text says of devices
        return False
    return type(error).__name__ == "OutOfMemoryError" or bool(_DEVICE_OOM.search(str(error)))


def is_host_oom(error: BaseException) -> bool:
    """Whether the host's memory ran out."""
    return isinstance(error, MemoryError) or bool(_HOST_OOM.search(str(error)))


def classify(error: BaseException) -> tuple[Outcome, str]:
    """The outcome and the sentence that explains it; the cause counts where an exception was raised from another."""
    for one in _chain(error):
        if isinstance(one, InfeasiblePlan | PlanError):
            return Outcome.INFEASIBLE, str(one)
        if isinstance(one, Unsupported):
            return Outcome.UNSUPPORTED, str(one)
        if is_device_oom(one):
            return Outcome.OOM, str(one)
        if is_host_oom(one):
            return Outcome.OOM_HOST, str(one)
    return Outcome.CRASHED, f"{type(error).__name__}: {error}"


def oom_sizes(error: BaseException) -> Mapping[str, Any]:
    """Bytes requested, limit and allocated when memory ran out: the exception's ``facts``, else read off its text."""
    found: dict[str, Any] = {}
    for one in _chain(error):
        told = getattr(one, "facts", None) or {}
        for name in ("requested_bytes", "limit_bytes", "allocated_bytes", "reserved_bytes"):
            if told.get(name) is not None:
                found.setdefault(name, int(told[name]))
        text = str(one)
        for name, words in (("requested_bytes", "tried to allocate"), ("limit_bytes", "total capacity of")):
            size = _size_after(text, words)
            if size is not None:
                found.setdefault(name, size)
    return found


def _size_after(text: str, words: str) -> int | None:
    at = text.lower().find(words)
    match = _SIZE.search(text, at) if at >= 0 else None
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else None
