"""What one simulated trial of a full-size model costs this machine: processor seconds after import, and memory."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from paretune.harness.records import Record, Trial

__all__ = ["PLANS", "Cost", "bench", "cost_of"]

PLANS = (
    "resident",
    "transformer:group_offload(level=leaf_level,use_stream=true)",
    "transformer:block_residency",
)
_DEVICE = "sim:h100"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Processor seconds of the whole trial and of one forward pass of the denoiser, and the process's largest memory.

    A pass is the mean over those that were really run, what the pipeline does between them included.
    """

    trial_s: float
    forward_s: float
    num_forwards: int
    memory_bytes: int


def bench() -> str:
    """FLUX.1-dev (or ``PARETUNE_BENCH_WORKLOAD``), 28 steps, three plans, each in a fresh process, as a Markdown table.

    ``PARETUNE_BENCH_REPEATS`` (3 by default) times each; the least is told, since other work only adds.
    """
    name, repeats = os.environ.get("PARETUNE_BENCH_WORKLOAD", "flux.1-dev"), _repeats()
    lines = [
        f"One simulated trial of {name} on {_DEVICE}: a warm-up call and a timed one. Processor seconds of the process after "
        f"import, the least of {repeats}.",
        "",
        "| plan | trial | one forward pass | run of them | memory of the process |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(plan, min(costs, key=lambda cost: cost.trial_s)) for plan, costs in _all(name))])


def cost_of(workload: str, plan: str) -> Cost:
    """Carry out one trial in a process of its own, forked after everything is imported. Raises what the trial raises."""
    import paretune.harness.perform
    import paretune.harness.simulator.simulation  # noqa: F401
    from paretune.harness.workloads.architecture import load_architecture
    from paretune.harness.workloads.assemble import resolve_class

    architecture = load_architecture(workload)  # both libraries import a class when it is first asked for
    declared = [component.class_name for component in architecture.components.values() if component is not None]
    for name in (*declared, architecture.pipeline):
        if name is not None:
            resolve_class(name)
    gc.collect()  # as the server that trials are forked from: what was imported is not looked through again and again
    gc.freeze()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(_measure, workload, plan).result()


def _measure(workload: str, plan: str) -> Cost:
    from paretune.harness.perform import perform

    marks: list[tuple[str, float]] = []
    began_s = time.process_time()
    trial = Trial(workload={"name": workload}, device=_DEVICE, plan=plan)
    record = perform(trial, lambda phase: marks.append((phase, time.process_time())))
    spent_s = time.process_time() - began_s
    if not record.is_complete:
        raise RuntimeError(f"{plan}: the trial ended as {record.outcome}: {record.reason}")
    denoising_s = sum(end - start for (phase, start), (_, end) in itertools.pairwise(marks) if phase == "denoise")
    num_forwards = _num_calls(record) - int(record.counters["num_replayed_calls"])
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Cost(
        trial_s=spent_s,
        forward_s=denoising_s / num_forwards,
        num_forwards=num_forwards,
        memory_bytes=peak_bytes,
    )


def _num_calls(record: Record) -> int:
    """Steps of the warm-up calls and the timed ones; one forward pass each."""
    return len(record.step_latency_s) * (len(record.warmup_s) + len(record.latency_s))


def _repeats() -> int:
    return int(os.environ.get("PARETUNE_BENCH_REPEATS", "3"))


def _all(name: str) -> Iterator[tuple[str, list[Cost]]]:
    for plan in PLANS:
        yield plan, [cost_of(name, plan) for _ in range(_repeats())]


def _row(plan: str, cost: Cost) -> str:
    memory = f"{cost.memory_bytes / 2**30:.2f} GiB"
    return f"| `{plan}` | {cost.trial_s:.2f} s | {cost.forward_s:.2f} s | {cost.num_forwards} | {memory} |"
