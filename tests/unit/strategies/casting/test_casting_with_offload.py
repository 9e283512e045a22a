"""Casting together with whatever places weights: the 8-bit bytes travel, and the result is that of casting alone."""

from __future__ import annotations

import pytest
import torch
from support.toys import MODULES, Case
from support.tripwire import Tripwire

from paretune.strategies import Applied, registry
from paretune.strategies.mechanics.blocks import find_blocks

_PLACING = [
    text
    for text in (
        "group_offload(level=leaf_level)",
        "group_offload(level=block_level,num_blocks_per_group=1)",
        "block_residency(num_resident_blocks=1,look_ahead=0)",
        "sequential_offload",
        "model_offload",
    )
    if text.partition("(")[0] in registry()
]


_PAIRS = [
    pytest.param(case, placing, id=f"{case.name}-{placing}")
    for case in MODULES
    for placing in _PLACING
    if not placing.startswith("block_residency") or find_blocks(case.model())
]


@pytest.mark.parametrize(("case", "placing"), _PAIRS)
@pytest.mark.parametrize("order", ["cast first", "cast last"])
def test_result_and_undo_are_those_of_casting_alone(case: Case, placing: str, order: str) -> None:
    cast = "layerwise_casting"
    model, alone = case.model(), case.model()
    pointers = {name: p.data_ptr() for name, p in model.named_parameters()}
    plan = f"{cast} + {placing}" if order == "cast first" else f"{placing} + {cast}"
    with Applied(cast, alone, "cpu"), Applied(plan, model, "cpu"), torch.no_grad():
        wanted = [alone(case.input()) for _ in range(2)]
        weights = [p.data for p in model.parameters()]
        with Tripwire(weights) if placing != "model_offload" else torch.no_grad():
            got = [model(case.input()) for _ in range(2)]
        assert all(torch.equal(a, b) for a, b in zip(got, wanted))
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == pointers
