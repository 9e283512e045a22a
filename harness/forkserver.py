"""A process that has imported torch and diffusers, has touched no device, and forks itself for every trial.

Importing takes seconds, forking milliseconds, and a fork is as fresh as a new interpreter as long as its parent never
initialised a device or started threads. Requests come as JSON lines on standard input, answers leave on standard output:
``{"id": 1, "pid": 42}`` when a child started and ``{"id": 1, "status": 0}`` when it ended. At end of input all children
are killed.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["main"]


def _import_everything() -> None:
    import torch  # noqa: F401

    from paretune.harness import perform  # noqa: F401
    from paretune.harness.devices import cpu  # noqa: F401
    from paretune.harness.simulator import simulation  # noqa: F401

    try:
        import diffusers
        import transformers  # noqa: F401

        diffusers.DiffusionPipeline  # noqa: B018 - a lazy module: naming it imports it
    except ImportError:
        return


def _settle() -> None:
    """What was imported lives as long as the process: no child needs to look through it for garbage."""
    gc.collect()
    gc.freeze()


class _Server:
    """Keeps the children and answers for them."""

    def __init__(self) -> None:
        self._children: dict[int, int] = {}
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever libraries print must not reach the answers
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Fork for every request until the input ends."""
        self._say({"ready": True})
        selector, buffer = selectors.DefaultSelector(), b""
        selector.register(0, selectors.EVENT_READ)
        selector.register(self._woken, selectors.EVENT_READ)
        while True:
            for ready, _ in selector.select():
                data = os.read(ready.fd, 65536)
                if ready.fd == self._woken:
                    self._reap()
                    continue
                if not data:
                    self._kill_all()
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))

    def _say(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")

    def _start(self, request: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            _child(Path(request["folder"]), Path(request["directory"]), request["environment"])
        self._children[pid] = request["id"]
        self._say({"id": request["id"], "pid": pid})

    def _reap(self) -> None:
        for pid, number in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._children[pid]
                self._say({"id": number, "status": os.waitstatus_to_exitcode(status)})

    def _kill_all(self) -> None:
        for pid in self._children:
            os.killpg(pid, signal.SIGKILL)


def _child(folder: Path, directory: Path, environment: Mapping[str, str]) -> None:
    """Become the trial of ``folder``: own process group, own log; working directory and environment of whoever asked."""
    status = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from paretune.harness.orphans import die_with_parent
        from paretune.harness.worker import work

        die_with_parent()
        work(folder)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Entry point of ``python -m paretune.harness.forkserver``; ends with its standard input."""
    _import_everything()
    _settle()
    _Server().serve()


if __name__ == "__main__":
    main()
