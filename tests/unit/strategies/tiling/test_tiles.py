"""Tile arithmetic: every size, every overlap, partition of unity, no pixel blended twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.strategies.mechanics.tiles import Axis, largest_fitting, overlap_of, zones


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 70), st.integers(1, 20), st.floats(0, 0.99), st.integers(1, 8), st.booleans())
def test_tiles_cover_the_axis_and_zones_are_disjoint(length, tile, fraction, ratio, causal):
    overlap = max(overlap_of(fraction, tile), int(causal and tile > 1))
    axis = Axis(length=length, tile=tile, overlap=overlap, ratio=ratio, causal=causal and tile > 1)
    spans = axis.latents()
    assert spans[0][0] == 0 and spans[-1][1] == length
    assert all(stop - start == min(tile, length) for start, stop in spans)
    assert all(before[0] < own[0] <= before[1] for before, own in itertools.pairwise(spans))
    pixels = axis.pixels()
    assert pixels[-1][1] == (1 + (length - 1) * ratio if axis.causal else length * ratio)
    blended = zones(pixels)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(blended))
    assert all(own[0] <= zone[0] <= zone[1] == before[1] for before, own, zone in zip(pixels, pixels[1:], blended[1:]))


@pytest.mark.parametrize("tile", [4, 8, 16])
@pytest.mark.parametrize("percent", range(0, 100, 5))
def test_one_tile_too_many_is_never_cut(tile, percent):
    overlap = overlap_of(percent / 100, tile)
    step = tile - overlap
    for k in range(1, 5):
        for length in (tile + k * step - 1, tile + k * step, tile + k * step + 1, tile - overlap + 1):
            expected = 1 if length <= tile else 1 + -(-(length - tile) // step)
            assert len(Axis(length=length, tile=tile, overlap=overlap).latents()) == expected


@pytest.mark.parametrize("overlap", [-1, 8, 9])
def test_an_overlap_that_leaves_no_step_is_refused(overlap):
    with pytest.raises(ValueError, match="no step"):
        Axis(length=20, tile=8, overlap=overlap)


def test_blend_zones_are_as_wide_as_the_overlap():
    spans = Axis(length=17, tile=8, overlap=4).latents()
    assert spans == [(0, 8), (4, 12), (8, 16), (9, 17)]
    assert zones(spans) == [(0, 0), (4, 8), (8, 12), (12, 16)]


@pytest.mark.parametrize("cap", range(0, 120, 7))
def test_the_largest_tile_under_a_cap(cap):
    sizes = [8, 64, 16, 32]
    fitting = [size for size in sizes if size + 10 <= cap]
    assert largest_fitting(sizes, lambda size: size + 10, cap) == (max(fitting) if fitting else None)
