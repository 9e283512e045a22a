"""channels_last: chosen by rank, verified by strides, restored to the very strides, never half done."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paretune.strategies import Applied, Unsupported


class Hybrid(nn.Module):
    """Weights of rank 1 to 5, one of them already permuted."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line, self.sound = nn.Linear(4, 4), nn.Conv1d(4, 4, 3, padding=1)
        self.image, self.video = nn.Conv2d(4, 6, 3, padding=1), nn.Conv3d(4, 6, 3, padding=1)
        self.permuted = nn.Conv2d(4, 6, 3, padding=1)
        self.permuted.weight.data = self.permuted.weight.data.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)

    def forward(self, x):
        if x.dim() == 5:
            return self.video(x)
        if x.dim() == 4:
            return self.image(x) + self.permuted(x)
        return self.sound(x) if x.dim() == 3 else self.line(x)


def strides(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: p.stride() for name, p in model.named_parameters()}


@pytest.mark.parametrize("volumes", [False, True])
def test_every_rank_gets_its_own_format_and_goes_back(volumes):
    model = Hybrid()
    before, values = strides(model), {n: p.detach().clone() for n, p in model.named_parameters()}
    inputs = [torch.randn(shape) for shape in [(2, 4), (2, 4, 5), (2, 4, 5, 5), (1, 4, 3, 5, 5)]]
    with torch.no_grad():
        plain = [model(x) for x in inputs]
        with Applied(f"channels_last(volumes={str(volumes).lower()})", model, "cpu") as applied:
            assert model.image.weight.is_contiguous(memory_format=torch.channels_last)
            assert model.permuted.weight.is_contiguous(memory_format=torch.channels_last)
            assert model.video.weight.is_contiguous(memory_format=torch.channels_last_3d) is volumes
            assert model.line.weight.stride() == before["line.weight"]
            assert applied.facts["model:channels_last" + ("(volumes=true)" if volumes else "")] == {
                "num_weights_converted": 3 if volumes else 2
            }
            for x, expected in zip(inputs, plain):
                torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
    assert strides(model) == before
    assert all(torch.equal(p, values[n]) for n, p in model.named_parameters())


def test_a_failure_in_the_middle_leaves_no_half_converted_model(monkeypatch):
    model = Hybrid()
    before, calls = strides(model), []
    real = torch.Tensor.contiguous

    def run_out(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("no room")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "contiguous", run_out)
    with pytest.raises(torch.OutOfMemoryError):
        Applied("channels_last(volumes=true)", model, "cpu")
    monkeypatch.undo()
    assert len(calls) == 2 and strides(model) == before


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Conv3d(1, 1, 1)])
def test_a_model_without_such_weights_is_refused(model):
    with pytest.raises(Unsupported, match=type(model).__name__):
        Applied("channels_last", model, "cpu")


def test_shared_weights_stay_shared_and_are_counted_once():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    model[1].weight = model[0].weight
    with Applied("channels_last", model, "cpu") as applied:
        assert model[0].weight is model[1].weight
        assert next(iter(applied.facts.values()))["num_weights_converted"] == 1


def test_with_casting_the_small_weights_keep_the_layout():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    x = torch.randn(1, 4, 9, 9)
    for plan in ("channels_last + layerwise_casting", "layerwise_casting + channels_last"):
        before = strides(model)
        with Applied(plan, model, "cpu"), torch.no_grad():
            assert model[0].weight.dtype is torch.float8_e4m3fn
            assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
            assert model(x).is_contiguous(memory_format=torch.channels_last)
        assert strides(model) == before
