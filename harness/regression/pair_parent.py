"""Import the libraries once, then fork a process of a pair for every request: seconds of importing become milliseconds.

Run as a file, with the descriptor of a socket and the libraries to import; nothing of this package is imported, because
every side brings its own. A request is one JSON line with the descriptors for standard input, log and channel; it is
answered by the number of the process. At the end of the requests the processes still alive are killed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["CHANNEL", "main"]

CHANNEL = "PARETUNE_PAIR_CHANNEL"
"""Names the descriptor on which a process of a pair answers."""

_MAX_SHIFT_PAGES = 4096


def main() -> None:
    """Import, say so, and serve requests until the socket is closed."""
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        for library in sys.argv[2:]:
            _import(library)
        requests.sendall(b"{}\n")
        children: set[int] = set()
        while (request := _received(requests)) is not None:
            asked, descriptors = request
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
            if "kill" in asked:
                _kill(asked["kill"], children)
                answer = {}
            else:
                answer = {"pid": _forked(asked, descriptors, requests)}
                children.add(answer["pid"])
            requests.sendall(json.dumps(answer).encode() + b"\n")
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _import(library: str) -> None:
    """``diffusers.DiffusionPipeline`` names a class of a lazy module; asking for it is what imports it."""
    module, _, attribute = library.partition(".")
    with contextlib.suppress(ImportError):
        getattr(__import__(module), attribute or "__name__")


def _received(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    data, descriptors = b"", list[int]()
    while not data.endswith(b"\n"):
        more, passed, _, _ = socket.recv_fds(requests, 65536, 3)
        if not more:
            return None
        data, descriptors = data + more, [*descriptors, *passed]
    asked: dict[str, Any] = json.loads(data)
    return asked, descriptors


def _kill(pid: int, children: set[int]) -> None:
    """Only a child that was not reaped is signalled: its number cannot belong to another process."""
    if pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        children.discard(pid)


def _forked(asked: dict[str, Any], descriptors: list[int], requests: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        requests.close()
        _become(asked, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _become(asked: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run the command of a side as its interpreter would: here where the libraries allow it, else in a new one."""
    status = 1
    try:
        stdin, log, channel = descriptors
        for old, new in ((stdin, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.set_inheritable(channel, True)
        os.environ.update({**asked["environment"], CHANNEL: str(channel)})
        os.chdir(asked["folder"])
        command, paths = asked["command"], asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
        if command[:2] != [sys.executable, "-P"] or _shadows(paths):
            os.execvp(command[0], command)
        sys.argv, sys.path[:0] = command[2:], [path for path in paths if path]
        kept = _shifted_layout()
        runpy.run_path(command[2], run_name="__main__")
        status = 0 if kept else 1
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _shadows(paths: list[str]) -> bool:
    """Whether a side has a module of its own in place of one that is imported already."""
    loaded = [name for name in sys.modules if "." not in name and name != "__main__"]
    folders = [Path(path) for path in paths if path]
    return any((f / f"{n}.py").exists() or (f / n / "__init__.py").exists() for f in folders for n in loaded)


def _shifted_layout() -> tuple[mmap.mmap, bytearray]:
    """Blocks of random size, to be kept: forks of one parent would all place what they allocate alike, and what a
    placement costs would then look like a property of the code."""
    pages, rest = 1 + int.from_bytes(os.urandom(2)) % _MAX_SHIFT_PAGES, int.from_bytes(os.urandom(2))
    return mmap.mmap(-1, pages * mmap.PAGESIZE), bytearray(rest)


if __name__ == "__main__":
    main()
