"""The parent of the processes of all pairs of one measurement, seen from the process that measures."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from paretune.harness.regression import pair_parent

__all__ = ["LIBRARIES", "OF_PIPELINES", "PairError", "PairParent", "Side", "log_tail"]

LIBRARIES = ("pydantic", "yaml", "numpy", "torch")
"""What the parent imports, those that are installed; both sides of a pair use them from the same interpreter."""

OF_PIPELINES = ("transformers", "diffusers.DiffusionPipeline")
"""What it imports besides where plans of pipelines are timed."""

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


class PairParent:
    """A process that forks those of pairs; leave it as a context manager, which ends it and all of them."""

    def __init__(self, *, timeout_s: float = 600.0, libraries: Sequence[str] = LIBRARIES) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(timeout_s)
        with ExitStack() as opened, theirs:
            self._requests = opened.enter_context(ours)
            self._log = opened.enter_context(tempfile.TemporaryFile(mode="w+b"))
            number = theirs.fileno()
            self._process = subprocess.Popen(
                (sys.executable, "-P", pair_parent.__file__, str(number), *libraries),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=(number,),
            )
            self._opened = opened.pop_all()
        self._is_ready = False

    def __enter__(self) -> PairParent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._opened:
            self._requests.close()
            try:
                self._process.wait(timeout=_GRACE_S if self._is_ready else 0.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def fork(self, side: Side, *, stdin: int, log: int, channel: int) -> int:
        """Number of a new process of that side, which owns the three descriptors. Raises ``PairError``."""
        asked = {
            "command": side.command,
            "environment": dict(side.environment),
            "folder": os.fspath(side.folder or Path.cwd()),
        }
        number: int = self._asked(asked, [stdin, log, channel])["pid"]
        return number

    def kill(self, number: int) -> None:
        """End that process at once; nothing happens when it has ended. Raises ``PairError``."""
        self._asked({"kill": number}, [])

    def _asked(self, asked: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            if not self._is_ready:
                self._answer()
                self._is_ready = True
            socket.send_fds(self._requests, [json.dumps(asked).encode() + b"\n"], descriptors)
            return self._answer()
        except OSError as error:
            raise PairError(f"the parent of the pairs is gone: {error}. {log_tail(self._log)}".rstrip()) from error

    def _answer(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\n"):
            more = self._requests.recv(65536)
            if not more:
                raise ConnectionError("it ended")
            data += more
        answer: dict[str, Any] = json.loads(data)
        return answer


def log_tail(log: Any) -> str:
    """The last of what was printed into the open file ``log``."""
    log.seek(0)
    text: str = log.read().decode(errors="replace")
    return text.strip()[-_LOG_TAIL_BYTES:]
