"""Adapters: builds of different ages, edge sizes of packing, and the defects that other dispatchers have shown."""

import pytest
import torch

from paretune.attention import BackendRefused
from paretune.attention.kernels import flash, packing
from paretune.attention.kernels.request import Request

REQUEST = Request(None, False, 0.125, False, True)


def tensors(length=5):
    return [torch.randn(2, length, 2, 64, dtype=torch.bfloat16) for _ in range(3)]


def lse_of(q):
    return torch.zeros(q.shape[0], q.shape[2], q.shape[1])


def always_a_tuple(q, k, v, softmax_scale=None, causal=False):
    return q, lse_of(q)


def never_a_tuple(q, k, v, softmax_scale=None, causal=False):
    return q


def with_a_switch(q, k, v, softmax_scale=None, causal=False, return_attn_probs=False):
    return (q, lse_of(q)) if return_attn_probs else q


@pytest.mark.parametrize("build", [always_a_tuple, never_a_tuple, with_a_switch])
@pytest.mark.parametrize("return_lse", [False, True])
def test_third_generation_builds_of_every_age(build, return_lse):
    query, key, value = tensors()
    request = Request(None, False, 0.125, False, return_lse)
    if build is never_a_tuple and return_lse:
        with pytest.raises(BackendRefused, match="Update"):
            flash.flash3(build, query, key, value, request)
        return
    output, lse = flash.flash3(build, query, key, value, request)
    assert torch.equal(output, query)
    assert (lse is None) != return_lse
    if return_lse:
        assert lse.shape == (2, 2, 5) and lse.dtype is torch.float32


@pytest.mark.parametrize("lengths", [(0, 3, 0), (0, 0, 0), (1, 0, 0), (3, 1, 2)])
def test_packing_drops_empty_samples_and_brings_them_back_as_zeros(lengths):
    query, key, value = (torch.randn(3, 3, 2, 8) for _ in range(3))
    mask = (torch.arange(3) < torch.tensor(lengths)[:, None])[:, None, None]
    packed = packing.pack(query, key, value, mask)
    kept = [length for length in lengths if length]
    assert packed.is_empty == (not kept)
    assert packed.starts_key.dtype is torch.int32
    assert packed.starts_key.tolist() == [0, *torch.tensor(kept).cumsum(0).tolist()]
    assert packed.key.shape[0] == sum(lengths) and packed.query.shape[0] == 3 * len(kept)
    made = torch.full((3 * len(kept), 2, 8), 7.0) if kept else None
    output, lse = packing.unpack(packed, made, None, REQUEST)
    for sample, length in enumerate(lengths):
        assert (output[sample] == (7.0 if length else 0.0)).all()
    assert lse.isneginf().all() and not output.isnan().any()


def test_packing_keeps_the_right_tokens_whatever_the_pattern():
    key = torch.arange(12.0).view(2, 6, 1, 1)
    for pattern in ([0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]):
        mask = torch.tensor([pattern, pattern[::-1]], dtype=torch.bool)[:, None, None]
        packed = packing.pack(key, key, key, mask)
        expected = key[:, :, 0, 0][mask[:, 0, 0]]
        assert torch.equal(packed.key.flatten(), expected)
