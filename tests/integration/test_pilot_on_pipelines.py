"""The short call on a real pipeline and in a child process: fewer steps of what was loaded, stopped or measured in full."""

from __future__ import annotations

import pytest
import torch

from paretune.harness.pilot import PILOT, Bar, Pilot
from paretune.harness.records import Outcome, Procedure, Record, Trial
from paretune.harness.runner import run_trial
from paretune.harness.workloads import workload_named

TINY = {"name": "sd1.5-tiny", "steps": 8}


class Counting:
    """Counts what a call announces."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.num_steps = 0

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def step(self) -> None:
        self.num_steps += 1


def test_fewer_steps_of_the_same_pipeline_and_the_full_call_stays() -> None:
    workload = workload_named(TINY)
    assert workload.with_steps(2) is None  # nothing is loaded yet
    loaded = workload.load()
    short = workload.with_steps(2)
    assert short is not None and short.spec["steps"] == 2 and workload.spec["steps"] == 8
    few, all_steps = Counting(), Counting()
    for each, seen in ((short, few), (workload, all_steps)):
        each.run(loaded, device=torch.device("cpu"), observer=seen)
        assert seen.phases == ["encode", "denoise", "decode"]
    assert all_steps.num_steps - few.num_steps == 8 - 2  # this scheduler adds one call of its own to either


@pytest.mark.parametrize("asked", [{"name": "sd1.5-img2img-tiny"}, {"name": "sd-vae-decode-tiny"}])
def test_what_has_no_shorter_call(asked: dict[str, object]) -> None:
    workload = workload_named(asked)
    workload.load()
    assert workload.with_steps(2) is None


def test_a_child_stops_a_hopeless_plan_and_measures_another() -> None:
    quick = Procedure(num_warmup=0, min_iterations=1, max_iterations=1, check_output=False, timeout_s=300)

    def ran(latency_s: float) -> Record:
        options = Pilot(bars=(Bar(memory_bytes=None, latency_s=latency_s),)).options()
        return run_trial(Trial(workload=TINY, device="cpu", plan="vae:vae_slicing", procedure=quick, options=options))

    stopped, full = ran(1e-9), ran(1e9)
    assert stopped.outcome is Outcome.STOPPED and "stopped after 2 of 8 steps" in str(stopped.reason)
    assert stopped.latency_s == () and stopped.options == {"purpose": PILOT}
    assert full.outcome is Outcome.COMPLETE and len(full.latency_s) == 1
    assert full.facts[PILOT]["of"] == 8 and full.facts[PILOT]["predicted_latency_s"] > 0
    assert stopped.key != full.key
