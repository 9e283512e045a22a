"""Casting, cutting up, layout and quantisation on real pipelines of toy size: close to the reference, undone exactly."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from paretune.harness import outputs, restored
from paretune.harness.fidelity import compare
from paretune.harness.workloads import workload_named
from paretune.strategies import Applied

CPU = torch.device("cpu")
LIMITS = {
    "layerwise_casting": 0.1,
    "vae:layerwise_casting": 0.1,
    "vae_slicing": 1e-4,
    "vae_tiling(tile_size=32)": 0.3,
    "vae_tiling(tile_size=32) + vae_slicing": 0.3,
    "vae:channels_last(volumes=true)": 1e-4,
    "quantize": 0.05,
}


@functools.cache
def loaded(name: str) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    workload = workload_named({"name": name, "batch_size": 2})
    pipeline = workload.load()
    return workload, pipeline, outputs.flatten(workload.run(pipeline, device=CPU))


def dtypes_told(pipeline: Any) -> list[torch.dtype]:
    """What the pipeline and its parts say they compute in, whatever their weights are stored in."""
    parts = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    return [pipeline.dtype, *(part.dtype for part in parts)]


@pytest.mark.parametrize("name", ["sdxl-tiny", "wan-2.1-14b-tiny"])
@pytest.mark.parametrize("plan", LIMITS)
def test_the_picture_is_close_and_the_pipeline_restored(name: str, plan: str) -> None:
    workload, pipeline, reference = loaded(name)
    before, dtypes = restored.look(pipeline), dtypes_told(pipeline)
    with Applied(plan, pipeline, CPU):
        assert dtypes_told(pipeline) == dtypes
        found = compare(outputs.flatten(workload.run(pipeline, device=CPU)), reference)
    assert restored.differences(before, restored.look(pipeline)) == []
    assert found["is_finite"] and not found["is_blank"]
    assert found["relative_l2"] < LIMITS[plan]
    assert compare(outputs.flatten(workload.run(pipeline, device=CPU)), reference)["is_exact"]
