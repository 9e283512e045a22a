"""One half of a pair: load one trial, warm up, then make one timed call per request until the requests end.

Run as a file, by the interpreter and with the packages of its own side. Requests come as lines on standard input,
answers go as JSON lines to the file descriptor named in the environment; what libraries print does not disturb them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CHANNEL", "main", "serve"]

CHANNEL = "PARETUNE_PAIR_CHANNEL"
"""The same as the parent's; not imported from there, because each side runs this file with its own packages."""


_OWN = ("__main__", "__mp_main__")
"""This file and the one that forked it, which belong to the gate and to neither side."""


def serve(call: Callable[[], float]) -> None:
    """Say that the worker is ready, then answer every line on standard input with the seconds of one call.

    ``call`` returns seconds on the wall (or device) clock; seconds of processor time are taken around it.
    """
    with os.fdopen(int(os.environ[CHANNEL]), "w", buffering=1) as channel:
        channel.write(json.dumps({"ready": True}) + "\n")
        for _ in sys.stdin:
            began = time.process_time()
            wall_s = call()
            answer = {"wall": wall_s, "processor": time.process_time() - began}
            channel.write(json.dumps(answer) + "\n")


def main() -> None:
    """Serve the trial given as JSON on the command line."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    from paretune.harness.devices.names import device_named
    from paretune.harness.workloads.catalog import workload_named
    from paretune.strategies import Applied

    device = device_named(asked["device"])
    workload = workload_named(asked["workload"])
    with device.session(memory=False) as session:
        session.mark("load")
        loaded = workload.load()
        with Applied(asked["plan"], loaded, device.torch_device):

            def call() -> float:
                began = session.now_s()
                workload.run(loaded, device=device.torch_device)
                return session.now_s() - began

            for _ in range(asked["num_warmup"]):
                call()
            if "foreign" in asked:
                _refuse_code_of(Path(asked["foreign"]), own=Path(asked["own"]))
            serve(call)


def _refuse_code_of(folder: Path, *, own: Path) -> None:
    """End when a module came from ``folder``, the other side: two sides that run the same code would always agree."""
    for name, module in list(sys.modules.items()):
        file = Path(str(getattr(module, "__file__", None) or ""))
        if name in _OWN or not file.is_absolute():  # some modules made in memory claim a file such as "_ops.py"
            continue
        file = file.resolve()
        is_installed = "site-packages" in file.parts
        if file.is_relative_to(folder) and not file.is_relative_to(own) and not is_installed:
            sys.exit(
                f"the base imported {name} from {file}, which is the head's. Name the workload as module:function, and "
                "let the project be found by its folder alone: neither installed in place nor on PYTHONPATH."
            )


if __name__ == "__main__":
    main()
