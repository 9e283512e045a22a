"""The benchmark of simulated trials tells what each plan cost, and fails where a trial does."""

from __future__ import annotations

import pytest

from paretune.harness.bench import simulator


def test_every_plan_has_a_row_with_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARETUNE_BENCH_WORKLOAD", "flux.1-dev-tiny")
    monkeypatch.setenv("PARETUNE_BENCH_REPEATS", "1")
    found = {plan: simulator.cost_of("flux.1-dev-tiny", plan) for plan in simulator.PLANS[:1]}
    cost = found["resident"]
    assert 0 < cost.forward_s < cost.trial_s and cost.num_forwards >= 2 and cost.memory_bytes > 2**26
    monkeypatch.setattr(simulator, "cost_of", lambda name, plan: cost)
    rows = [line for line in simulator.bench().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(simulator.PLANS)


def test_a_trial_that_fails_is_not_timed() -> None:
    with pytest.raises(RuntimeError, match="ended as"):
        simulator.cost_of("flux.1-dev-tiny", "transformer:block_residency(num_resident_blocks=99)")
