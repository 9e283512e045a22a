"""Temporary memory inside operators, disk, compiled code and several cards: what no dispatch mode shows by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.simulation import Simulation as Running

MIB = 1 << 20


@pytest.fixture
def sim() -> Iterator[Running]:
    with Simulation("a100-40gb", num_devices=2) as running, torch.no_grad():
        yield running


def peak_of(sim: Running, work: object) -> int:
    ledger = sim.machine.cards[0].ledger
    before = ledger.now_bytes
    ledger.reset_peak()
    work()  # type: ignore[operator]
    return ledger.peak_bytes - before


def test_channels_last_saves_the_conversion_of_convolutions(sim: Running) -> None:
    layer = nn.Conv2d(128, 128, 3, padding=1, dtype=torch.float16).to("sim")
    x = torch.empty(1, 128, 512, 512, dtype=torch.float16, device="sim")
    planar = peak_of(sim, lambda: layer(x))
    layer.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    assert planar == 3 * 64 * MIB
    assert peak_of(sim, lambda: layer(x)) == 64 * MIB


@pytest.mark.parametrize(("gpu", "expected"), [("a100-40gb", 8_519_680), ("h100", 32 * MIB)])
def test_the_first_product_on_a_stream_takes_a_workspace_for_good(gpu: str, expected: int) -> None:
    with Simulation(gpu), torch.no_grad():
        x = torch.empty(64, 64, dtype=torch.float16, device="sim")
        before = torch.sim.memory_allocated()
        _ = x @ x
        del _
        _ = x @ x
        del _
        assert torch.sim.memory_allocated() - before == expected


def test_mapped_files_cost_disk_time_but_no_memory(sim: Running, tmp_path: Path) -> None:
    host = sim.machine.host_memory.total
    before = host.now_bytes
    (tmp_path / "w").write_bytes(b"")
    mapped = torch.from_file(str(tmp_path / "w"), shared=True, size=64 * MIB, dtype=torch.uint8)
    assert host.now_bytes == before
    mapped.to("sim")
    assert sim.machine.traffic.disk_read_bytes == 64 * MIB


def test_safetensors_of_simulated_tensors_come_back(sim: Running, tmp_path: Path) -> None:
    import safetensors.torch

    path = str(tmp_path / "group.safetensors")
    safetensors.torch.save_file({"w": torch.empty(1024, 1024, dtype=torch.float16)}, path)
    loaded = safetensors.torch.load_file(path, device="sim")
    assert (loaded["w"].shape, loaded["w"].dtype, loaded["w"].device.type) == ((1024, 1024), torch.float16, "sim")
    assert sim.machine.traffic.disk_write_bytes == sim.machine.traffic.disk_read_bytes == 2 * MIB


def test_a_file_of_simulated_tensors_may_be_renamed_and_read_in_parts(sim: Running, tmp_path: Path) -> None:
    import safetensors
    import safetensors.torch

    written, found = tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    tensors = {"w": torch.empty(1024, 1024, dtype=torch.float16), "b": torch.empty(1024, 512)}
    safetensors.torch.save_file(tensors, written)
    written.replace(found)
    sim.machine.traffic.reset()
    with safetensors.safe_open(found, framework="pt") as opened:
        assert set(opened.keys()) == {"w", "b"}
        assert opened.get_tensor("b").shape == (1024, 512)
    assert sim.machine.traffic.disk_read_bytes == 2 * MIB


def test_compiled_code_is_faster_and_computes_the_same_shapes(sim: Running) -> None:
    layer = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024)).half().to("sim")
    x = torch.empty(65536, 1024, dtype=torch.float16, device="sim")
    seconds = {}
    for name, called in (("eager", layer), ("compiled", torch.compile(layer.forward))):
        torch.sim.synchronize()
        before = sim.machine.host_s
        assert called(x).shape == x.shape
        torch.sim.synchronize()
        seconds[name] = sim.machine.host_s - before
    assert seconds["compiled"] < 0.9 * seconds["eager"]


def test_cards_have_memory_of_their_own_and_a_link(sim: Running) -> None:
    x = torch.empty(16 * MIB, dtype=torch.uint8, device="sim:0")
    y = x.to("sim:1")
    assert y.device == torch.device("sim", 1)
    assert [torch.sim.memory_allocated(index) for index in (0, 1)] == [16 * MIB, 16 * MIB]
    assert sim.machine.traffic.peer_bytes == 16 * MIB


def test_one_fused_kernel_for_rms_norm_and_linear(sim: Running) -> None:
    x = torch.empty(64, 1024, dtype=torch.float16, device="sim")
    norm, linear = nn.RMSNorm(1024).half().to("sim"), nn.Linear(1024, 64).half().to("sim")
    before = sim.machine.num_operators
    assert linear(norm(x)).shape == (64, 64)
    assert sim.machine.num_operators - before == 2
