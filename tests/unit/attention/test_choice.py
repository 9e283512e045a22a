"""Automatic choice: the fastest exact backend that can compute the call, with the reason; refused ones are never chosen."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paretune.attention import available, choice, choose, route
from paretune.attention.call import Call, refusal
from paretune.attention.catalog import catalog

BASE = {"batch": 1, "queries": 4096, "keys": 4096, "heads": 24, "key_heads": 24, "head_size": 128, "value_size": 128}


def call(**changes):
    return Call(**{"dtype": "bfloat16", "compute_capability": (9, 0), **BASE, **changes})


@pytest.fixture
def everything_installed(monkeypatch):
    yes = available.Availability(name="", device="cuda", ok=True)
    no = available.Availability(name="", device="cuda", ok=False, reason="it runs elsewhere.")
    here = {name for name, item in catalog().items() if {"any", "cuda"} & set(item.devices)}
    monkeypatch.setattr(choice, "availability", lambda name, device: yes if name in here else no)


def test_hopper_takes_the_third_generation(everything_installed):
    found = choose(call(), "cuda")
    assert catalog()[found.backend].cost.family == "fa3"
    assert "compute capability 9.0" in found.because and found.expected_share > 0.5


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (12, 0)])
@pytest.mark.parametrize("mask", ["none", "padding", "dense"])
@pytest.mark.parametrize("head_size", [64, 72, 128, 256, 512])
def test_the_choice_can_always_compute_the_call(everything_installed, capability, mask, head_size):
    asked = call(compute_capability=capability, mask=mask, head_size=head_size, value_size=head_size)
    for allow_lossy in (False, True):
        found = choose(asked, "cuda", allow_lossy=allow_lossy)
        entry = catalog()[found.backend]
        assert refusal(entry, asked) is None
        assert allow_lossy or not entry.is_lossy
        assert not entry.cost.score_copies, "memory that grows with queries x keys is never chosen"


def test_lossy_only_when_allowed(everything_installed):
    assert catalog()[choose(call(), "cuda", allow_lossy=True).backend].is_lossy
    assert not catalog()[choose(call(compute_capability=(8, 9)), "cuda").backend].is_lossy


def test_without_rates_pytorch_decides(everything_installed):
    assert choose(call(dtype="float32"), "cuda").backend == "native"
    found = choose(call(compute_capability=None, device_type="cpu"), "cpu")
    assert found.backend == "native" and "no published rates" in found.because


def test_routed_automatically_with_the_reason_kept():
    class Layer(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    model = Layer()
    with route(model, "auto") as routed:
        for shape in ((1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 9, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(model(x), F.scaled_dot_product_attention(x, x, x))
        assert len(routed.selection.choices) == 2
        assert all(made.because for made in routed.selection.choices.values())
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), F.scaled_dot_product_attention(x, x, x))
