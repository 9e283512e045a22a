"""A tape stands for a block only when the block is sure to do the same, and then to the same bytes and seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import nn

from paretune.harness.perform import perform
from paretune.harness.records import Record, Trial
from paretune.harness.simulator import Simulation
from paretune.harness.simulator.likeness import likeness
from paretune.harness.simulator.twins import Twins

WIDTH = 256


class Layer(nn.Module):
    """Two products and a residual, with a setting and a buffer."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("shift", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.narrow(torch.nn.functional.gelu(self.wide(x))) * self.scale + self.shift


class Model(nn.Module):
    """Layers one after another; with `keeps` what is alive grows from one to the next, so that the last one has the peak."""

    def __init__(self, layers: list[nn.Module], *, keeps: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.keeps = keeps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for layer in self.layers:
            x = layer(x)
            if self.keeps:
                kept.append(x)
        return x


def run_all(self: Twins, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
    return original(module, *args, **kwargs)


def played(model: Callable[[], nn.Module], *, memory_bytes: int = 4 << 30) -> tuple[Any, int, Any]:
    """What a forward pass leaves on the machine, how many tapes were played, and the machine."""
    with Simulation("a100-40gb", memory_bytes=memory_bytes) as sim, torch.no_grad():
        made = model().to("sim").half().requires_grad_(False)
        sim.label("denoiser", made)
        x = torch.empty(4096, WIDTH, dtype=torch.float16, device="sim")
        sim.machine.begin_phase("denoise")
        made(x)
        card = sim.machine.cards[0]
        picture = card.ledger.picture()
        left = (
            (picture.total_bytes, picture.operator, picture.module, picture.by_label),
            (card.allocator.peak_reserved_bytes, card.ledger.now_bytes, card.num_allocations),
            (sim.machine.num_operators, sim.machine.operators, sim.machine.traffic.num_kernels),
        )
        times = (sim.machine.host_s, card.compute_free_s)
        return (left, times), sim.replay.twins.num_played, sim.machine


@pytest.mark.parametrize("keeps", [False, True])
def test_tapes_leave_what_blocks_leave(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def model() -> nn.Module:
        return Model([Layer() for _ in range(6)], keeps=keeps)

    (left, times), num_played, _ = played(model)
    assert num_played == 4  # the first block takes the workspace of cuBLAS for all
    monkeypatch.setattr(Twins, "call", run_all)
    (real, real_times), num_played, _ = played(model)
    assert num_played == 0
    assert left == real
    assert times == pytest.approx(real_times, rel=1e-12)
    assert left[0][2].startswith("denoiser.layers.5") is keeps


def test_a_tape_runs_out_of_memory_where_the_block_would() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"denoiser\.layers"):
        played(lambda: Model([Layer() for _ in range(60)], keeps=True), memory_bytes=640 << 20)


class Counts(Layer):
    """Counts its calls in an attribute."""

    def forward(self, x: torch.Tensor) -> Any:
        self.scale = self.scale + 1.0
        return super().forward(x)


class Reads(Layer):
    """Asks for a value: the host waits."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * torch.ones(1, device=x.device).item()


class Overwrites(Layer):
    """Changes its input in place."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.mul_(2))


class Adapts(Layer):
    """Looks how much memory is free."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) if torch.sim.mem_get_info()[0] > 1 << 20 else x  # type: ignore[attr-defined]


class Copies(Layer):
    """Goes through the host."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.cpu().to(x.device))


_hoard: list[torch.Tensor] = []


class Hoards(Layer):
    """Keeps memory somewhere else."""

    def forward(self, x: torch.Tensor) -> Any:
        _hoard.append(torch.empty(1 << 20, device=x.device))
        return super().forward(x)


def remembering() -> type[Layer]:
    """A class whose forward counts in what it encloses."""
    calls: list[int] = []

    class Remembers(Layer):
        def forward(self, x: torch.Tensor) -> Any:
            calls.append(1)
            return super().forward(x)

    return Remembers


@pytest.mark.parametrize("kind", [Counts, Reads, Overwrites, Adapts, Copies, Hoards, remembering()])
def test_blocks_that_do_more_than_compute_are_run(kind: type[Layer]) -> None:
    _, num_played, _ = played(lambda: Model([kind() for _ in range(4)]))
    _hoard.clear()
    assert num_played == 0


def hook(module: nn.Module, args: Any) -> None: ...


def test_other_settings_hooks_and_weights_make_other_blocks() -> None:
    with Simulation("a100-40gb"), torch.no_grad():
        plain, other, narrow = Layer(), Layer(scale=2.0), Layer()
        hooked, replaced, watched = Layer(), Layer(), Layer()
        assert likeness(plain) is not None
        assert likeness(plain) == likeness(Layer()) != likeness(other)
        assert likeness(narrow.half()) != likeness(plain) != likeness(Layer().to("sim"))
        assert likeness(Layer(scale=True)) != likeness(Layer(scale=1)) != likeness(Layer(scale=1.0))
        hooked.wide.register_forward_pre_hook(hook)
        replaced.forward = lambda x: x  # type: ignore[method-assign]
        watched.state = iter([1, 2])  # type: ignore[assignment]
        assert likeness(hooked) is likeness(replaced) is likeness(watched) is None


PLANS = (
    "",
    "transformer:block_residency",
    "transformer:block_residency(num_resident_blocks=1)",
    "transformer:group_offload(level=block_level,use_stream=true)",
    "transformer:group_offload(level=leaf_level,use_stream=true,record_stream=true)",
    "transformer:layerwise_casting",
    "transformer:compile",
    "model_offload",
)


@pytest.fixture(scope="module", autouse=True)
def libraries_have_made_their_constants() -> None:
    """What a library makes when it is first used would count for the first of two trials only."""
    perform(Trial(workload={"name": "flux.1-schnell-tiny"}, device="sim:rtx-4090", plan=""), lambda phase: None)


@pytest.mark.parametrize("plan", PLANS)
def test_trials_with_tapes_are_those_without(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(workload={"name": "flux.1-schnell-tiny"}, device="sim:rtx-4090", plan=plan)
    taped = perform(trial, lambda phase: None)
    monkeypatch.setattr(Twins, "call", run_all)
    real = perform(trial, lambda phase: None)
    assert taped.is_complete, taped.reason
    assert told(taped) == told(real)


def told(record: Record) -> Any:
    """What a trial found out; seconds to nine digits, since a tape adds them up in another order."""
    return rounded((*map(asdict, record.phases.values()), record.counters, record.facts, record.latency_s))


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
