"""Groups hold every tensor exactly once, and only what a call needs is on the device."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import MODULES, Block, Case, LoneLayers
from torch import nn

from paretune.strategies.mechanics.blocks import block_groups, find_blocks, leaf_groups, whole_group
from paretune.strategies.mechanics.cells import owners_of
from paretune.strategies.mechanics.order import Order
from paretune.strategies.mechanics.packing import pack, power_of_two
from paretune.strategies.mechanics.spread import by_bytes, by_count
from paretune.strategies.mechanics.units import Group, Keep, Unit, units_of

GROUPINGS = {
    "blocks of 1": block_groups,
    "blocks of 2": lambda model: block_groups(model, num_blocks_per_group=2),
    "leaves": leaf_groups,
    "whole": whole_group,
}


@pytest.mark.parametrize("name", GROUPINGS)
@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_every_tensor_is_in_exactly_one_bundle(name: str, case: Case) -> None:
    model = case.model()
    units = units_of(GROUPINGS[name](model))
    bundles = {bundle for unit in units for bundle in unit.bundles}
    found = [look.tensor for bundle in bundles for cell in bundle.cells for look in cell.looks]
    wanted = {*model.parameters(), *model.buffers()}
    assert len(found) == len(set(found))
    assert set(found) == wanted


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> nn.Module:
    """A random tree of containers, layers, bare parameters and buffers."""
    kind = draw(st.sampled_from(["linear", "module", "list", "sequential"] if depth else ["linear"]))
    if kind == "linear":
        return nn.Linear(2, 2)
    children = [draw(trees(depth=depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if kind == "list":
        return nn.ModuleList(children)
    if kind == "sequential":
        return nn.Sequential(*children)
    module = nn.Module()
    for index, child in enumerate(children):
        module.add_module(f"child{index}", child)
    if draw(st.booleans()):
        module.register_parameter("bare", nn.Parameter(torch.zeros(2)))
    if draw(st.booleans()):
        module.register_buffer("state", torch.zeros(2), persistent=draw(st.booleans()))
    return module


@settings(max_examples=60, deadline=None)
@given(tree=trees(), size=st.integers(1, 3))
def test_groups_of_any_tree_cover_it(tree: nn.Module, size: int) -> None:
    for groups in (block_groups(tree, num_blocks_per_group=size), leaf_groups(tree)):
        owners = [owner for group in groups for owner in group.owners]
        assert len(owners) == len(set(owners))
        assert set(owners) == set(owners_of(tree))


def test_blocks_are_the_outermost_repeated_parts() -> None:
    names = [block.name for block in find_blocks(LoneLayers())]
    assert names == ["blocks.0", "blocks.1", "blocks.2"]
    nested = nn.ModuleDict({"down": nn.ModuleList([nn.Sequential(Block(), Block()), nn.ModuleList([Block()])])})
    assert [block.name for block in find_blocks(nested)] == ["down.0", "down.1.0"]


def unit(name: str) -> Unit:
    return Unit(group=Group(name=name, owners=(), triggers=(), keep=Keep.CALL), bundles=())


def run(order: Order, units: list[Unit]) -> list[bool]:
    """Whether each visit of a pass was foreseen."""
    hits = []
    for one in units:
        hits.append(next(order.ahead(), None) is one)
        order.visit(one)
    order.end_pass()
    return hits


def test_the_order_of_declaration_is_trusted_at_first() -> None:
    a, b, c = map(unit, "abc")
    assert run(Order([a, b, c]), [a, b, c]) == [True, True, True]


def test_another_order_is_learned_after_one_pass() -> None:
    a, b, c = map(unit, "abc")
    order = Order([a, b, c])
    assert False in run(order, [c, a, b])
    assert run(order, [c, a, b]) == [True, True, True]


def test_a_unit_called_twice_is_told_apart_by_what_came_before() -> None:
    a, b, c = map(unit, "abc")
    order = Order([a, b, c])
    run(order, [a, b, a, c])
    assert run(order, [a, b, a, c]) == [True] * 4


def test_a_pass_that_leaves_the_known_path_is_learned_too() -> None:
    a, b, c = map(unit, "abc")
    order = Order([a, b, c])
    run(order, [a, b, c])
    assert run(order, [a, c]) == [True, False]
    assert list(order.ahead())[:2] == [a, c]


@given(st.lists(st.integers(1, 1 << 22), min_size=1, max_size=30))
def test_packing_holds_everything_once_and_wastes_less_than_rounding_each(sizes: list[int]) -> None:
    chunks = pack(sizes)
    assert sorted(index for _, members in chunks for index in members) == list(range(len(sizes)))
    for chunk_bytes, members in chunks:
        assert sum(sizes[index] for index in members) <= chunk_bytes == power_of_two(chunk_bytes)
    assert sum(chunk for chunk, _ in chunks) <= sum(map(power_of_two, sizes))


@given(st.integers(1, 60), st.data())
def test_evenly_spread_blocks_leave_no_long_gap(num_blocks: int, data: st.DataObject) -> None:
    num_resident = data.draw(st.integers(0, num_blocks))
    chosen = by_count([7] * num_blocks, num_resident, even=True)
    assert len(chosen) == num_resident
    assert chosen[:2] == list(range(min(num_resident, 2)))
    gaps = [after - before for before, after in itertools.pairwise(chosen[2:])]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_large_blocks_stay_before_small_ones() -> None:
    sizes = [10, 10, 10, 10, 4, 4, 4, 4]
    assert by_count(sizes, 4, even=True) == [0, 1, 2, 3]
    assert by_count(sizes, 6, even=True) == [0, 1, 2, 3, 4, 5]
    assert by_count(sizes, 3, even=False) == [0, 1, 2]
    assert by_bytes(sizes, 33, even=True) == [0, 1, 3]
    assert by_bytes(sizes, 9, even=True) == [4, 5]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(0, 2000), st.booleans())
def test_blocks_chosen_by_bytes_stay_within_the_budget_and_use_it(sizes: list[int], budget: int, even: bool) -> None:
    chosen = by_bytes(sizes, budget, even=even)
    left = budget - sum(sizes[index] for index in chosen)
    assert left >= 0
    assert chosen == sorted(set(chosen))
    assert all(sizes[index] > left for index in range(len(sizes)) if index not in chosen)
