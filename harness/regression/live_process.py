"""One live process of a pair: start it, ask it for one call at a time, and end it whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import select
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from paretune.harness.regression.preloaded import PairError, PairParent, Side, log_tail

__all__ = ["CLOCKS", "LiveProcess"]

CLOCKS = ("wall", "processor")
"""What a call is timed by: the clock on the wall (or of the device), and processor time, which leaves out waiting."""

_GRACE_S = 10.0


class LiveProcess:
    """A process that makes one call per request; leave it as a context manager, which ends it."""

    def __init__(self, side: Side, parent: PairParent, timeout_s: float) -> None:
        self._name, self._parent, self._timeout_s, self._pending = Path(side.command[0]).name, parent, timeout_s, b""
        with contextlib.ExitStack() as opened, contextlib.ExitStack() as theirs:
            self._log = opened.enter_context(tempfile.TemporaryFile(mode="w+b"))
            asked, asking = os.pipe()
            theirs.callback(os.close, asked)
            self._requests = opened.enter_context(os.fdopen(asking, "wb", buffering=0))
            reading, writing = os.pipe()
            theirs.callback(os.close, writing)
            self._channel = opened.enter_context(os.fdopen(reading, "rb", buffering=0))
            self._number = parent.fork(side, stdin=asked, log=self._log.fileno(), channel=writing)
            self._opened = opened.pop_all()

    def __enter__(self) -> LiveProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._opened:
            self._requests.close()
            if not self._has_ended(_GRACE_S if kind is None else 0.1):
                self._parent.kill(self._number)

    def wait_until_ready(self) -> None:
        """Return once it has loaded and warmed up. Raises ``PairError``."""
        self._answer()

    def call(self) -> dict[str, float]:
        """Seconds of one call by clock: ``wall`` and ``processor``. Raises ``PairError``."""
        try:
            self._requests.write(b"call\n")
        except BrokenPipeError as error:
            raise PairError(self._said("died between two calls")) from error
        answer = self._answer()
        return {clock: self._checked(answer.get(clock)) for clock in CLOCKS}

    def _has_ended(self, timeout_s: float) -> bool:
        """A process that ends closes its channel; what it still says until then is not read."""
        until = time.monotonic() + timeout_s
        while select.select([self._channel], [], [], max(0.0, until - time.monotonic()))[0]:
            if not self._channel.read(65536):
                return True
        return False

    def _checked(self, seconds: Any) -> float:
        if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise PairError(self._said(f"measured {seconds!r}, which is no duration"))
        return float(seconds)

    def _answer(self) -> dict[str, Any]:
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._channel], [], [], self._timeout_s)
            if not ready:
                raise PairError(self._said(f"did not answer within {self._timeout_s:g} s"))
            more = self._channel.read(65536)
            if not more:
                raise PairError(self._said("died"))
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise PairError(self._said(f"answered {line[:80]!r}")) from error
        return answer if isinstance(answer, dict) else {}

    def _said(self, what: str) -> str:
        return f"a process of a pair ({self._name}) {what}. {log_tail(self._log)}".rstrip()
