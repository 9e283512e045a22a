"""Layouts of a card's answers: one channels-last operand makes a convolution answer so, and saves its conversion."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paretune.harness.simulator.simulation import Simulation


def _decode(*, channels_last: bool) -> tuple[torch.Tensor, int]:
    with Simulation("rtx-4090") as running, torch.no_grad():
        model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1)).half()
        if channels_last:
            model.to(memory_format=torch.channels_last)
        answer = model.to("sim")(torch.empty(1, 64, 512, 512, dtype=torch.half, device="sim"))
        return answer, running.machine.cards[0].ledger.peak_bytes


def test_channels_last_weights_save_the_conversion_of_the_answer() -> None:
    planar, planar_bytes = _decode(channels_last=False)
    last, last_bytes = _decode(channels_last=True)
    assert planar.is_contiguous() and last.is_contiguous(memory_format=torch.channels_last)
    assert last_bytes < planar_bytes


@pytest.mark.parametrize("size", [1, 3])
def test_also_where_the_kernel_is_a_point(size: int) -> None:
    with Simulation("rtx-4090"), torch.no_grad():
        layer = nn.Conv2d(8, 8, size).half().to(memory_format=torch.channels_last).to("sim")
        answer = layer(torch.empty(1, 8, 16, 16, dtype=torch.half, device="sim"))
        assert answer.is_contiguous(memory_format=torch.channels_last)


def test_group_norm_answers_with_channels_first() -> None:
    with Simulation("rtx-4090"), torch.no_grad():
        source = torch.empty(1, 8, 16, 16, device="sim").to(memory_format=torch.channels_last)
        assert nn.GroupNorm(2, 8).to("sim")(source).is_contiguous()


def convolution_s(sim: Simulation, layout: torch.memory_format, *, compiled: bool = False) -> float:
    """Seconds of a large half-precision convolution whose input and weight have one layout."""
    model = torch.nn.Conv2d(128, 128, 3, padding=1).half().to("sim", memory_format=layout)
    picture = torch.empty(1, 128, 512, 512, dtype=torch.float16, device="sim").to(memory_format=layout)
    call = torch.compile(model) if compiled else model
    call(picture)
    torch.sim.synchronize()
    before = sim.machine.host_s
    call(picture)
    torch.sim.synchronize()
    return sim.machine.host_s - before


def test_channels_last_saves_the_conversion_in_time_too_and_a_compiler_saves_it_by_itself() -> None:
    with Simulation("rtx-4090") as sim, torch.no_grad():
        planar, last = (convolution_s(sim, layout) for layout in (torch.contiguous_format, torch.channels_last))
        compiled = convolution_s(sim, torch.contiguous_format, compiled=True)
        nbytes = 2 * 128 * 512 * 512 * 2
        conversion_s = 2 * nbytes / (sim.machine.sheet.bandwidth_bytes_per_s * sim.machine.sheet.bandwidth_efficiency)
    assert planar - last == pytest.approx(conversion_s, rel=0.05)
    assert compiled < planar - 0.9 * conversion_s
