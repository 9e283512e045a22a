"""A light process for one side of a pair: works for a while per call, or fails in the way it is told to."""

from __future__ import annotations

import os
import signal
import sys
import time

from paretune.harness.regression.pair_worker import CHANNEL, serve


def main(how: str, thousands: int) -> None:
    """``work`` counts to so many thousands per call; the others misbehave on the second call."""
    calls = 0
    sys.stdout.write("libraries print things\n")
    sys.stdout.flush()

    def call() -> float:
        nonlocal calls
        calls += 1
        began = time.perf_counter()
        if calls == 2:
            misbehave(how)
        for _ in range(thousands * 1000):
            pass
        return 0.0 if how == "zero" else time.perf_counter() - began

    if how == "refuse":
        sys.exit("cannot load")
    serve(call)


_SAID = {"garbage": b"not json\n", "half": b'{"wall": 0.1, "proc', "list": b"[1, 2]\n", "text": b'{"wall": "0.1"}\n'}


def misbehave(how: str) -> None:
    """Do what ``how`` names, or nothing."""
    if how == "die":
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os._exit(7)
    if how == "hang":
        time.sleep(60)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "noisy":
        sys.stderr.write("x" * 10_000_000)
    if how in _SAID:
        os.write(int(os.environ[CHANNEL]), _SAID[how])
        time.sleep(60 if how == "half" else 0)
    if how == "close":
        os.close(int(os.environ[CHANNEL]))
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
