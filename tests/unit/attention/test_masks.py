"""Masks: every shape is read in one way or refused, and the cheapest exact form is found and never goes stale."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.attention import BackendRefused
from paretune.attention.masks import (
    additive,
    aligned,
    attended,
    canonical,
    causal_part,
    like_sdpa,
    mask_kind,
    simplified,
    with_causal,
)

SIZES = (2, 3, 5, 7)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((7,), (1, 1, 1, 7)),
        ((2, 7), (2, 1, 1, 7)),
        ((5, 7), (1, 1, 5, 7)),
        ((2, 5, 7), (2, 1, 5, 7)),
        ((2, 1, 7), (2, 1, 1, 7)),
        ((3, 5, 7), (1, 3, 5, 7)),
        ((2, 1, 1, 7), (2, 1, 1, 7)),
        ((1, 3, 5, 7), (1, 3, 5, 7)),
    ],
)
def test_shapes(shape, expected):
    assert canonical(torch.ones(shape, dtype=torch.bool), SIZES).shape == expected


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 7), (4, 5, 7), (2, 3, 7, 5), (2, 3, 5, 7, 1)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(BackendRefused, match="does not fit"):
        canonical(torch.ones(shape, dtype=torch.bool), SIZES)


def test_two_readings_are_refused():
    with pytest.raises(BackendRefused, match="four dimensions"):
        canonical(torch.ones(5, 7, dtype=torch.bool), (5, 3, 5, 7))
    with pytest.raises(BackendRefused, match="four dimensions"):
        canonical(torch.ones(3, 5, 7, dtype=torch.bool), (3, 3, 5, 7))
    assert like_sdpa(torch.ones(5, 7, dtype=torch.bool), (5, 3, 5, 7)).shape == (1, 1, 5, 7)


def test_integers_are_refused():
    with pytest.raises(BackendRefused, match="boolean or floating point, not int64"):
        canonical(torch.ones(2, 7, dtype=torch.int64), SIZES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_lowest_number_means_blocked(dtype):
    mask = torch.zeros(1, 1, 5, 7, dtype=dtype)
    mask[..., 3:] = torch.finfo(dtype).min
    assert torch.equal(attended(canonical(mask, SIZES))[0, 0, 0], torch.arange(7) < 3)
    assert mask.min() == torch.finfo(dtype).min, "the caller's mask is left alone"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["bool", "float"]), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)
)
def test_the_simplified_form_means_the_same(seed, kind, heads, queries, keys):
    generator = torch.Generator().manual_seed(seed)
    shape = [size if torch.rand(1, generator=generator) > 0.5 else 1 for size in (2, heads, queries)] + [keys]
    pattern = torch.rand(shape, generator=generator) > torch.rand(1, generator=generator)
    if seed % 5 == 0:
        pattern = causal_part((2, heads, queries, keys), torch.device("cpu"))
    if seed % 7 == 0:
        pattern = torch.ones_like(pattern)
    mask = pattern if kind == "bool" else additive(pattern, torch.float32)
    form, causal = simplified(mask, (2, heads, queries, keys))
    whole = torch.ones(2, heads, queries, keys, dtype=torch.bool)
    if form is not None:
        whole = whole & attended(form)
    if causal:
        whole = with_causal(whole, (2, heads, queries, keys))
    assert torch.equal(whole, pattern.expand_as(whole))
    if pattern.all():
        assert form is None and not causal
    elif bool((pattern == pattern[:, :1, :1]).all()) and not causal:
        assert mask_kind(form) == "padding"


def test_a_mask_changed_in_place_is_looked_at_again():
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    assert simplified(mask, SIZES) == (None, False)
    mask[1, :, :, 4:] = False
    form, causal = simplified(mask, SIZES)
    assert torch.equal(form, mask[:, :, :1]) and not causal
    view = mask[:1]
    assert simplified(view, (1, 3, 5, 7)) == (None, False), "a view is not its base"


def test_masks_made_under_inference_mode_are_read_each_time():
    with torch.inference_mode():
        mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
        assert simplified(mask, SIZES) == (None, False)
        mask[:, :, :, 4:] = False
        assert simplified(mask, SIZES)[0] is not None


def test_masks_without_data_are_not_looked_into():
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool, device="meta")
    assert simplified(mask, SIZES)[0] is mask


@pytest.mark.parametrize("keys", range(1, 34))
def test_addends_have_aligned_rows(keys):
    bias = torch.randn(2, 1, 3, keys)
    made = aligned(bias, (2, 4, 3, keys))
    assert made.shape == (2, 4, 3, keys) and made.stride(-2) % 8 == 0 and made.stride(-1) == 1
    assert torch.equal(made, bias.expand(2, 4, 3, keys))
