"""Whole pipelines with every component routed: the same picture, and the untouched pipeline afterwards."""

from contextlib import ExitStack

import pytest
import torch
from torch.utils._pytree import tree_leaves

from paretune.attention import route
from paretune.harness.workloads import workload_named


@pytest.mark.parametrize(
    ("workload", "backend"),
    [("flux.1-schnell-tiny", "_native_math"), ("sdxl-tiny", "_native_flash"), ("qwen-image-tiny", "flex")],
)
@torch.no_grad()
def test_every_component_of_a_pipeline_is_routed(workload, backend):
    found = workload_named(workload)
    pipeline = found.load()

    def output():
        leaves = tree_leaves(found.run(pipeline, device=torch.device("cpu")))
        return [leaf for leaf in leaves if torch.is_tensor(leaf)]

    expected = output()
    components = {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
    with ExitStack() as routes:
        for name, part in components.items():
            routed = routes.enter_context(route(part, backend))
            assert routed.layers and not routed.missed, name
        for got, wanted in zip(output(), expected, strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(got, wanted) for got, wanted in zip(output(), expected, strict=True))
