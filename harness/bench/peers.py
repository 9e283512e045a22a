"""Our ways to place weights beside diffusers' and accelerate's, on the simulated card, and both under three caps."""

from __future__ import annotations

import os

from paretune.harness.bench._peers import PEERS, Figures, Peer, measure_simulated
from paretune.harness.workloads import workload_named
from paretune.strategies.sizes import format_gib

__all__ = ["bench", "compare", "no_worse", "under_cap"]

_GPU = "rtx-4090"
_MEMORY_BYTES = 80 << 30
_CAPS_GIB = (12, 16, 24)
_SAME_BYTES = 1 << 20
"""Peaks closer than this are called equal: ours keeps normalisations of leaf groups on the device, some hundred KB."""

Found = list[tuple[Peer, Figures]]


def bench() -> str:
    """FLUX.1-dev with 28 steps (``PARETUNE_BENCH_WORKLOAD``, ``PARETUNE_BENCH_STEPS``) on an RTX 4090, in Markdown.

    First every placement on that card given 80 GiB, then the fastest ones that run in 12, 16 and 24 GiB.
    """
    name = os.environ.get("PARETUNE_BENCH_WORKLOAD", "flux.1-dev")
    steps = int(os.environ.get("PARETUNE_BENCH_STEPS", "28"))
    found = compare(name, steps=steps)
    best_s = min(figures.latency_s for _, figures in found)
    lines = [
        f"{name}, {steps} steps, simulated {_GPU} with the memory of a larger card; the second call.",
        "",
        "| placement | peak allocated | time | relative | copied | host peak | no worse in both |",
        "|---|---|---|---|---|---|---|",
        *(_row(peer, figures, best_s, found) for peer, figures in found),
        "",
        "The fastest that run in the memory of a smaller card, which the simulation enforces:",
        "",
        "| memory | ours | time | over resident | another library's | time | ours is faster by |",
        "|---|---|---|---|---|---|---|",
        *(_cap_row(name, steps, cap, found, best_s) for cap in _CAPS_GIB),
    ]
    return "\n".join(lines)


def compare(workload: str, *, steps: int) -> Found:
    """Every peer's figures, in the order of ``PEERS``."""
    chosen = workload_named({"name": workload, "steps": steps})
    return [(peer, measure_simulated(peer, chosen, gpu=_GPU, memory_bytes=_MEMORY_BYTES)) for peer in PEERS]


def no_worse(figures: Figures, found: Found) -> Peer | None:
    """The fastest of our placements that takes no more time and, within 1 MiB, no more memory; ``None`` without one."""
    rivals = [
        (other.latency_s, peer)
        for peer, other in found
        if peer.plan is not None
        and other.peak_allocated_bytes <= figures.peak_allocated_bytes + _SAME_BYTES
        and other.latency_s <= figures.latency_s
    ]
    return min(rivals, key=lambda rival: rival[0])[1] if rivals else None


def under_cap(workload: str, *, steps: int, memory_bytes: int, found: Found, ours: bool) -> tuple[Peer, float] | None:
    """The fastest of one side that runs on a card with so much memory, and its seconds there."""
    import torch

    chosen = workload_named({"name": workload, "steps": steps})
    rivals = [(peer, figures) for peer, figures in found if (peer.plan is not None) is ours]
    for peer, figures in sorted(rivals, key=lambda rival: rival[1].latency_s):
        if figures.peak_allocated_bytes >= memory_bytes:
            continue
        try:
            return peer, measure_simulated(peer, chosen, gpu=_GPU, memory_bytes=memory_bytes).latency_s
        except torch.OutOfMemoryError:
            continue
    return None


def _row(peer: Peer, figures: Figures, best_s: float, found: Found) -> str:
    better = no_worse(figures, found) if peer.plan is None else None
    cells = (
        peer.name,
        format_gib(figures.peak_allocated_bytes),
        f"{figures.latency_s:.2f} s",
        f"{figures.latency_s / best_s:.2f}",
        format_gib(figures.copied_bytes),
        format_gib(figures.peak_host_bytes),
        "" if peer.plan is not None else better.name if better is not None else "none",
    )
    return f"| {' | '.join(cells)} |"


def _cap_row(workload: str, steps: int, cap_gib: int, found: Found, best_s: float) -> str:
    sides = [
        under_cap(workload, steps=steps, memory_bytes=cap_gib << 30, found=found, ours=ours) for ours in (True, False)
    ]
    cells = [f"{cap_gib} GiB"]
    for side, is_ours in zip(sides, (True, False)):
        cells += [side[0].name, f"{side[1]:.2f} s"] if side else ["none fits", "-"]
        if is_ours:
            cells.append(f"{side[1] / best_s - 1:+.1%}" if side else "-")
    ours, theirs = sides
    cells.append(f"{theirs[1] / ours[1]:.2f} times" if ours and theirs else "-")
    return f"| {' | '.join(cells)} |"
