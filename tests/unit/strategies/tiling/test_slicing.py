"""Slicing: one sample at a time, bit-equal, outermost, and refused by name where it cannot be."""

from __future__ import annotations

import pytest
import torch
from support.toy_codecs import PointwiseCodec, SampleCodec

from paretune.strategies import Applied, InfeasiblePlan, Unsupported


@pytest.mark.parametrize("num_samples", [0, 1, 2, 3])
@pytest.mark.parametrize("return_dict", [True, False])
def test_answers_equal_the_plain_ones(num_samples, return_dict):
    codec = SampleCodec()
    z, temb = torch.randn(num_samples, 4, 6, 6), torch.rand(num_samples)
    with torch.no_grad():
        plain = codec.decode(z, temb, return_dict)
        posterior = codec.encode(z)[0].sample(torch.Generator().manual_seed(3))
        codec.batches.clear()
        with Applied("vae_slicing", codec, "cpu"):
            cut = codec.decode(z, temb=temb, return_dict=return_dict)
            sampled = codec.encode(z)[0].sample(torch.Generator().manual_seed(3))
    assert type(cut) is type(plain)
    tensors = [(a["sample"] if return_dict else a[0]) for a in (cut, plain)]
    assert torch.equal(*tensors)
    assert torch.equal(sampled, posterior)
    assert set(codec.batches) == {min(num_samples, 1)}


@pytest.mark.parametrize("plan", ["vae_slicing + vae_tiling(tile_size=32)", "vae_tiling(tile_size=32) + vae_slicing"])
def test_slicing_is_outside_of_tiling_in_either_order(plan):
    codec = PointwiseCodec(8)
    z = torch.randn(3, 4, 9, 9)
    whole = codec.decode(z)["sample"]
    codec.shapes.clear()
    with Applied(plan, codec, "cpu"):
        assert torch.equal(codec.decode(z)["sample"], whole)
    assert {shape[0] for shape in codec.shapes} == {1}
    assert len({shape for shape in codec.shapes if shape[-2:] == (4, 4)}) == 1


def test_a_module_without_decode_is_refused_by_its_class():
    with pytest.raises(Unsupported, match="Linear has neither"):
        Applied("vae_slicing", torch.nn.Linear(2, 2), "cpu")


def test_frames_kept_in_the_batch_are_refused():
    class FramesInBatch(torch.nn.Module):
        def decode(self, z, num_frames):
            return z

    with pytest.raises(Unsupported, match="FramesInBatch"):
        Applied("vae_slicing", FramesInBatch(), "cpu")


def test_a_rebound_decode_is_refused_because_it_would_be_ignored():
    codec = PointwiseCodec(8)
    codec.decode = codec.decode
    with pytest.raises(Unsupported, match="rebound"):
        Applied("vae_slicing", codec, "cpu")


def test_answers_that_cannot_be_joined_are_an_error():
    class Strange(torch.nn.Module):
        def decode(self, z):
            return object()

    codec = Strange()
    with Applied("vae_slicing", codec, "cpu"), pytest.raises(TypeError, match="cannot be joined"):
        codec.decode(torch.randn(2, 1, 1, 1))


def test_an_answer_without_samples_is_an_error():
    class Mean(torch.nn.Module):
        def decode(self, z):
            return z.mean()

    codec = Mean()
    with Applied("vae_slicing", codec, "cpu"), pytest.raises(ValueError, match="cannot be told apart"):
        codec.decode(torch.randn(2, 1, 1, 1))


def test_twice_is_refused():
    with pytest.raises(InfeasiblePlan, match=r"once|twice"):
        Applied("vae_slicing + vae_slicing", SampleCodec(), "cpu")
