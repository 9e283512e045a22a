"""How many trials each sampler needs to find the fastest plan that fits, on simulated tables and made-up landscapes."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence

from paretune.harness.bench._landscape import Ground, ground, tabled
from paretune.harness.bench._race import Finish, race
from paretune.harness.bench._tables import SPACES

__all__ = ["SAMPLERS_RACED", "bench", "races"]

_DECODE_GIB = {"flux.1-schnell": 3.0, "sd3-medium": 3.0, "sdxl": 4.5, "wan-2.1-14b": 8.0, "qwen-image": 5.0}
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
SAMPLERS_RACED = ("residual", "coordinate", "random", "nsga2", "tpe", "gp")
_SHARE_OF_SEEDS = {"coordinate": 0.25, "random": 0.25, "nsga2": 0.25, "tpe": 0.25, "gp": 0.05}
"""What is far from the goal is told apart by fewer seeds, at least one; the GP takes tens of seconds a race."""
_MAX_TRIALS = 60


def bench() -> str:
    """Workloads x six caps x seeds per sampler, a Markdown table for simulated truths and one for made-up ones.

    ``PARETUNE_BENCH_SEEDS`` (2 by default), ``PARETUNE_BENCH_SAMPLERS`` (all by default, separated by commas).
    """
    num_seeds = int(os.environ.get("PARETUNE_BENCH_SEEDS", "2"))
    names = os.environ.get("PARETUNE_BENCH_SAMPLERS", ",".join(SAMPLERS_RACED)).split(",")
    simulated = [tabled(name) for name in SPACES]
    made_up = [ground(name, decode_gib=size) for name, size in _DECODE_GIB.items()]
    return "\n".join(
        [
            f"Trials until within 5 % / 1 % of the fastest plan that fits, {_MAX_TRIALS} at most; six caps that leave "
            "5 to 80 % of the plans.",
            "",
            *_table(f"Simulated truth ({_sizes(simulated)}), perturbed forecast", simulated, names, num_seeds),
            "",
            *_table(f"Made-up truth ({_sizes(made_up)}), no figures of any real card", made_up, names, num_seeds),
        ]
    )


def _sizes(grounds: Iterable[Ground]) -> str:
    return ", ".join(f"{place.name}: {len(place.plans)} plans" for place in grounds)


def _table(title: str, grounds: Sequence[Ground], names: Sequence[str], num_seeds: int) -> Iterator[str]:
    yield title
    yield ""
    yield "| sampler | seeds | 5 %: median | within 15 trials | 1 %: median | within 30 trials | did not fit |"
    yield "|---|---|---|---|---|---|---|"
    for name in names:
        seeds = range(max(1, round(num_seeds * _SHARE_OF_SEEDS.get(name, 1.0))))
        yield _row(name, len(seeds), list(races(name, grounds, seeds)))


def races(name: str, grounds: Iterable[Ground], seeds: Sequence[int]) -> Iterator[Finish]:
    """Every race of one sampler: each ground, seed and cap."""
    for place in grounds:
        for seed in seeds:
            truth = place.draw(seed)
            for cap in truth.caps(_SHARES):
                yield race(name, place, truth, cap, seed=seed, max_trials=_MAX_TRIALS)


def _row(name: str, num_seeds: int, finishes: Sequence[Finish]) -> str:
    five, one = [f.within_5 for f in finishes], [f.within_1 for f in finishes]
    wasted = statistics.mean(f.num_wasted for f in finishes)
    cells = (name, str(num_seeds), _middle(five), _share(five, 15), _middle(one), _share(one, 30), f"{wasted:.1f}")
    return f"| {' | '.join(cells)} |"


def _middle(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"> {_MAX_TRIALS}" if middle == math.inf else f"{middle:g}"


def _share(values: Sequence[float], limit: int) -> str:
    return f"{sum(value <= limit for value in values) / len(values):.0%}"
