"""A repeated call is replayed only when it is sure to repeat, and then to the same bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.simulation import Simulation as Running
from paretune.harness.simulator.turns import Turns


class Block(nn.Module):
    """A product, an activation and a residual: enough to have a peak inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))


@pytest.fixture
def sim() -> Iterator[Running]:
    with Simulation("a100-40gb") as running, torch.no_grad():
        yield running


def model() -> nn.Module:
    return nn.Sequential(*(Block(1024) for _ in range(4))).to("sim").half().requires_grad_(False)


def run(sim: Running, calls: int, *, replays: bool) -> tuple[float, int, int, int]:
    denoiser, x = model(), torch.empty(4096, 1024, dtype=torch.float16, device="sim")
    machine = sim.machine
    machine.begin_phase("denoise")
    torch.sim.synchronize()
    began, before = machine.host_s, machine.num_operators
    for _ in range(calls):
        if not replays:
            sim.replay._known.clear()
        x = denoiser(x)
    torch.sim.synchronize()
    peaks = machine.cards[0].ledger.peak_bytes, machine.cards[0].allocator.peak_reserved_bytes
    return machine.host_s - began, machine.num_operators - before, *peaks


def test_replayed_calls_cost_what_real_ones_cost() -> None:
    with Simulation("a100-40gb") as running, torch.no_grad():
        real = run(running, 12, replays=False)
        assert running.replay.num_replayed == 0
    with Simulation("a100-40gb") as running, torch.no_grad():
        replayed = run(running, 12, replays=True)
        assert running.replay.num_replayed >= 9
    assert replayed[1:] == real[1:]
    assert replayed[0] == pytest.approx(real[0], rel=1e-3)


def test_other_shapes_run_for_real(sim: Running) -> None:
    denoiser = model()
    for rows in (64, 128, 64, 128):
        assert denoiser(torch.empty(rows, 1024, dtype=torch.float16, device="sim")).shape == (rows, 1024)
    assert sim.replay.num_replayed == 0


def test_a_call_after_another_component_runs_for_real(sim: Running) -> None:
    denoiser, other = model(), model()
    sim.label("denoiser", denoiser)
    sim.label("other", other)
    x = torch.empty(64, 1024, dtype=torch.float16, device="sim")
    for _ in range(4):
        x = denoiser(x)
    seen = sim.replay.num_replayed
    other(x)
    denoiser(x)
    assert sim.replay.num_replayed == seen > 0


@pytest.mark.parametrize(
    ("calls", "follow"),
    [
        ("aaa", "-++"),
        ("abab", "----"),
        ("ababab", "----++"),
        ("cababab", "-----++"),
        ("abababcab", "----++---"),
        ("aabaab", "-+--+-"),
        ("abbabb", "--+--+"),
    ],
)
def test_who_follows_what_the_call_before_followed(calls: str, follow: str) -> None:
    turns = Turns()
    assert "".join("-" if turns.take(who) is None else "+" for who in calls) == follow


def test_components_that_take_turns_are_replayed_in_turns(sim: Running) -> None:
    denoiser, other = model(), model()
    sim.label("denoiser", denoiser)
    sim.label("other", other)
    machine, x = sim.machine, torch.empty(4096, 1024, dtype=torch.float16, device="sim")
    times = []
    for _ in range(12):
        began = machine.host_s
        x = denoiser(other(x))
        times.append(machine.host_s - began)
    assert sim.replay.num_replayed >= 14
    assert times[-1] == pytest.approx(times[3], rel=1e-2)


def test_a_call_that_keeps_memory_is_never_replayed(sim: Running) -> None:
    kept = []

    class Hoards(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept.append(torch.empty(1 << 22, device=x.device))
            return x * 2

    hoards, x = Hoards(), torch.empty(1 << 20, device="sim")
    for _ in range(5):
        x = hoards(x)
    assert len(kept) == 5


def test_outputs_that_share_memory_share_it_again(sim: Running) -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (x * 2).chunk(2)

    halves, x = Halves(), torch.empty(1 << 20, device="sim")
    for _ in range(4):
        first, second = halves(x)
    assert sim.replay.num_replayed > 0
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


class Prefetches(nn.Module):
    """Leaves memory for the next call behind, as a copy that was started ahead of need does."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.waiting.append(torch.empty(1 << 22, device=x.device))
        return x * 2


def call_often(sim: Running, prefetches: Prefetches, *, tidies_at_once: bool) -> int:
    x = torch.empty(1 << 20, device="sim")
    for _ in range(6):
        prefetches.waiting.clear()
        y = prefetches(x)
        if tidies_at_once:
            prefetches.waiting.clear()
        x = y + 1
    return sim.replay.num_replayed


def test_what_is_tidied_up_before_the_next_operator_does_not_hinder_a_replay(sim: Running) -> None:
    assert call_often(sim, Prefetches(), tidies_at_once=True) == 3
    input_and_outputs = 3 * (4 << 20)  # the output of the call before is let go only when the next one is there
    assert sim.machine.cards[0].ledger.peak_bytes == input_and_outputs + (16 << 20)


def test_what_stays_while_other_operators_run_hinders_it(sim: Running) -> None:
    assert call_often(sim, Prefetches(), tidies_at_once=False) == 0


def test_replayed_calls_stand_in_the_timeline_as_high_as_those_before(sim: Running) -> None:
    machine, denoiser, x = sim.machine, model(), torch.empty(4096, 1024, dtype=torch.float16, device="sim")
    sim.label("denoiser", denoiser)
    machine.start_call()
    machine.begin_phase("denoise")
    before_s = machine.host_s
    for _ in range(30):
        x = denoiser(x)
    machine.end_call()
    assert sim.replay.num_replayed >= 26
    rows = machine.cards[0].ledger.timeline.rows(before_s)
    late = [row for row in rows if row[0] > rows[-1][0] * 0.5]
    assert late and {row[1] for row in late} == {machine.cards[0].ledger.peak_bytes}
    assert all(row[3]["activation"] == late[0][3]["activation"] > 0 for row in late)
