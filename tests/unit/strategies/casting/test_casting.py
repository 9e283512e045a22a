"""Layerwise casting: small at rest, wide while read, restored after anything, honest about what it did."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn

from paretune.strategies import Applied, InfeasiblePlan, LayerwiseCasting, PlanError, Unsupported

FP8 = torch.float8_e4m3fn


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(width, width, 1)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.time_embed = nn.Linear(width, width)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, x):
        x = self.conv(x.mT).mT + self.time_embed(x)
        for block in self.blocks:
            x = block(x)
        return x


def rounded(model: nn.Module, names: tuple[str, ...], dtype: torch.dtype = FP8) -> nn.Module:
    """The same model with the named layers' values rounded beforehand: what casting must compute, to the bit."""
    twin = copy.deepcopy(model)
    for name, layer in twin.named_modules():
        if name in names:
            for parameter in layer.parameters(recurse=False):
                parameter.data = parameter.data.to(dtype).to(parameter.dtype)
    return twin


CAST = ("conv", "blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down")


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_computes_what_the_rounded_weights_compute(storage, dtype):
    model = Model().to(dtype)
    x = torch.randn(2, 5, 16, dtype=dtype)
    with torch.no_grad():
        plain, expected = model(x), rounded(model, CAST, getattr(torch, storage))(x)
        with Applied([LayerwiseCasting(storage_dtype=storage)], model, "cpu"):
            assert model.blocks[0].up.weight.dtype is getattr(torch, storage)
            assert model.blocks[0].norm.weight.dtype is model.time_embed.weight.dtype is dtype
            out = model(x)
            assert out.dtype is dtype and torch.equal(out, expected)
        assert torch.equal(model(x), plain)


def test_the_dtype_told_is_the_one_computed_in():
    model = Model().bfloat16()
    with Applied("layerwise_casting(compute_dtype=float32)", model, "cpu"):
        assert model.dtype is torch.float32
    with Applied("layerwise_casting", model, "cpu"):
        assert next(model.parameters()).dtype is FP8
        assert model.dtype is torch.bfloat16
    assert model.dtype is torch.bfloat16 and type(model) is Model


def test_weights_in_8_bits_need_a_stated_compute_dtype():
    model = nn.Sequential(nn.Linear(4, 4).to(FP8))
    with pytest.raises(Unsupported, match=r"0 is stored in 8 bits already.*compute_dtype"):
        Applied("layerwise_casting", model, "cpu")
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    with Applied("layerwise_casting(compute_dtype=bfloat16)", model, "cpu"), torch.no_grad():
        assert model(x).dtype is torch.bfloat16


def test_an_exception_inside_a_layer_leaves_the_storage_dtype():
    model = Model()
    with Applied("layerwise_casting", model, "cpu"):
        stored = model.blocks[0].up.weight.data_ptr()
        with pytest.raises(RuntimeError):
            model.blocks[0].up(torch.randn(3, 7))
        assert model.blocks[0].up.weight.dtype is FP8
        assert model.blocks[0].up.weight.data_ptr() == stored
        assert model(torch.randn(1, 5, 16)).shape == (1, 5, 16)


def test_an_earlier_hook_that_raises_does_not_unbalance_ours():
    model = Model()

    def fail(module, args):
        raise MemoryError

    with Applied("layerwise_casting", model, "cpu"):
        handle = model.conv.register_forward_pre_hook(fail, prepend=True)
        with pytest.raises(MemoryError):
            model(torch.randn(1, 5, 16))
        handle.remove()
        assert model.conv.weight.dtype is FP8
        assert model(torch.randn(1, 5, 16)).dtype is torch.float32


@pytest.mark.parametrize(
    "change", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to(torch.float64), nn.Module.double]
)
@pytest.mark.parametrize("path", ["", "blocks", "blocks.0.up"])
def test_dtype_changes_are_refused_and_change_nothing(change, path):
    model = Model()
    with Applied("layerwise_casting", model, "cpu"):
        before = {name: p.dtype for name, p in model.named_parameters()}
        with pytest.raises(RuntimeError, match="cannot change dtype"):
            change(model.get_submodule(path))
        assert {name: p.dtype for name, p in model.named_parameters()} == before
        assert model.to("cpu") is model


def test_twice_is_refused_in_one_plan_and_in_two():
    model = Model()
    with pytest.raises(InfeasiblePlan, match="one storage dtype"):
        Applied("layerwise_casting + layerwise_casting(storage_dtype=float8_e5m2)", model, "cpu")
    with Applied("layerwise_casting", model, "cpu"), pytest.raises(Unsupported, match="cast already"):
        Applied("layerwise_casting(compute_dtype=float32)", model, "cpu")


class Declaring(Model):
    _keep_in_fp32_modules = ("conv",)
    _skip_layerwise_casting_patterns = "blocks.1.up"


def test_exclusions_of_all_sources_add_up():
    plan = 'layerwise_casting(skip_modules_pattern="down$")'
    with Applied(plan, Declaring(), "cpu") as applied:
        dtypes = {
            n: m.weight.dtype for n, m in applied.parts.root.named_modules() if isinstance(m, (nn.Linear, nn.Conv1d))
        }
        (facts,) = applied.facts.values()
    assert {name for name, dtype in dtypes.items() if dtype is FP8} == {"blocks.0.up"}
    assert facts["num_layers_cast"] == 1 and facts["num_layers_skipped"] == 5


@pytest.mark.parametrize("value", ["up", ("up",), ["up", "never"], None])
def test_a_string_is_one_pattern_not_its_letters(value, caplog):
    with caplog.at_level(logging.WARNING):
        applied = Applied([LayerwiseCasting(skip_modules_pattern=value)], Model(), "cpu")
    (facts,) = applied.facts.values()
    assert facts["num_layers_cast"] == (5 if value is None else 3)
    told = ["never"] if value == ["up", "never"] else []
    assert facts["unmatched_exclusions"] == told
    assert len([r for r in caplog.records if "matches no module" in r.message]) == len(told)


@pytest.mark.parametrize("classes", ["Block", ("Block",), [Block]])
def test_classes_are_excluded_with_all_they_contain(classes):
    with Applied([LayerwiseCasting(skip_modules_classes=classes)], Model(), "cpu") as applied:
        (facts,) = applied.facts.values()
        assert facts["num_layers_cast"] == 1 and facts["unmatched_exclusions"] == []


@pytest.mark.parametrize("value", ["(", ("ok", "["), 7, (7,)])
def test_a_pattern_that_is_none_is_refused(value):
    with pytest.raises(PlanError, match="skip_modules_pattern"):
        LayerwiseCasting(skip_modules_pattern=value)


def test_nothing_left_to_cast_is_refused():
    with pytest.raises(Unsupported, match="no layer to cast"):
        Applied("layerwise_casting(skip_modules_pattern=.*)", Model(), "cpu")
    with pytest.raises(Unsupported, match="LayerNorm"):
        Applied("layerwise_casting", nn.LayerNorm(4), "cpu")


def test_values_beyond_the_range_are_named_before_anything_changes():
    model = Model()
    model.blocks[1].up.weight.data[0, :3] = 1000.0
    with pytest.raises(Unsupported, match=r"3 of 512 values of blocks\.1\.up\.weight lie beyond 448.*float8_e5m2"):
        Applied("layerwise_casting", model, "cpu")
    assert model.conv.weight.dtype is torch.float32 and type(model) is Model
    with Applied("layerwise_casting(storage_dtype=float8_e5m2)", model, "cpu"):
        assert torch.isfinite(model(torch.randn(1, 5, 16))).all()


class Adapted(nn.Module):
    """An adapter as PEFT builds them: wraps a layer, and rounds its input to the adapter's weight dtype."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, base.out_features, bias=False)})

    def forward(self, x):
        down = self.lora_A["default"]
        return self.base_layer(x) + self.lora_B["default"](down(x.to(down.weight.dtype)))


def test_adapters_keep_their_precision_and_their_base_does_not():
    torch.manual_seed(1)
    model = nn.Sequential(Adapted(nn.Linear(8, 8)))
    x = torch.randn(3, 8)
    with torch.no_grad():
        expected = rounded(model, ("0.base_layer",))(x)
        with Applied("layerwise_casting", model, "cpu") as applied:
            assert torch.equal(model(x), expected)
            assert model[0].base_layer.weight.dtype is FP8
            assert next(iter(applied.facts.values()))["skipped_because"]["adapter"] == 2


class AsksForDtype(nn.Module):
    """A feed-forward that rounds its input to the dtype of a weight that belongs to a child."""

    def __init__(self) -> None:
        super().__init__()
        self.wi, self.wo = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        hidden = torch.relu(self.wi(x))
        if hidden.dtype != self.wo.weight.dtype:
            hidden = hidden.to(self.wo.weight.dtype)
        return self.wo(hidden)


class AsksItsParameters(AsksForDtype):
    def forward(self, x):
        return self.wo(self.wi(x.to(next(self.wi.parameters()).dtype)))


class UsesChildsWeight(AsksForDtype):
    def _project(self, hidden):
        return nn.functional.linear(hidden, self.wo.weight, self.wo.bias)

    def forward(self, x):
        return self._project(self.wi(x))


@pytest.mark.parametrize("cls", [AsksForDtype, AsksItsParameters, UsesChildsWeight])
def test_activations_are_never_rounded_by_a_module_that_looks_at_weights(cls):
    torch.manual_seed(2)
    model, x = nn.Sequential(cls(), cls()), torch.randn(3, 8)
    with torch.no_grad():
        expected = rounded(model, ("0.wi", "0.wo", "1.wi", "1.wo"))(x)
        with Applied("layerwise_casting", model, "cpu") as applied:
            assert torch.equal(model(x), expected)
            assert next(iter(applied.facts.values()))["num_readers"] == 2
            assert {p.dtype for p in model.parameters()} == {FP8}


def test_attention_of_torch_is_cast():
    torch.manual_seed(3)
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 4, 8)
    with torch.no_grad():
        expected = rounded(model, ("out_proj",))(x, x, x)[0]
        with Applied("layerwise_casting", model, "cpu"):
            torch.testing.assert_close(model(x, x, x)[0], expected)


def test_a_weight_shared_with_a_layer_that_is_not_cast_is_left_alone():
    model = nn.ModuleDict({"tokens": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False), "other": nn.Linear(4, 4)})
    model["head"].weight = model["tokens"].weight
    with Applied("layerwise_casting(default_skips=false)", model, "cpu") as applied:
        assert model["tokens"].weight.dtype is torch.float32 and model["head"].weight is model["tokens"].weight
        assert next(iter(applied.facts.values()))["skipped_because"]["tied"] == 1


def test_a_weight_shared_by_two_cast_layers_is_cast_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected, plain = rounded(model, ("0", "1"))(x), model(x)
        with Applied("layerwise_casting", model, "cpu"):
            assert torch.equal(model(x), expected) and model[1].weight is model[0].weight
        assert torch.equal(model(x), plain)


def test_a_copy_of_a_cast_model_is_a_model_of_its_own():
    model, x = Model(), torch.randn(1, 5, 16)
    with Applied("layerwise_casting", model, "cpu"), torch.no_grad():
        twin, out = copy.deepcopy(model), model(x)
        assert torch.equal(twin(x), out)
        for parameter in twin.parameters():
            parameter.data = torch.zeros_like(parameter.data)
        assert torch.equal(model(x), out) and not twin(x).any()


def test_undo_gives_back_the_very_tensors():
    model = Model()
    pointers = {name: p.data_ptr() for name, p in model.named_parameters()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    with Applied("layerwise_casting", model, "cpu"):
        model(torch.randn(1, 5, 16))
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == pointers
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
    assert all(type(m).__mro__[0].__dict__.get("paretune_storage_dtype") is None for m in model.modules())


def test_works_inside_inference_mode_and_with_autograd_recording():
    model, x = Model(), torch.randn(1, 5, 16)
    with Applied("layerwise_casting", model, "cpu"):
        with torch.inference_mode():
            out = model(x)
        torch.testing.assert_close(model(x).detach(), out)
        assert model.conv.weight.dtype is FP8


def test_classes_stay_equal_where_they_were_equal():
    model = Model()
    with Applied("layerwise_casting", model, "cpu"):
        assert type(model.blocks[0]) is type(model.blocks[1])
        assert isinstance(model.blocks[0], Block) and isinstance(model.conv, nn.Conv1d)


@pytest.mark.parametrize("placing", ["", " + group_offload(level=leaf_level)", " + model_offload"])
def test_weights_changed_while_cast_keep_the_change(placing):
    model = Model()
    untouched = model.blocks[0].up.weight.detach().clone()
    with Applied(f"layerwise_casting{placing}", model, "cpu"):
        stored = model.blocks[0].down.weight
        changed = (stored.detach().float() + 1).to(FP8)
        with torch.no_grad():
            stored.copy_(changed)
        x = torch.randn(1, 5, 16)
        out = model(x).detach()
        with pytest.raises(Exception, match=r"(?i)float8|not implemented|promotion"):
            stored.data += 1
    assert torch.equal(model.blocks[0].down.weight, changed.float())
    assert torch.equal(model.blocks[0].up.weight, untouched)
    assert torch.isfinite(out).all()


def test_real_adapters_of_peft_are_handled():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["up", "down"], init_lora_weights=False)
    model = peft.inject_adapter_in_model(config, Model()).eval()
    bases = tuple(f"blocks.{i}.{name}.base_layer" for i in range(2) for name in ("up", "down"))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain, expected = model(x), rounded(model, ("conv", *bases))(x)
        with Applied("layerwise_casting", model, "cpu") as applied:
            assert torch.equal(model(x), expected)
            assert model.blocks[0].up.lora_A["default"].weight.dtype is torch.float32
            assert next(iter(applied.facts.values()))["skipped_because"]["adapter"] == 8
        with Applied("quantize", model, "cpu") as applied:
            assert float((model(x) - plain).norm() / plain.norm()) < 0.05
            assert next(iter(applied.facts.values()))["num_layers_quantized"] == 5
        assert torch.equal(model(x), plain)
