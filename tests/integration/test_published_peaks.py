"""Peaks that others measured come out of the simulation of unmodified diffusers pipelines at full size, within one per cent."""

from __future__ import annotations

import pytest

from paretune.harness.validation.applied_by_others import Technique
from paretune.harness.validation.engine import simulate
from paretune.harness.validation.express import Case

GIB = 2**30


@pytest.mark.parametrize(
    ("workload", "gpu", "technique", "published_gib"),
    [
        ("flux.1-dev", "h20", Technique(), 33.849),
        ("flux.1-dev", "h100", Technique(offload="model"), 22.64),
        ("sd3-medium", "rtx-4090", Technique(), 18.799),
    ],
)
def test_published_peaks_are_met(workload: str, gpu: str, technique: Technique, published_gib: float) -> None:
    case = Case(workload=workload, overrides=(("steps", 3),), gpu=gpu, technique=technique, is_card_known=True)
    record = simulate(case)
    assert record.is_complete, record.reason
    assert record.peak_allocated_bytes == pytest.approx(published_gib * GIB, rel=0.01)
