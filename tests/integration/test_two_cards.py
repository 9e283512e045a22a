"""Whole pipelines with components on different cards: what a component does inside itself stays on its own card."""

import pytest

from paretune.harness.perform import perform
from paretune.harness.records import Outcome, Procedure, Trial

ONCE = Procedure(num_warmup=0, min_iterations=1, max_iterations=1)

MAPS = {
    "sdxl-tiny": '{"unet":1,"vae":0,"text_encoder":0,"text_encoder_2":0}',
    "flux.1-dev-tiny": '{"transformer":1,"vae":0,"text_encoder":1,"text_encoder_2":0}',
    "sd1.5-tiny": '{"unet":0,"vae":1,"text_encoder":1}',
}


@pytest.mark.parametrize("name", MAPS)
def test_each_component_computes_on_its_own_card(name):
    plan = f"device_map(map={MAPS[name]})"
    record = perform(
        Trial(workload={"name": name}, device="sim:rtx-4090x2", plan=plan, procedure=ONCE), lambda phase: None
    )
    assert record.outcome is Outcome.COMPLETE, record.reason
    assert "not_restored" not in record.facts
    assert set(record.counters["explain"]) >= {"sim:0", "sim:1"}


def test_qwen_image_is_balanced_over_two_cards_at_full_size():
    trial = Trial(
        workload={"name": "qwen-image", "steps": 2},
        device="sim:rtx-4090x2,memory=48GiB",
        plan="device_map",
        procedure=ONCE,
    )
    record = perform(trial, lambda phase: None)
    assert record.outcome is Outcome.COMPLETE, record.reason
    assert record.peak_allocated_bytes < 48 << 30
