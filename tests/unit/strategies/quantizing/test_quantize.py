"""Quantisation: packed bytes as told, errors within the format's step, layers stay themselves, undo is exact."""

from __future__ import annotations

import copy
import importlib.util
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from support.toys import MODULES, Case
from torch import nn
from torch.nn import functional

from paretune.strategies import Applied, InfeasiblePlan, PlanError, Quantize, Unsupported
from paretune.strategies.mechanics import packing_formats
from paretune.strategies.mechanics.packing_formats import FORMATS, dequantize

REAL = [name for name, chosen in FORMATS.items() if chosen.pack is not None]
STEPS = {"int8_weight_only": 1 / 127, "bnb_int8": 1 / 127, "gguf_q8_0": 1 / 127, "float8_weight_only": 1 / 16}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.odd, self.last = nn.Linear(256, 128), nn.Linear(128, 9), nn.Linear(9, 4)

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def forward(self, x):
        return self.last(torch.relu(self.odd(torch.relu(self.first(x)))))


@pytest.mark.parametrize("method", REAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packing_loses_at_most_a_step(method, dtype):
    weight = torch.randn(6, 256, generator=torch.Generator().manual_seed(0)).to(dtype)
    packed = FORMATS[method].pack(weight)
    for made, sized in zip(packed, FORMATS[method].empty(weight)):
        assert made.shape == sized.shape and made.dtype == sized.dtype
    unpacked = dequantize(*packed, method, dtype)
    assert unpacked.shape == weight.shape and unpacked.dtype is dtype
    step = STEPS.get(method, 1 / 5) * (1.01 if dtype is torch.float32 else 1.5)
    assert float((unpacked - weight).abs().max() / weight.abs().max()) < step


@pytest.mark.parametrize("method", REAL)
def test_zeros_and_single_outliers_survive(method):
    weight = torch.zeros(2, 256)
    weight[1, 3] = -5.0
    unpacked = dequantize(*FORMATS[method].pack(weight), method, torch.float32)
    assert torch.isfinite(unpacked).all() and not unpacked[0].any()
    assert float(unpacked[1, 3]) == pytest.approx(-5.0, rel=0.05)


@pytest.mark.parametrize("method", ["gguf_q8_0", "gguf_q4_0"])
def test_ggml_formats_agree_with_the_reference_package(method):
    gguf = pytest.importorskip("gguf")
    weight = torch.randn(4, 256, generator=torch.Generator().manual_seed(1))
    kind = gguf.GGMLQuantizationType[method.removeprefix("gguf_").upper()]
    theirs = gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind)
    ours = dequantize(*FORMATS[method].pack(weight), method, torch.float32).numpy()
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_sizes_are_those_of_the_formats():
    weight = torch.empty(16, 1024, dtype=torch.bfloat16)
    bits = {
        n: sum(t.numel() * t.element_size() for t in f.empty(weight)) * 8 / weight.numel() for n, f in FORMATS.items()
    }
    assert bits["gguf_q4_0"] == bits["gguf_q4_k"] == bits["nf4"] == 4.5
    assert bits["gguf_q8_0"] == 8.5 and bits["int4_weight_only"] == 4.25
    assert bits["int8_weight_only"] == pytest.approx(8 + 16 / 1024)


@pytest.mark.parametrize("method", REAL)
def test_a_layer_computes_with_its_unpacked_weight_and_stays_itself(method):
    model = Model()
    calls = []
    model.first.register_forward_hook(lambda *_: calls.append(1))
    x, before, layer = torch.randn(3, 256), dict(model.named_parameters()), model.first
    with torch.no_grad():
        plain = model(x)
        with Applied([Quantize(method=method)], model, "cpu") as applied:
            assert model.first is layer and isinstance(layer, nn.Linear) and len(calls) == 1
            assert torch.equal(layer(x), functional.linear(x, layer.weight, layer.bias))
            facts = next(iter(applied.facts.values()))
            assert facts["packed_bytes"] < facts["wide_bytes"] * 0.6
            assert model.dtype is torch.float32
            assert float((model(x) - plain).norm() / plain.norm()) < 0.3
        assert torch.equal(model(x), plain)
    after = dict(model.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)
    assert "paretune_dtype" not in vars(layer) and type(layer) is nn.Linear


def test_rows_that_do_not_divide_stay_wide_and_are_counted():
    with Applied("quantize(method=nf4)", Model(), "cpu") as applied:
        facts = next(iter(applied.facts.values()))
    assert facts["num_layers_quantized"] == 2 and facts["skipped_because"]["not_divisible"] == 1


class Declares(Model):
    _keep_in_fp32_modules = ("last",)


def test_exclusions_of_model_and_caller_add_up():
    model = Declares()
    with Applied([Quantize(skip_modules_pattern=["odd", "never"])], model, "cpu") as applied:
        assert {name for name, m in model.named_modules() if hasattr(m, "paretune_format")} == {"first"}
        assert next(iter(applied.facts.values()))["unmatched_exclusions"] == ["never"]


@pytest.mark.parametrize("text", ['skip_modules_pattern="("', "engine=other", "method=int3"])
def test_senseless_settings_are_refused(text):
    with pytest.raises(PlanError, match=text.partition("=")[0]):
        Applied(f"quantize({text})", Model(), "cpu")


def test_missing_packages_cards_and_layers_are_named(monkeypatch):
    real = __import__("importlib").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "bitsandbytes" else real(name, *a))
    with pytest.raises(Unsupported, match="package 'bitsandbytes' is not installed"):
        Applied("quantize(method=nf4,engine=bitsandbytes)", Model(), "cpu")
    with pytest.raises(Unsupported, match="gguf_q4_k"):
        Applied("quantize(method=gguf_q4_k)", Model(), "cpu")
    with pytest.raises(Unsupported, match="LayerNorm has no linear layer"):
        Applied("quantize", nn.LayerNorm(4), "cpu")
    with pytest.raises(InfeasiblePlan, match="torchao offers"):
        Applied("quantize(method=nf4,engine=torchao)", Model(), "cpu")


@pytest.mark.parametrize("other", ["layerwise_casting", "quantize(method=nf4)"])
def test_a_weight_is_stored_in_one_way(other):
    with pytest.raises(InfeasiblePlan):
        Applied(f"quantize + {other}", Model(), "cpu")


@pytest.mark.parametrize("change", [nn.Module.half, lambda m: m.to(torch.float64)])
def test_dtype_changes_are_refused(change):
    model = Model()
    with Applied("quantize(method=float8_weight_only)", model, "cpu"), pytest.raises(RuntimeError, match="dtype"):
        change(model)


WITH_LINEAR = [case for case in MODULES if any(type(m) is nn.Linear for m in case.model().modules())]


@pytest.mark.parametrize("case", WITH_LINEAR, ids=lambda case: case.name)
@pytest.mark.parametrize("placing", ["group_offload(level=leaf_level)", "group_offload", "model_offload"])
def test_packed_weights_are_placed_like_others(case: Case, placing: str):
    model, alone = case.model(), case.model()
    with torch.no_grad(), Applied("quantize", alone, "cpu"), Applied(f"{placing} + quantize", model, "cpu"):
        assert torch.equal(model(case.input()), alone(case.input()))
        assert torch.equal(model(case.input()), alone(case.input()))


def test_copies_are_models_of_their_own():
    model, x = Model(), torch.randn(1, 256)
    with Applied("quantize", model, "cpu"), torch.no_grad():
        twin, out = copy.deepcopy(model), model(x)
        twin.first.weight_codes.data.zero_()
        assert torch.equal(model(x), out) and not torch.equal(twin(x), out)


def test_without_data_only_sizes_are_made():
    model = Model().to("meta")
    with ExitStack() as undo:
        facts = Quantize(method="gguf_q4_k").apply(model, torch.device("meta"), undo.callback)
        assert model(torch.empty(2, 256, device="meta")).shape == (2, 4)
        assert facts["num_layers_quantized"] == 2 and model.first.weight.shape == (128, 256)
    assert type(model.first) is nn.Linear


@pytest.mark.parametrize("method", ["int8_weight_only", "float8_weight_only"])
def test_torchao_packs_really_and_gives_back(method):
    pytest.importorskip("torchao")
    model, x = Model().bfloat16(), torch.randn(3, 256, dtype=torch.bfloat16)
    with torch.no_grad():
        plain, weight = model(x), model.first.weight
        with Applied(f"quantize(method={method})", model, "cpu"):
            ours = model.first(x)
        with Applied(f"quantize(method={method},engine=torchao)", model, "cpu"):
            assert type(model.first.weight).__module__.startswith("torchao")
            torch.testing.assert_close(model.first(x), ours, rtol=0.05, atol=0.05)
        assert model.first.weight is weight and torch.equal(model(x), plain)


@pytest.mark.parametrize("method", ["nf4", "bnb_int8"])
def test_bitsandbytes_agrees_with_our_format_or_is_named(method):
    model, x = Model().bfloat16(), torch.randn(3, 256, dtype=torch.bfloat16)
    plan, weight = f"quantize(method={method},engine=bitsandbytes)", model.first.weight
    if importlib.util.find_spec("bitsandbytes") is None:
        with pytest.raises(Unsupported, match="bitsandbytes"):
            Applied(plan, model, "cpu")
        return
    with torch.no_grad():
        with Applied(f"quantize(method={method})", model, "cpu"):
            ours = model.first(x)
        with Applied(plan, model, "cpu"):
            assert model.first.weight.element_size() == 1
            torch.testing.assert_close(model.first(x), ours, rtol=0.05, atol=0.05)
    assert model.first.weight is weight and "paretune_state" not in vars(model.first)


@pytest.mark.parametrize(
    "write",
    [
        lambda w: w.add_(1),
        lambda w: w.data.add_(1),
        lambda w: w.__iadd__(1),
        lambda w: w.data.__setitem__(0, 1.0),
        lambda w: w.detach().copy_(torch.zeros(128, 256)),
        lambda w: setattr(w, "data", torch.zeros(128, 256)),
    ],
)
def test_writing_to_a_packed_weight_is_an_error_not_a_loss(write):
    model = Model()
    with Applied("quantize", model, "cpu"), torch.no_grad():
        with pytest.raises(RuntimeError, match="would be lost"):
            write(model.first.weight)
        assert type(model.first.weight * 2) is torch.Tensor
        assert type(functional.linear(torch.randn(1, 256), model.first.weight)) is torch.Tensor


def test_adapters_of_peft_cannot_merge_into_packed_weights():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["first"], init_lora_weights=False)
    model = peft.inject_adapter_in_model(config, Model()).eval()
    with Applied("quantize", model, "cpu"), pytest.raises(RuntimeError, match="would be lost"):
        model.first.merge()


@pytest.mark.parametrize("method", REAL)
def test_unpacking_in_pieces_is_unpacking_at_once(method, monkeypatch):
    weight = torch.randn(7, 256, generator=torch.Generator().manual_seed(2))
    packed = FORMATS[method].pack(weight)
    whole = dequantize(*packed, method, torch.float32)
    monkeypatch.setattr(packing_formats, "_VALUES_AT_ONCE", 600)
    assert torch.equal(dequantize(*packed, method, torch.float32), whole)
