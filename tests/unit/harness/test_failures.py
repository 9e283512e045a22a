"""Exceptions become outcomes by what they mean, also when they are wrapped, also when only their text tells."""

import pytest
import torch

from paretune.harness.failures import classify, oom_sizes
from paretune.harness.records import Outcome
from paretune.harness.simulator.host_memory import OutOfHostMemory
from paretune.strategies.errors import InfeasiblePlan, PlanError, Unsupported

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 11.99 GiB of which 1.00 GiB is free. "
    "Of the allocated memory 9.00 GiB is allocated by PyTorch"
)


def wrapped(error: BaseException) -> BaseException:
    try:
        try:
            raise error
        except BaseException as inner:
            raise RuntimeError("while loading") from inner
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (torch.OutOfMemoryError("any words"), Outcome.OOM),
        (RuntimeError(CUDA), Outcome.OOM),
        (RuntimeError("HIP out of memory. Tried to allocate"), Outcome.OOM),
        (MemoryError(), Outcome.OOM_HOST),
        (OutOfHostMemory("simulated host out of memory. Tried to allocate 2 GiB for a device"), Outcome.OOM_HOST),
        (RuntimeError("simulated annealing is out of memory"), Outcome.CRASHED),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), Outcome.OOM_HOST),
        (Unsupported("no tiling for X"), Outcome.UNSUPPORTED),
        (InfeasiblePlan(["a and b"]), Outcome.INFEASIBLE),
        (PlanError("no such"), Outcome.INFEASIBLE),
        (ValueError("shapes"), Outcome.CRASHED),
        (RuntimeError("the memory of the disk is full"), Outcome.CRASHED),
    ],
)
def test_outcomes(error, outcome):
    assert classify(error)[0] is outcome
    assert classify(wrapped(error))[0] is outcome


def test_sizes_come_from_the_facts_first_and_from_the_text_otherwise():
    assert oom_sizes(RuntimeError(CUDA)) == {"requested_bytes": int(2.5 * 2**30), "limit_bytes": int(11.99 * 2**30)}
    error = torch.OutOfMemoryError(CUDA)
    error.facts = {"requested_bytes": 7, "allocated_bytes": 8}
    assert oom_sizes(wrapped(error))["requested_bytes"] == 7
    assert oom_sizes(wrapped(error))["allocated_bytes"] == 8
    assert oom_sizes(MemoryError()) == {}
