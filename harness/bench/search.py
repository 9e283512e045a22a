"""How many trials each sampler needs to find the fastest plan that fits, on made-up landscapes over shipped spaces."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Sequence

from paretune.harness.bench._landscape import Ground, ground, landscape
from paretune.harness.bench._race import Finish, race

__all__ = ["SAMPLERS_RACED", "bench", "races"]

_DECODE_GIB = {"flux.1-schnell": 3.0, "sd3-medium": 3.0, "sdxl": 4.5, "wan-2.1-14b": 8.0, "qwen-image": 5.0}
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
SAMPLERS_RACED = ("residual", "tpe", "nsga2", "coordinate", "random")
_MAX_TRIALS = 60


def bench() -> str:
    """Five workloads x six caps x seeds (``PARETUNE_BENCH_SEEDS``, 2 by default) per sampler, as a Markdown table.

    Optuna's GP sampler is left out: it takes minutes per race.
    """
    seeds = range(int(os.environ.get("PARETUNE_BENCH_SEEDS", "2")))
    grounds = [ground(name, decode_gib=size) for name, size in _DECODE_GIB.items()]
    lines = [
        f"Trials until within 5 % / 1 % of the best plan that fits; {len(grounds)} workloads x {len(_SHARES)} caps x "
        f"{len(seeds)} seeds of a made-up truth; {_MAX_TRIALS} trials at most. Not figures of any real card.",
        "",
        "| sampler | 5 %: median | within 15 trials | 1 %: median | within 30 trials | did not fit |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(name, list(races(name, grounds, seeds))) for name in SAMPLERS_RACED]
    return "\n".join(lines)


def races(name: str, grounds: Iterable[Ground], seeds: Sequence[int]) -> Iterable[Finish]:
    """Every race of one sampler: each ground, seed and cap."""
    for place in grounds:
        for seed in seeds:
            truth = landscape(place, seed)
            for cap in truth.caps(_SHARES):
                yield race(name, place, truth, cap, seed=seed, max_trials=_MAX_TRIALS)


def _row(name: str, finishes: Sequence[Finish]) -> str:
    five, one = [f.within_5 for f in finishes], [f.within_1 for f in finishes]
    wasted = statistics.mean(f.num_wasted for f in finishes)
    return f"| {name} | {_middle(five)} | {_share(five, 15)} | {_middle(one)} | {_share(one, 30)} | {wasted:.1f} |"


def _middle(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"> {_MAX_TRIALS}" if middle == math.inf else f"{middle:g}"


def _share(values: Sequence[float], limit: int) -> str:
    return f"{sum(value <= limit for value in values) / len(values):.0%}"
