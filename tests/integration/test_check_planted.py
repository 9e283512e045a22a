"""Regressions planted in real strategies on the simulated card: each is caught in its metric, with what caused it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from paretune.harness.perform import perform
from paretune.harness.records import Procedure, Record, Trial
from paretune.harness.regression.compare import compare
from paretune.harness.regression.findings import Finding, Status, exit_status

DEVICE = "sim:rtx-4070"
PLAN = "group_offload(level=block_level,num_blocks_per_group=1)"


def simulated(plan: str = PLAN) -> Record:
    workload = {"name": "flux-transformer-tiny"}
    trial = Trial(workload=workload, device=DEVICE, plan=plan, procedure=Procedure(num_warmup=1, min_iterations=1))
    record = perform(trial, lambda phase: None)
    assert record.is_complete, record.reason
    return record


@pytest.fixture(scope="module")
def base() -> Record:
    return simulated()


def regressions(base: Record, head: Record) -> dict[str, Finding]:
    return {f.metric: f for f in compare([base], [head]) if f.status is Status.REGRESSION}


def test_the_simulator_repeats_itself_exactly(base):
    assert exit_status(compare([base], [simulated()])) == 0


def test_one_useless_clone_in_a_block_is_named(base, monkeypatch):
    from diffusers.models.transformers.transformer_flux import FluxTransformerBlock

    forward = FluxTransformerBlock.forward

    def wasteful(self, hidden_states, *args, **kwargs):
        kept = [hidden_states.clone() for _ in range(200)]
        return forward(self, kept[0], *args, **kwargs)

    monkeypatch.setattr(FluxTransformerBlock, "forward", wasteful)
    found = regressions(base, simulated())
    peak = found["phases.forward.peak_allocated_bytes"]
    assert peak.head > peak.baseline and "activation: +" in peak.text and "aten.clone.default" in peak.text
    counted = found["counters.num_operators"]
    assert counted.head > counted.baseline and counted.causes[0].startswith("aten.clone.default")


def test_a_block_copied_twice_shows_in_the_copies(base, monkeypatch):
    copy = torch.Tensor.copy_

    def twice(self, source, *args, **kwargs):
        if self.device.type == "sim" and source.device.type == "cpu" and source.numel() > 1000:
            copy(self, source, *args, **kwargs)
        return copy(self, source, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "copy_", twice)
    found = regressions(base, simulated())
    assert {"transfers.h2d_bytes", "transfers.num_copies"} <= found.keys()
    assert "latency_s" in found


def test_a_hook_left_out_shows_in_the_peak_of_denoising(base):
    found = regressions(base, dataclasses.replace(simulated("resident"), plan=PLAN))
    assert "phases.forward.peak_allocated_bytes" in found


def test_a_cast_undone_shows_in_peak_and_copied_bytes():
    casting = f"layerwise_casting(storage_dtype=float8_e4m3fn) + {PLAN}"
    found = regressions(simulated(casting), dataclasses.replace(simulated(), plan=casting, is_lossy=True))
    assert "transfers.h2d_bytes" in found


def test_a_path_ten_percent_slower_shows_in_simulated_time(base):
    slower = dataclasses.replace(base, latency_s=tuple(1.1 * value for value in base.latency_s))
    assert regressions(base, slower).keys() == {"latency_s"}
