"""What an observer is told, on pipelines whose calls do not follow the usual order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.following import Following
from torch import nn

from paretune.harness.workloads.phases import observed


class Coder(nn.Module):
    """An autoencoder whose work happens outside `forward`."""

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z * 2

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


class Layer(nn.Module):
    """A denoiser of its own, which the compiler does not skip as it skips PyTorch's layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Pipeline:
    """Calls its denoiser `per_step` times a step."""

    def __init__(self, *, steps: int, per_step: int, fails: bool = False) -> None:
        self.components: dict[str, Any] = {"transformer": nn.Identity(), "vae": Coder(), "text_encoder": nn.Identity()}
        self.scheduler = SimpleNamespace(step=lambda x: x)
        self.steps, self.per_step, self.fails = steps, per_step, fails

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = self.components["vae"].encode(self.components["text_encoder"](x))
        for _ in range(self.steps):
            for _ in range(self.per_step):
                x = self.components["transformer"](x)
            x = self.scheduler.step(x)
        if self.fails:
            raise RuntimeError("out of memory")
        return self.components["vae"].decode(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_a_step_is_told_once_however_often_the_denoiser_runs(per_step: int) -> None:
    pipeline, following = Pipeline(steps=3, per_step=per_step), Following()
    with observed(pipeline, following):
        pipeline(torch.ones(1))
    assert following.log == ["encode", "denoise", "step", "step", "step", "decode"]


def test_nothing_stays_after_an_exception_and_earlier_wrappers_come_back() -> None:
    pipeline, following = Pipeline(steps=1, per_step=1, fails=True), Following()
    vae = pipeline.components["vae"]
    vae.decode = decode = lambda z: z
    step = pipeline.scheduler.step
    with pytest.raises(RuntimeError), observed(pipeline, following):
        pipeline(torch.ones(1))
    assert vae.decode is decode
    assert pipeline.scheduler.step is step
    assert type(pipeline.components["transformer"]) is nn.Identity
    assert "_paretune_call_begins" not in pipeline.components["transformer"].__dict__
    assert following.log == ["encode", "denoise", "step"]


def test_without_an_observer_nothing_is_touched() -> None:
    pipeline = Pipeline(steps=1, per_step=1)
    with observed(pipeline, None):
        assert type(pipeline.components["transformer"]) is nn.Identity
        assert "decode" not in pipeline.components["vae"].__dict__


def test_compiled_denoisers_are_not_compiled_anew_by_being_observed() -> None:
    torch._dynamo.reset()
    pipeline = Pipeline(steps=2, per_step=1)
    graphs: list[Any] = []
    pipeline.components["transformer"] = Layer()
    pipeline.components["transformer"].compile(backend=lambda graph, _: graphs.append(graph) or graph.forward)
    with torch.no_grad():
        for _ in range(3):
            with observed(pipeline, Following()):
                pipeline(torch.ones(1, 1))
    assert len(graphs) == 1
