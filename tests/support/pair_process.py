"""A light process for one side of a pair: works for a while per call, or fails in the way it is told to."""

from __future__ import annotations

import os
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


def misbehave(how: str) -> None:
    """Do what ``how`` names, or nothing."""
    if how == "die":
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os._exit(7)
    if how == "hang":
        time.sleep(60)
    if how == "garbage":
        os.write(int(os.environ[CHANNEL]), b"not json\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
