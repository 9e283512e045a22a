"""One live process of a pair: start it, ask it for one call at a time, and end it whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from paretune.harness.regression.pair_worker import CHANNEL

__all__ = ["CLOCKS", "LiveProcess", "PairError", "Side"]

CLOCKS = ("wall", "processor")
"""What a call is timed by: the clock on the wall (or of the device), and processor time, which leaves out waiting."""

_LOG_TAIL_BYTES = 2000
_GRACE_S = 10.0


class PairError(RuntimeError):
    """A process of a pair died, did not answer in time, or answered no positive finite number of seconds."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """How the process of one side is started. environment: added to this process's own."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


class LiveProcess:
    """A process that makes one call per request; leave it as a context manager, which ends it."""

    def __init__(self, side: Side, timeout_s: float) -> None:
        self._name, self._timeout_s, self._pending = Path(side.command[0]).name, timeout_s, b""
        with contextlib.ExitStack() as opened:
            self._log = opened.enter_context(tempfile.TemporaryFile(mode="w+b"))
            reading, writing = os.pipe()
            self._channel = opened.enter_context(os.fdopen(reading, "rb", buffering=0))
            try:
                self._process = _started(side, self._log.fileno(), writing)
            finally:
                os.close(writing)
            self._opened = opened.pop_all()

    def __enter__(self) -> LiveProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._opened:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died first; that has been told already
                self._process.stdin.close()
            try:
                self._process.wait(timeout=_GRACE_S if kind is None else 0.1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def wait_until_ready(self) -> None:
        """Return once it has loaded and warmed up. Raises ``PairError``."""
        self._answer()

    def call(self) -> dict[str, float]:
        """Seconds of one call by clock: ``wall`` and ``processor``. Raises ``PairError``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"call\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PairError(self._said("died between two calls")) from error
        answer = self._answer()
        return {clock: self._checked(answer.get(clock)) for clock in CLOCKS}

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
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").strip()[-_LOG_TAIL_BYTES:]
        return f"a process of a pair ({self._name}) {what}. {tail}".rstrip()


def _started(side: Side, log: int, channel: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        side.command,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=(channel,),
        env={**os.environ, **side.environment, CHANNEL: str(channel)},
        cwd=side.folder,
    )
