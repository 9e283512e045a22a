"""Call a storage again while its server is away, so that a restarted database costs seconds and no trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["patiently"]

T = TypeVar("T")

_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0)


def patiently(call: Callable[..., T], *arguments: Any, sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of ``call(*arguments)``, repeated for about 40 s while the storage cannot be reached.

    Raises what the last call raised; anything that is not about the connection at once.
    """
    for pause in _PAUSES_S:
        try:
            return call(*arguments)
        except Exception as error:
            if not _is_absence(error):
                raise
            sleep(pause)
    return call(*arguments)


def _is_absence(error: BaseException | None) -> bool:
    while error is not None:
        name = type(error).__name__
        if name in ("OperationalError", "InterfaceError", "AdminShutdown", "ConnectionError", "InvalidatePoolError"):
            return True
        if getattr(error, "connection_invalidated", False):
            return True
        code = getattr(error, "code", None)
        if name == "_InactiveRpcError" and callable(code) and code().name == "UNAVAILABLE":
            return True
        error = error.__cause__ or error.__context__
    return False
