"""On a real GPU: every backend that says it is available agrees with float64 math, alone and through a model."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paretune.attention import BackendRefused, availability, catalog, check, choose, probe, route
from paretune.attention.contract import call_of, scale_of
from paretune.attention.kernels.request import Request
from paretune.attention.reference import distance, exceeded, reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Layer(nn.Module):
    def forward(self, query, key, value, mask=None):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def tensors(heads=4, length=333, width=64, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    shape = (2, heads, length, width)
    return [torch.randn(shape, generator=generator).to("cuda", dtype) for _ in range(3)]


@pytest.mark.parametrize("name", catalog())
def test_what_is_available_passes_its_probe(name, tmp_path):
    here = availability(name, "cuda")
    if not here:
        pytest.skip(here.reason)
    found = probe(name, "cuda", cache=tmp_path, timeout_s=280)
    assert found, found.reason


@pytest.mark.parametrize("name", catalog())
@torch.no_grad()
def test_a_routed_layer_agrees(name):
    here = availability(name, "cuda")
    if not here:
        pytest.skip(here.reason)
    query, key, value = tensors()
    expected, _ = reference(
        *(t.transpose(1, 2) for t in (query, key, value)), Request(None, False, scale_of(query, None), False, False)
    )
    with route(model := Layer(), name, device="cuda"):
        output = model(query, key, value).transpose(1, 2)
    assert not exceeded(catalog()[name], distance(output, expected), dtype="bfloat16", on_gpu=True)


@pytest.mark.parametrize("name", ["_native_flash", "_native_efficient", "_native_cudnn"])
@torch.no_grad()
def test_pytorchs_kernels_keep_no_scores(name):
    query, key, value = tensors(length=4096)
    try:
        check(*(t.transpose(1, 2) for t in (query, key, value)), backend=name)
    except BackendRefused as reason:
        pytest.skip(str(reason))
    with route(model := Layer(), name, device="cuda"):
        model(query, key, value)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(query, key, value)
    assert torch.cuda.max_memory_allocated() - before < 4 * 2 * 4096 * 4096 * 2 / 4


@torch.no_grad()
def test_the_automatic_choice_runs():
    query, key, value = (t.transpose(1, 2) for t in tensors())
    request = Request(None, False, scale_of(query, None), False, False)
    found = choose(call_of(query, key, value, request), "cuda")
    with route(model := Layer(), found.backend, device="cuda"):
        assert torch.isfinite(model(*(t.transpose(1, 2) for t in (query, key, value)))).all()
