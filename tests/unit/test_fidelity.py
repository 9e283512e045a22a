"""Closeness of outputs: known figures for known differences, the worst tensor decides, broken pictures noticed."""

from __future__ import annotations

import math

import pytest
import torch

from paretune.harness.fidelity import compare, structural_similarity


def picture(seed: int = 0) -> torch.Tensor:
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def test_equal_outputs_are_exact():
    found = compare({"a": picture()}, {"a": picture()})
    assert found == {
        "is_exact": True,
        "is_finite": True,
        "is_blank": False,
        "psnr_db": math.inf,
        "cosine": 1.0,
        "max_abs_error": 0.0,
        "relative_l2": 0.0,
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.uint8])
def test_a_known_difference_has_known_figures(dtype):
    reference = torch.zeros(100, dtype=dtype)
    reference[:50] = 10
    output = reference.clone()
    output[0] = 5
    found = compare({"a": output}, {"a": reference})
    assert not found["is_exact"] and found["max_abs_error"] == 5.0
    assert found["psnr_db"] == pytest.approx(10 * math.log10(100 / 0.25))
    assert found["relative_l2"] == pytest.approx(5 / math.sqrt(5000))


def test_the_worst_tensor_decides():
    good, reference = {"a": picture(), "b": picture()}, {"a": picture(), "b": picture()}
    worse = {"a": picture() + 0.1, "b": picture()}
    assert compare(good, reference)["is_exact"] and not compare(worse, reference)["is_exact"]
    assert compare(worse, reference)["max_abs_error"] == pytest.approx(0.1, rel=1e-4)


def test_another_dtype_is_not_exact_although_values_are_equal():
    ones = torch.ones(4)
    found = compare({"a": ones.half()}, {"a": ones})
    assert not found["is_exact"] and found["psnr_db"] == math.inf and found["relative_l2"] == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_noticed(bad):
    output = picture()
    output[0, 0, 0, 0] = bad
    found = compare({"a": output}, {"a": picture()})
    assert not found["is_finite"] and found["psnr_db"] == -math.inf
    assert compare({"a": output}, {"a": output})["is_finite"]


def test_a_black_picture_is_noticed_unless_the_reference_is_one():
    black = torch.zeros(3, 8, 8)
    assert compare({"a": black}, {"a": picture()[0, :, :8, :8]})["is_blank"]
    assert not compare({"a": black}, {"a": black + 1})["is_blank"]
    assert compare({"a": black}, {"a": black})["is_exact"]


@pytest.mark.parametrize(
    ("output", "reference"), [({"a": picture()}, {"b": picture()}), ({"a": picture()[:1]}, {"a": picture()})]
)
def test_outputs_of_other_names_or_shapes_are_refused(output, reference):
    with pytest.raises(ValueError, match=r"differ|shape"):
        compare(output, reference)


def test_empty_outputs_are_equal():
    found = compare({"a": torch.empty(0, 3)}, {"a": torch.empty(0, 3)})
    assert found["is_exact"] and not found["is_blank"] and found["max_abs_error"] == 0.0


def test_structural_similarity_or_the_extra_that_brings_it():
    try:
        import skimage  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"paretune\[fidelity\]"):
            structural_similarity(picture(), picture())
        return
    assert structural_similarity(picture(), picture()) == pytest.approx(1.0)
    assert structural_similarity(picture(), picture(1)) < 0.5
    slightly = structural_similarity(picture(), picture() + 0.01 * picture(2))
    assert structural_similarity(picture(), picture(1)) < slightly < 1.0
    with pytest.raises(ValueError, match="no pictures"):
        structural_similarity(picture(), picture()[:1])
