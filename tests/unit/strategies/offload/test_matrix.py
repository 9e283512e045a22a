"""Offloading under casting, layout changes and quantisation: every pair does what the other alone would."""

from __future__ import annotations

import contextlib

import pytest
import torch
from support.snapshot import snapshot
from support.toys import MODULES, make_pipeline

from paretune.strategies import Applied

OFFLOADS = (
    "model_offload",
    "sequential_offload",
    "group_offload",
    "group_offload(level=leaf_level)",
    "block_residency(num_resident_blocks=1,look_ahead=0)",
)
FIRST = ("layerwise_casting", "layerwise_casting(storage_dtype=float8_e5m2)", "channels_last")
TOYS = [case for case in MODULES if case.name in ("lone_layers", "tied_weights", "recursive", "attention")]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("offload", OFFLOADS)
def test_a_pair_computes_what_the_first_alone_computes(first: str, offload: str) -> None:
    from paretune.strategies import Unsupported

    for case in TOYS:
        alone, both = case.model(), case.model()
        before = snapshot(both)
        with torch.no_grad():
            try:
                with Applied(first, alone, "cpu"):
                    wanted = alone(case.input())
            except Unsupported:
                continue
            for plan in (f"{first} + {offload}", f"{offload} + {first}"):
                with Applied(plan, both, "cpu"):
                    for _ in range(2):
                        assert torch.equal(both(case.input()), wanted), (case.name, plan)
                    _raise_inside(both, case.input())
                    assert torch.equal(both(case.input()), wanted), (case.name, plan)
        assert before.differences(snapshot(both)) == []


def _raise_inside(model: torch.nn.Module, x: torch.Tensor) -> None:
    def blow(*_: object) -> None:
        raise ValueError("in the middle")

    leaves = [module for module in model.modules() if not list(module.children()) and list(module.parameters())]
    handles = [leaves[len(leaves) // 2].register_forward_pre_hook(blow)]
    with contextlib.suppress(ValueError):
        model(x)
    for handle in handles:
        handle.remove()


def test_small_bytes_cross_the_link() -> None:
    from paretune.strategies.mechanics.residency import residency_of

    sizes = []
    for plan in ("transformer:group_offload", "transformer:group_offload + transformer:layerwise_casting"):
        pipeline = make_pipeline()
        with Applied(plan, pipeline, "cpu"):
            placed = residency_of(pipeline.transformer)
            assert placed is not None
            sizes.append(sum(unit.num_bytes for unit in placed.units))
    assert sizes[1] < sizes[0]
