"""Routing reaches every way a layer can call attention, stays within its model, and is undone exactly."""

import copy
import functools
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from paretune.attention import BackendRefused, BackendUnavailable, replacement, route


def helper(query, key, value, **options):
    return F.scaled_dot_product_attention(query, key, value, **options)


def through_two(query, key, value):
    return helper(query, key, value)


TABLE = {"plain": helper, "named": scaled_dot_product_attention, "other": torch.softmax}
decorated = functools.lru_cache(maxsize=None)(lambda: helper)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.attend(query, key, value).transpose(1, 2).flatten(-2)

    def attend(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)


class ByName(Layer):
    def attend(self, query, key, value):
        return scaled_dot_product_attention(query, key, value, is_causal=True)


class ByHelper(Layer):
    def attend(self, query, key, value):
        return through_two(query, key, value)


class ByTable(Layer):
    def attend(self, query, key, value):
        return TABLE["plain"](query, key, value) + TABLE["named"](query, key, value)


class BySuper(ByName):
    def attend(self, query, key, value):
        return 2 * super().attend(query, key, value)


class ByStatic(Layer):
    @staticmethod
    def inner(query, key, value):
        return F.scaled_dot_product_attention(query, key, value)

    def attend(self, query, key, value):
        return self.inner(query, key, value)


class ByAttribute(Layer):
    def __init__(self):
        super().__init__()
        self.function = functools.partial(F.scaled_dot_product_attention, scale=0.5)

    def attend(self, query, key, value):
        return self.function(query, key, value)


class ByClassAttribute(Layer):
    function = staticmethod(F.scaled_dot_product_attention)

    def attend(self, query, key, value):
        return self.function(query, key, value)


class ByString(Layer):
    def attend(self, query, key, value):
        return getattr(F, "scaled_dot_product_attention")(query, key, value)  # noqa: B009


class ByProcessor(Layer):
    class Processor:
        calls = 0

        def __call__(self, query, key, value):
            self.calls += 1
            return F.scaled_dot_product_attention(query, key, value)

    def __init__(self):
        super().__init__()
        self.processor = self.Processor()

    def attend(self, query, key, value):
        return self.processor(query, key, value)


class ByLocalImport(Layer):
    def attend(self, query, key, value):
        import torch.nn.functional as hidden

        return hidden.scaled_dot_product_attention(query, key, value)


def made_by_closure():
    inner = helper

    class ByClosure(Layer):
        def attend(self, query, key, value):
            return inner(query, key, value)

    return ByClosure()


class Encoder(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(16, 2, 32, batch_first=True)


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


KINDS = [
    Layer,
    ByName,
    ByHelper,
    ByTable,
    BySuper,
    ByStatic,
    ByAttribute,
    ByClassAttribute,
    ByString,
    ByProcessor,
    ByLocalImport,
    made_by_closure,
    Encoder,
    Multihead,
]


@pytest.fixture
def calls(monkeypatch):
    """Names of the backends that computed a call, in order."""
    seen, compute = [], replacement.compute

    def spy(entry, *rest):
        seen.append(entry.name)
        return compute(entry, *rest)

    monkeypatch.setattr(replacement, "compute", spy)
    return seen


def state_of(model):
    return [
        (module, type(module), dict(vars(module)), len(module._forward_hooks), len(module._forward_pre_hooks))
        for module in model.modules()
    ]


def same(model, before):
    return all(
        type(module) is cls
        and vars(module).keys() == held.keys()
        and all(vars(module)[name] is value or vars(module)[name] == value for name, value in held.items())
        and (len(module._forward_hooks), len(module._forward_pre_hooks)) == (hooks, pre_hooks)
        for module, cls, held, hooks, pre_hooks in before
    )


@pytest.mark.parametrize("make", KINDS)
@torch.no_grad()
def test_every_way_to_call_attention_is_reached_and_undone(make, calls):
    model, x = make().eval(), torch.randn(2, 5, 16)
    before, expected = state_of(model), model(x)
    with route(model, "_native_math") as routed:
        torch.testing.assert_close(model(x), expected, atol=2e-6, rtol=1e-5)
        assert calls and set(calls) == {"_native_math"}
        assert routed.layers and not routed.missed
    calls.clear()
    assert same(model, before)
    assert torch.equal(model(x), expected) and not calls
    assert F.scaled_dot_product_attention is scaled_dot_product_attention


@torch.no_grad()
def test_native_is_bit_equal(calls):
    for make in KINDS:
        model, x = make().eval(), torch.randn(2, 5, 16)
        expected = model(x)
        with route(model, "native"):
            assert torch.equal(model(x), expected)


@torch.no_grad()
def test_only_this_model_is_routed(calls):
    model, other, x = ByHelper(), ByHelper(), torch.randn(1, 3, 16)
    with route(model, "_native_math"):
        other(x)
        assert not calls and type(other) is ByHelper
        helper(*torch.randn(3, 1, 1, 2, 8))
        assert not calls
        assert isinstance(model, ByHelper) and type(model).__name__ == "ByHelper"


@torch.no_grad()
def test_routes_nest_and_unwind_after_exceptions(calls):
    model, x = nn.Sequential(Layer(), ByLocalImport()), torch.randn(1, 3, 16)
    with route(model, "_native_math"):
        with pytest.raises(KeyError), route(model, "_native_flash"):
            model(x)
            raise KeyError
        assert set(calls) == {"_native_flash"}
        calls.clear()
        model(x)
        assert set(calls) == {"_native_math"}
    calls.clear()
    model(x)
    assert not calls


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@torch.no_grad()
def test_an_error_inside_forward_leaves_nothing(error, calls):
    class Failing(ByLocalImport):
        def attend(self, query, key, value):
            super().attend(query, key, value)
            import torch.nn.functional as hidden

            assert hidden.scaled_dot_product_attention
            raise error

    model = Failing()
    with pytest.raises(error), route(model, "_native_math"):
        model(torch.randn(1, 3, 16))
    assert torch._C._len_torch_function_stack() == 0
    calls.clear()
    helper(*torch.randn(3, 1, 1, 2, 8))
    assert not calls


@pytest.mark.parametrize("make", [Layer, ByLocalImport])
def test_threads_see_their_own_models(make, calls):
    routed_model, plain, results = make(), make(), []
    started, go = threading.Event(), threading.Event()

    def other_thread():
        started.set()
        go.wait()
        with torch.no_grad():
            for _ in range(20):
                plain(torch.randn(1, 3, 16))
        results.append(len(calls))

    def let_the_other_run(*_):
        go.set()
        thread.join(5)

    thread = threading.Thread(target=other_thread)
    thread.start()
    started.wait()
    with torch.no_grad(), route(routed_model, "_native_math"):
        routed_model.register_forward_pre_hook(let_the_other_run)
        routed_model(torch.randn(1, 3, 16))
    assert results == [0] and calls == ["_native_math"]


@torch.no_grad()
def test_entry_points_other_than_forward_are_reached(calls):
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleList([ByHelper()])

        def decode(self, x):
            return self.inner[0](x)

    model = Coder()
    with route(model, "_native_math"):
        model.decode(torch.randn(1, 3, 16))
    assert calls == ["_native_math"]


@torch.no_grad()
def test_a_copy_of_a_routed_model_keeps_its_own_weights(calls):
    model, x = Layer(), torch.randn(1, 3, 16)
    with route(model, "_native_math"):
        twin = copy.deepcopy(model)
        assert twin.qkv.weight is not model.qkv.weight and list(twin.state_dict()) == list(model.state_dict())
        assert torch.equal(twin(x), model(x))


@torch.no_grad()
def test_a_processor_set_later_is_not_taken_back():
    model = ByProcessor()
    routed = route(model, "_native_math")
    later = ByProcessor.Processor()
    model.processor = later
    routed.reset()
    assert model.processor is later


@torch.no_grad()
def test_state_of_a_processor_is_shared_with_its_copy():
    model = ByProcessor()
    processor = model.processor
    with route(model, "_native_math"):
        model(torch.randn(1, 3, 16))
    assert model.processor is processor and processor.calls == 1


def test_reset_twice_is_harmless():
    model = Layer()
    routed = route(model, "_native_math")
    routed.reset()
    routed.reset()
    assert type(model) is Layer


def test_refusals_change_nothing():
    model = nn.Sequential(Layer())
    before = state_of(model)
    with pytest.raises(ValueError, match="Did you mean _native_flash"):
        route(model, "native_flash")
    with pytest.raises(BackendUnavailable, match=r"runs on cuda, not on cpu"):
        route(model, "flash")
    assert same(model, before)


def test_attention_computed_in_another_way_is_reported():
    class ExplicitAttention(nn.Module):
        def forward(self, x):
            return (x @ x.transpose(-1, -2)).softmax(-1) @ x

    model = nn.Sequential(Layer(), ExplicitAttention())
    with route(model, "_native_math") as routed:
        assert routed.layers == ("0",) and list(routed.missed) == ["1"]
    with pytest.raises(BackendRefused, match="ExplicitAttention"):
        route(nn.Sequential(ExplicitAttention()), "_native_math")


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(5, 8), (7, 8), (7, 8)], {}),
        ([(2, 5, 8), (2, 7, 8), (2, 7, 4)], {}),
        ([(2, 3, 5, 8), (1, 3, 7, 8), (1, 3, 7, 8)], {}),
        ([(2, 3, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)], {}),
        ([(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)], {"enable_gqa": True}),
        ([(2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)], {}),
        ([(3, 3, 5, 8), (3, 3, 5, 8), (3, 3, 5, 8)], {"attn_mask": (3, 5, 5)}),
        ([(5, 3, 5, 8), (5, 3, 5, 8), (5, 3, 5, 8)], {"attn_mask": (5, 5)}),
        ([(2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)], {"attn_mask": (2, 1, 5, 7)}),
        ([(2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)], {"is_causal": True, "scale": 0.2}),
    ],
)
def test_calls_mean_what_they_mean_to_pytorch(shapes, options, calls):
    query, key, value = (torch.randn(shape) for shape in shapes)
    if "attn_mask" in options:
        options = {**options, "attn_mask": torch.rand(options["attn_mask"]) > 0.3}
    expected = F.scaled_dot_product_attention(query, key, value, **options)

    class Caller(nn.Module):
        def forward(self):
            return F.scaled_dot_product_attention(query, key, value, **options)

    model = Caller()
    with route(model, "_native_math"):
        torch.testing.assert_close(model(), expected, atol=2e-6, rtol=1e-5)
    assert calls == ["_native_math"]


def test_dropout_is_refused():
    class Dropping(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

    model = Dropping()
    with pytest.raises(BackendRefused, match="eval"), route(model, "_native_math"):
        model(torch.randn(1, 2, 3, 4))


def imports_inside(query, key, value):
    from torch.nn import functional as hidden

    return hidden.scaled_dot_product_attention(query, key, value)


num_calls = 0


class ByBlindHelper(Layer):
    def attend(self, query, key, value):
        return imports_inside(query, key, value)


class WritesGlobals(Layer):
    def attend(self, query, key, value):
        global num_calls
        num_calls += 1
        return helper(query, key, value)


class BlindProcessor(ByProcessor):
    class Processor:
        def __call__(self, query, key, value):
            return imports_inside(query, key, value)


@pytest.mark.parametrize("make", [ByBlindHelper, WritesGlobals, BlindProcessor])
@torch.no_grad()
def test_code_that_cannot_be_followed_is_caught_as_it_runs(make, calls):
    model, x = make(), torch.randn(1, 3, 16)
    before, counted = state_of(model), num_calls
    with route(model, "_native_math") as routed:
        model(x)
        assert calls == ["_native_math"] and routed.layers == ("",)
    assert same(model, before)
    assert num_calls == counted + (make is WritesGlobals)


@torch.no_grad()
def test_routes_may_end_in_any_order(calls):
    model, x = nn.Sequential(Layer(), ByProcessor(), ByLocalImport()), torch.randn(1, 3, 16)
    before = state_of(model)
    first, second = route(model, "_native_math"), route(model, "_native_flash")
    first.reset()
    model(x)
    assert set(calls) == {"_native_flash"}
    second.reset()
    assert same(model, before)
    calls.clear()
    model(x)
    assert not calls


class Opaque:
    """A callable that lives in a global and cannot be followed."""

    def __call__(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value)


opaque = Opaque()


class ByOpaque(Layer):
    def attend(self, query, key, value):
        return opaque(query, key, value)


@torch.no_grad()
def test_attention_that_no_code_mentions_is_caught_and_noted(calls):
    model, plain, x = (
        nn.Sequential(ByOpaque(), nn.Linear(16, 16)),
        nn.Sequential(nn.Linear(16, 16)),
        torch.randn(1, 3, 16),
    )
    before = state_of(model)
    with route(model, "_native_math") as routed:
        assert routed.layers == ()
        model(x)
        assert calls == ["_native_math"] and routed.layers == ("0",)
    assert same(model, before)
    with route(plain, "_native_math") as routed:
        plain(x)
        assert routed.layers == ()
