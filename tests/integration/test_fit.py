"""fit: one line that plans for the pipeline that is loaded, applies the plan, says why, and takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paretune.harness import fit
from paretune.harness.loaded import fingerprint
from paretune.harness.workloads import workload_named
from paretune.strategies import InfeasiblePlan

SPACE = {"plans": ["model_offload", "text_encoder:group_offload(level=leaf_level)", "transformer:layerwise_casting"]}
CALL = {"height": 32, "width": 32, "steps": 2}


def test_fit_applies_says_why_and_undoes(tmp_path: Path) -> None:
    workload = workload_named("flux.1-dev-tiny")
    pipe = workload.load()
    expected = workload.run(pipe, device=torch.device("cpu"))
    before = {name: id(value) for name, value in pipe.transformer.state_dict(keep_vars=True).items()}
    options = {"space": SPACE, "records": str(tmp_path), "simulate": "rtx-4070"}
    with fit(pipe, vram="2GiB", device="cpu", call=CALL, options=options) as handle:
        assert "layerwise_casting" not in str(handle.plan)
        assert "fits 2.00 GiB" in handle.reason and "simulation of rtx-4070" in handle.reason
        assert "live" in handle.describe()
        assert torch.equal(workload.run(pipe, device=torch.device("cpu")), expected)
    assert {name: id(value) for name, value in pipe.transformer.state_dict(keep_vars=True).items()} == before
    num_records = len((tmp_path / "records.jsonl").read_text().splitlines())
    again = fit(pipe, vram="2GiB", device="cpu", call=CALL, options=options)
    again.undo()
    again.undo()
    assert again.reason == handle.reason
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == num_records
    with pytest.raises(InfeasiblePlan, match="closest is"):
        fit(pipe, vram="2MiB", device="cpu", call=CALL, options=options)


def test_fit_takes_a_plain_module() -> None:
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(4)])
    with pytest.raises(ValueError, match="vram"):
        fit(model, device="cpu")
    assert fingerprint(model) == fingerprint(model)
    assert fingerprint(model) != fingerprint(model[:2])
