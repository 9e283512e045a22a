"""attention_backend as a setting of a plan: refused early with reasons, applied to any module, undone exactly."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paretune.attention import catalog
from paretune.strategies import Applied, Plan, PlanError, Surroundings, Unsupported, explain, registry


class Layer(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def setting(backend):
    return registry()["attention_backend"](backend=backend)


def reasons(backend, **where):
    plan = Plan.parse(f"transformer:attention_backend(backend={backend})")
    return explain(plan.settings, Surroundings(**where))


def test_every_backend_is_a_choice():
    for name in (*catalog(), "auto"):
        assert setting(name).backend == name
    with pytest.raises(PlanError, match="not a choice"):
        setting("fastest")


@pytest.mark.parametrize("name", catalog())
def test_only_pytorchs_own_choice_is_lossless(name):
    assert setting(name).is_lossy == (name != "native")


@pytest.mark.parametrize(
    ("backend", "where", "words"),
    [
        ("flash", {"device_type": "cpu"}, "runs on cuda, not on cpu"),
        ("_native_npu", {"device_type": "cuda"}, "runs on npu"),
        ("_flash_3", {"device_type": "sim", "compute_capability": (12, 0)}, "this device has 12.0"),
        (
            "flash",
            {"device_type": "cuda", "compute_capability": (9, 0), "packages": ()},
            "'flash-attn' is not installed",
        ),
    ],
)
def test_plans_that_cannot_run_are_refused_before(backend, where, words):
    (sentence,) = reasons(backend, **where)
    assert words in sentence


@pytest.mark.parametrize("backend", ["native", "_native_math", "auto", "flash"])
def test_plans_that_can_run_are_not(backend):
    assert not reasons(backend)
    assert not reasons(backend, device_type="sim", compute_capability=(9, 0), packages=())


@torch.no_grad()
def test_applied_and_undone():
    model, x = nn.Sequential(Layer(), nn.Linear(8, 8)), torch.randn(1, 2, 5, 8)
    expected = model(x)
    with Applied([setting("_native_math")], model, "cpu"):
        assert type(model[0]) is not Layer and isinstance(model[0], Layer)
        torch.testing.assert_close(model(x), expected)
    assert type(model[0]) is Layer and torch.equal(model(x), expected)


def test_a_model_without_attention_is_unsupported_and_says_why():
    class ExplicitAttention(nn.Module):
        def forward(self, x):
            return (x @ x.transpose(-1, -2)).softmax(-1) @ x

    model = ExplicitAttention()
    with pytest.raises(Unsupported, match="ExplicitAttention"), Applied([setting("_native_math")], model, "cpu"):
        pass
    assert type(model) is ExplicitAttention
