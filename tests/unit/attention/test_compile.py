"""Routed models compile as one graph, and changing the backend costs one recompilation, never more."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from paretune.attention import attend, route

BACKENDS = ("native", "_native_math", "_native_flash", "flex")


class Processor:
    def __call__(self, query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.processor = Processor()

    def forward(self, x, mask=None):
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return x + self.processor(query, key, value, mask).transpose(1, 2).flatten(-2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x, mask=None):
        for block in self.blocks:
            x = block(x, mask)
        return x


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def graphs():
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_one_graph_and_one_recompilation_for_a_change(backend):
    model, x = Model().eval(), torch.randn(2, 5, 16)
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    compiled(x)
    before = graphs()
    with route(model, backend):
        torch.testing.assert_close(compiled(x), expected, atol=2e-6, rtol=1e-5)
        assert graphs() == before + 1, "a change that is not seen would leave the old kernel in place"
        compiled(x)
        assert graphs() == before + 1
    assert torch.equal(compiled(x), expected)
    assert graphs() == before + 1, "going back finds the old code"


@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_masks_compile(backend):
    model, x, mask = Model().eval(), torch.randn(2, 5, 16), torch.rand(2, 1, 1, 5) > 0.3
    mask[:, ..., 0] = True
    expected = model(x, mask)
    with route(model, backend):
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, mask), expected, atol=2e-6, rtol=1e-5)


@torch.no_grad()
def test_blocks_compiled_one_by_one():
    model, x = Model().eval(), torch.randn(2, 5, 16)
    expected = model(x)
    for block in model.blocks:
        block.compile(fullgraph=True, backend="eager")
    model(x)
    before = graphs()
    with route(model, "_native_math"):
        torch.testing.assert_close(model(x), expected, atol=2e-6, rtol=1e-5)
        assert graphs() <= before + len(model.blocks)
        after = graphs()
        model(x)
        assert graphs() == after > before


@pytest.mark.parametrize("backend", ["native", "_native_flash"])
def test_a_direct_call_compiles(backend):
    query = torch.randn(2, 5, 2, 8)
    expected = attend(query, query, query, causal=True)

    def call(query):
        return attend(query, query, query, backend=backend, causal=True)

    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(query), expected, atol=2e-6, rtol=1e-5)
