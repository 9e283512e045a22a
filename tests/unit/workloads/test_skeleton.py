"""Building models without weights, and giving them random ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paretune.harness.workloads.skeleton import kept_in_float32, without_weights
from paretune.harness.workloads.weights import materialise


class Tied(nn.Module):
    """Two layers that share a weight, a loose parameter, and one buffer of each kind."""

    _keep_in_fp32_modules = ("loose",)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(300, 300)
        self.second = nn.Linear(300, 300)
        self.second.weight = self.first.weight
        self.norm = nn.LayerNorm(300)
        self.loose = nn.Parameter(torch.randn(4))
        self.register_buffer("saved", torch.arange(3.0))
        self.register_buffer("computed", torch.arange(3.0), persistent=False)


def built() -> Tied:
    with without_weights():
        return Tied()


def test_parameters_are_on_meta_ties_hold_and_buffers_are_real() -> None:
    model = built()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.second.weight is model.first.weight
    assert torch.equal(model.saved, torch.arange(3.0))


def test_everything_that_was_replaced_is_put_back_also_after_an_exception() -> None:
    register, reset, init = nn.Module.register_parameter, nn.Linear.reset_parameters, nn.init.kaiming_uniform_
    with pytest.raises(KeyError), without_weights():
        assert nn.init.kaiming_uniform_ is init  # whoever imports it meanwhile must get the real one
        raise KeyError
    assert (nn.Module.register_parameter, nn.Linear.reset_parameters) == (register, reset)
    assert 0.0 < nn.Linear(100, 2).weight.abs().max() <= 0.1


def test_weights_follow_name_and_seed_only_and_keep_ties() -> None:
    first, second, other = built(), built(), built()
    for model, seed in ((first, 3), (second, 3), (other, 4)):
        materialise(model, dtype=torch.float32, seed=seed)
    assert first.second.weight is first.first.weight
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name))
        assert not torch.equal(parameter, other.get_parameter(name))
        assert not (parameter == 0).any()
    assert not any(parameter.requires_grad for parameter in first.parameters())


def test_weights_are_scaled_so_that_a_layer_keeps_the_size_of_its_input() -> None:
    model = built()
    materialise(model, dtype=torch.float32, seed=0)
    assert 0.9 < model.first(torch.randn(64, 300)).std() < 1.1
    assert 0.9 < model.norm.weight.mean() < 1.1


def test_large_weights_do_not_repeat_row_by_row() -> None:
    with without_weights():
        model = nn.Linear(1024, 3000, bias=False)
    materialise(model, dtype=torch.float32, seed=0)
    assert torch.unique(model.weight[:, 0]).numel() > 2900


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_checkpoints_hold_is_cast_and_what_is_computed_is_not(dtype: torch.dtype) -> None:
    model = built()
    materialise(model, dtype=dtype, seed=0)
    assert model.first.weight.dtype == model.saved.dtype == dtype
    assert model.computed.dtype == torch.float32


def test_the_class_says_what_stays_in_float32() -> None:
    model = built()
    assert kept_in_float32(model, torch.float16) == {"loose"}
    assert kept_in_float32(model, torch.bfloat16) == frozenset()  # not a model of diffusers
    materialise(model, dtype=torch.float16, seed=0)
    assert model.loose.dtype == torch.float32
