"""Start a trial's child process, freshly spawned or forked from the warm server, wait without polling, end it whole."""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

__all__ = ["Child", "fork", "spawn"]

_GRACE_S = 5.0
_READ_AT_IMPORT = (
    *("CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "HIP_", "HSA_", "ROCR_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("PYTORCH_", "TORCH", "TRITON_", "HF_", "TRANSFORMERS_", "DIFFUSERS_", "XDG_", "PYTHON", "LD_", "MALLOC_"),
)
"""How variables begin that libraries read once, at import; a server that has imported them is not as fresh as a new one."""


class Child(Protocol):
    """A running trial."""

    def wait(self, timeout_s: float) -> int | None:
        """Sleep until it ends and return its exit status (negative: the signal), or ``None`` after ``timeout_s``."""
        ...

    def kill(self) -> None:
        """End it and everything it started; returns when it is gone."""
        ...


def _own_code_only() -> list[str]:
    """An interpreter that does not import from the working directory, whatever files lie there."""
    return [sys.executable, "-P"]


class _Spawned:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        with (folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*_own_code_only(), "-m", "paretune.harness.worker", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        _kill_group(self._process.pid)
        self._process.wait()


class _Forked:
    def __init__(self, pid: int, answers: queue.Queue[int | None]) -> None:
        self._pid, self._answers = pid, answers

    def wait(self, timeout_s: float) -> int | None:
        try:
            status = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if status is None:
            raise RuntimeError("the process that starts trials died; start again, nothing recorded is lost.")
        return status

    def kill(self) -> None:
        _kill_group(self._pid)
        self.wait(_GRACE_S)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class _ForkServer:
    """The warm server and the thread that hands its answers to whoever waits for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.Queue[int | None]] = {}
        self._last = 0
        self.environment = _read_at_import()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._process = subprocess.Popen(
            [*_own_code_only(), "-m", "paretune.harness.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self, folder: Path) -> _Forked:
        answers: queue.Queue[int | None] = queue.Queue()
        with self._lock:
            self._last += 1
            self._waiting[self._last] = answers
            assert self._process.stdin is not None
            request = {
                "id": self._last,
                "folder": str(folder),
                "directory": str(Path.cwd()),
                "environment": dict(os.environ),
            }
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        pid = answers.get()
        if pid is None:
            raise RuntimeError(f"the process that starts trials died before it could start one:\n{self.last_words()}")
        return _Forked(pid, answers)

    def last_words(self) -> str:
        """The end of what the server printed, libraries' import messages included."""
        self._said.seek(0)
        return self._said.read()[-2000:].decode(errors="replace")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "pid" in answer:
                self._waiting[answer["id"]].put(answer["pid"])
            elif "status" in answer:
                self._waiting.pop(answer["id"]).put(answer["status"])
        for answers in list(self._waiting.values()):
            answers.put(None)

    def close(self) -> None:
        """End the server and with it every trial it started."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        deadline = time.monotonic() + _GRACE_S
        while self.is_alive and time.monotonic() < deadline:
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        if self.is_alive:
            _kill_group(self._process.pid)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()


def _read_at_import() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_IMPORT)}


_server: _ForkServer | None = None
_server_lock = threading.Lock()


def fork(folder: Path) -> Child:
    """Start the trial of ``folder`` from the warm server, with this process's environment as it is now.

    The server is started when it is first needed, and anew when a variable has changed that libraries read when they are
    imported; trials of the earlier server end as they would have.
    """
    global _server
    with _server_lock:
        if _server is None or not _server.is_alive or _server.environment != _read_at_import():
            _server = _ForkServer()
        server = _server
    return server.start(folder)


def spawn(folder: Path, environment: Mapping[str, str]) -> Child:
    """Start the trial of ``folder`` in a new interpreter with extra environment variables."""
    return _Spawned(folder, environment)
