"""Measure again what a baseline holds: the same trials, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paretune.harness.records import Procedure, Record, Trial

__all__ = ["Run", "measure_again", "trial_of"]

Run = Callable[[Trial], Record]
"""How one trial is measured; the runner's ``run_trial`` unless a test gives another."""


def trial_of(record: Record, procedure: Procedure | None = None) -> Trial:
    """The trial that a record answers, to be run again."""
    options = {name: value for name, value in record.options.items() if name != "isolation"}
    return Trial(
        workload=dict(record.workload),
        device=record.device,
        plan=record.plan,
        procedure=procedure or Procedure(),
        device_memory_bytes=record.device_memory_bytes,
        options=options,
    )


def measure_again(
    records: Sequence[Record], *, run: Run, procedure: Procedure | None = None, num_workers: int = 1
) -> Iterator[Record]:
    """Head records in the order of ``records``. More than one worker is right only where time is not measured."""
    from concurrent.futures import ThreadPoolExecutor

    trials = [trial_of(record, procedure) for record in records]
    with ThreadPoolExecutor(max_workers=num_workers) as pool:
        yield from pool.map(run, trials)
