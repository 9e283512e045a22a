"""torch.compile: blocks share their code, hooks stay outside of it, counts are reported, undo is exact."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from paretune.harness import outputs
from paretune.harness.fidelity import compare
from paretune.harness.workloads import workload_named
from paretune.strategies import Applied, Compile, InfeasiblePlan, Plan, Unsupported, explain
from paretune.strategies.mechanics.compiled import is_inside

EAGER = "compile(backend=eager)"
KINDS = {"regional": 2, "whole": 1}
"""Graphs of FLUX's transformer: one a kind of block, or one in all."""


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 16), nn.Linear(16, width)
        self.inside: list[bool] = []

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_blocks_are_compiled_once_and_undo_is_exact():
    model, x = Model().eval(), torch.randn(2, 8)
    with torch.no_grad():
        plain = model(x)
        with Applied(EAGER, model, "cpu") as applied:
            torch.testing.assert_close(model(x), plain)
            facts = dict(next(iter(applied.facts.values())))
            assert facts["num_regions"] == 3 and facts["num_graphs"] == 1
            assert facts["num_graph_breaks"] == 0 and facts["compile_s"] > 0
            assert type(model.blocks[0]) is type(model.blocks[1]) and "forward" not in vars(model.blocks[0])
        assert torch.equal(model(x), plain)
    assert type(model.blocks[0]) is Block
    assert dict(next(iter(applied.facts.values()))) == facts


def test_graph_breaks_are_counted_and_an_error_with_fullgraph():
    class Breaking(Block):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    model = Model()
    model.blocks = nn.ModuleList([Breaking() for _ in range(2)])
    with torch.no_grad(), Applied(EAGER, model, "cpu") as applied:
        model(torch.randn(2, 8))
        facts = dict(next(iter(applied.facts.values())))
        assert facts["num_graph_breaks"] >= 1 and facts["graph_break_reasons"]
    torch._dynamo.reset()
    with (
        torch.no_grad(),
        Applied("compile(backend=eager,fullgraph=true)", model, "cpu"),
        pytest.raises((RuntimeError, torch._dynamo.exc.TorchDynamoException)),
    ):
        model(torch.randn(2, 8))


@pytest.mark.parametrize(
    "other",
    ["layerwise_casting", "group_offload", "group_offload(num_blocks_per_group=2)", "model_offload", "channels_last"],
)
@pytest.mark.parametrize("order", ["compile first", "compile last"])
def test_with_other_strategies_nothing_breaks_the_graph(other, order):
    model, x = Model().eval(), torch.randn(2, 8)
    if other == "channels_last":
        model.first = nn.Sequential(nn.Unflatten(1, (8, 1, 1)), nn.Conv2d(8, 8, 1), nn.Flatten())
    plan = f"{EAGER} + {other}" if order == "compile first" else f"{other} + {EAGER}"
    with torch.no_grad():
        with Applied(other, model, "cpu"):
            alone = model(x)
        with Applied(plan, model, "cpu") as applied:
            for _ in range(2):
                torch.testing.assert_close(model(x), alone)
            facts = next(facts for name, facts in applied.facts.items() if "compile" in name)
            assert facts["num_graph_breaks"] == 0 and facts["num_graphs"] == 1
            if other == "layerwise_casting":
                assert model.blocks[0].up.weight.dtype is torch.float8_e4m3fn
    assert type(model.blocks[0]) is Block and not model.blocks[0]._forward_pre_hooks


@pytest.mark.parametrize(
    "plan",
    [
        "model:compile + model:group_offload(level=leaf_level)",
        "compile + sequential_offload",
        "compile(scope=whole) + group_offload",
        "compile + compile(scope=whole)",
    ],
)
def test_weights_that_would_move_inside_compiled_code_are_refused(plan):
    assert explain(Plan.parse(plan).settings)
    with pytest.raises(InfeasiblePlan, match="compile"):
        Applied(plan, Model(), "cpu")


def test_other_components_may_move_as_they_like():
    assert not explain(Plan.parse("transformer:compile + text_encoder:group_offload(level=leaf_level)").settings)


def test_the_whole_model_and_the_parts_an_autoencoder_is_called_through():
    model, x = Model().eval(), torch.randn(2, 8)
    with torch.no_grad(), Applied("compile(scope=whole,backend=eager)", model, "cpu") as applied:
        model(x)
        assert next(iter(applied.facts.values()))["num_regions"] == 1

    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = Block()

        def decode(self, z):
            return self.decoder(z)

    codec = Codec().eval()
    with torch.no_grad(), Applied("compile(scope=whole,backend=eager)", codec, "cpu") as applied:
        codec.decode(x)
        assert next(iter(applied.facts.values()))["num_graphs"] == 1


@pytest.mark.parametrize("plan", ["compile", "compile(scope=whole)"])
def test_nothing_to_compile_is_refused(plan):
    class Codec(nn.Module):
        def decode(self, z):
            return z

    with pytest.raises(Unsupported, match="Codec"):
        Applied(plan, Codec(), "cpu")


def test_an_exception_inside_leaves_the_compiled_model_working():
    model = Model().eval()
    with torch.no_grad(), Applied(EAGER, model, "cpu"):
        with pytest.raises((RuntimeError, torch._dynamo.exc.TorchDynamoException)):
            model.blocks[0](torch.randn(2, 7))
        assert model(torch.randn(2, 8)).shape == (2, 8)


def test_a_predicting_device_is_told_what_runs_compiled():
    model, seen = Model(), []
    model.blocks[0].up.register_forward_hook(lambda *_: seen.append(is_inside()))
    model.first.register_forward_hook(lambda *_: seen.append(is_inside()))
    with ExitStack() as undo:
        assert Compile().apply(model, torch.device("meta"), undo.callback) == {"num_regions": 3, "predicted": True}
        model(torch.randn(2, 8))
        assert seen == [False, True] and not is_inside()
        with pytest.raises(RuntimeError):
            model.blocks[0](torch.randn(2, 7))
        assert not is_inside()


def test_the_real_compiler_makes_the_same_answer():
    model, x = Model().eval(), torch.randn(2, 8)
    with torch.no_grad():
        plain = model(x)
        with Applied("compile", model, "cpu") as applied:
            torch.testing.assert_close(model(x), plain, rtol=1e-4, atol=1e-5)
            assert next(iter(applied.facts.values()))["num_graphs"] == 1


def test_recompilations_are_counted():
    model = Model().eval()
    with torch.no_grad(), Applied("compile(backend=eager,dynamic=false)", model, "cpu") as applied:
        facts = next(iter(applied.facts.values()))
        model(torch.randn(2, 8))
        assert facts["num_recompiles"] == 0
        model(torch.randn(3, 8))
        assert facts["num_recompiles"] == 1


def test_each_plan_compiles_for_itself_and_counts_nothing_of_others():
    class Breaking(Block):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    broken, model, x = Model().eval(), Model().eval(), torch.randn(2, 8)
    broken.blocks = nn.ModuleList([Breaking() for _ in range(2)])
    with torch.no_grad():
        with Applied(EAGER, broken, "cpu"):
            broken(x)
        for _ in range(2):
            with Applied(EAGER, model, "cpu") as applied:
                facts = next(iter(applied.facts.values()))
                model(x)
                assert facts["num_graphs"] == 1 and facts["compile_s"] > 0
                assert facts["num_graph_breaks"] == 0 and facts["graph_break_reasons"] == []


def test_a_class_that_graphs_may_call_is_compiled_whole():
    @torch._dynamo.allow_in_graph
    class Allowed(Block):
        def forward(self, x):
            return super().forward(x)

    model, x = Model().eval(), torch.randn(2, 8)
    model.blocks = nn.ModuleList([Allowed() for _ in range(3)])
    with torch.no_grad():
        plain = model.eval()(x)
        with Applied("compile(backend=eager,fullgraph=true)", model, "cpu") as applied:
            torch.testing.assert_close(model(x), plain)
            facts = next(iter(applied.facts.values()))
            assert facts["num_graphs"] == 1 and facts["num_graph_breaks"] == 0


@pytest.mark.parametrize(("scope", "other"), [("regional", "layerwise_casting"), ("whole", "model_offload")])
def test_blocks_of_a_real_transformer_are_compiled_without_breaks(scope, other):
    workload = workload_named({"name": "flux-transformer-tiny"})
    model, cpu = workload.load(), torch.device("cpu")
    plan = f"compile(scope={scope},backend=eager) + {other}"
    with torch.no_grad():
        with Applied(other, model, cpu):
            alone = outputs.flatten(workload.run(model, device=cpu))
        with Applied(plan, model, cpu) as applied:
            compiled = outputs.flatten(workload.run(model, device=cpu))
            facts = next(facts for name, facts in applied.facts.items() if "compile" in name)
            assert facts["num_graph_breaks"] == 0 and facts["num_graphs"] - facts["num_recompiles"] == KINDS[scope]
    assert compare(compiled, alone)["relative_l2"] < 1e-4
