"""Our ways to place weights beside diffusers' and accelerate's, on the simulated card."""

from __future__ import annotations

import os

from paretune.harness.bench._peers import PEERS, Figures, Peer, measure_simulated
from paretune.harness.workloads import workload_named
from paretune.strategies.sizes import format_gib

__all__ = ["bench", "compare"]

_GPU = "rtx-4090"
_MEMORY_BYTES = 80 << 30


def bench() -> str:
    """FLUX.1-dev (or ``PARETUNE_BENCH_WORKLOAD``) with 8 steps on an RTX 4090 given 80 GiB, as a Markdown table."""
    name = os.environ.get("PARETUNE_BENCH_WORKLOAD", "flux.1-dev")
    found = compare(name, steps=8)
    best = min((figures.latency_s for _, figures in found), default=1.0)
    lines = [
        f"{name}, 8 steps, simulated {_GPU} with the memory of a larger card; the second call.",
        "",
        "| placement | peak allocated | time | relative | copied | host peak |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(peer, figures, best) for peer, figures in found)])


def compare(workload: str, *, steps: int) -> list[tuple[Peer, Figures]]:
    """Every peer's figures, in the order of ``PEERS``."""
    chosen = workload_named({"name": workload, "steps": steps})
    return [(peer, measure_simulated(peer, chosen, gpu=_GPU, memory_bytes=_MEMORY_BYTES)) for peer in PEERS]


def _row(peer: Peer, figures: Figures, best_s: float) -> str:
    cells = (
        peer.name,
        format_gib(figures.peak_allocated_bytes),
        f"{figures.latency_s:.2f} s",
        f"{figures.latency_s / best_s:.2f}",
        format_gib(figures.copied_bytes),
        format_gib(figures.peak_host_bytes),
    )
    return f"| {' | '.join(cells)} |"
