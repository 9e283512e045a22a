"""Under every dtype and storage, the awkward models answer in the dtype they are given; one that does not is named."""

from __future__ import annotations

import pytest
import torch
from support.toys import MODULES, Case
from torch import nn

from paretune.strategies import Applied
from paretune.strategies.mechanics.dtypes import dtype_changes


@pytest.mark.parametrize("storage", [None, "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_no_layer_changes_the_dtype(case: Case, dtype: torch.dtype, storage: str | None):
    model, x = case.model().to(dtype), case.input().to(dtype)
    plan = f"layerwise_casting(storage_dtype={storage})" if storage else "resident"
    with torch.no_grad(), Applied(plan, model, "cpu"):
        assert dtype_changes(model, lambda: model(x)) == {}
        assert model(x).dtype is dtype


def test_a_module_that_promotes_is_named():
    class Promotes(nn.Module):
        def forward(self, x):
            return x * torch.ones(1, dtype=torch.float32).expand(x.shape)

    model = nn.Sequential(nn.Linear(4, 4), Promotes()).bfloat16()
    found = dtype_changes(model, lambda: model(torch.randn(2, 4, dtype=torch.bfloat16)))
    assert found == dict.fromkeys(("1", "Sequential"), ("torch.bfloat16", "torch.float32"))
    assert not any(m._forward_hooks for m in model.modules())
