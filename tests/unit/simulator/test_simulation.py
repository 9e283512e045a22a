"""Tensors without data behave like a GPU's: placement, mixing, values, memory, time, and the names of torch.cuda."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.simulation import Simulation as Running
from paretune.strategies.errors import Unsupported

MIB = 1 << 20


@pytest.fixture
def sim() -> Iterator[Running]:
    with Simulation("a100-40gb", num_devices=2) as running, torch.no_grad():
        yield running


def test_large_tensors_have_no_data_and_small_ones_keep_values(sim: Running) -> None:
    assert torch.tensor([1.0, 2.0], device="sim").sum().item() == 3.0
    assert torch.arange(5, device="sim").flip(0).tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(Unsupported, match=r"_local_scalar_dense.*carry no data"):
        torch.ones(1 << 20, device="sim").sum().item()


def test_a_missing_value_names_the_module(sim: Running) -> None:
    class Checks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if torch.isnan(x).any() else -x

    model = nn.Sequential(nn.Identity(), Checks())
    sim.label("denoiser", model)
    with pytest.raises(Unsupported, match=r"denoiser\.1"):
        model(torch.ones(1 << 20, device="sim"))


@pytest.mark.parametrize("where", ["cpu", "sim:1"])
def test_mixing_devices_raises_as_on_a_gpu(sim: Running, where: str) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(4, device="sim:0") + torch.ones(4, device=where)


def test_host_scalars_may_meet_device_tensors(sim: Running) -> None:
    assert (torch.ones(4, device="sim") * torch.tensor(2.0)).tolist() == [2.0] * 4


def test_a_card_that_is_not_there_is_refused(sim: Running) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.ones(4, device="sim:2")


def test_views_are_free_and_memory_returns(sim: Running) -> None:
    before = torch.sim.memory_allocated()
    x = torch.empty(1024, 1024, device="sim")
    y = x.t()[::2].unsqueeze(0)
    assert torch.sim.memory_allocated() - before == 4 * MIB
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() != 0
    del x
    assert torch.sim.memory_allocated() - before == 4 * MIB
    del y
    assert torch.sim.memory_allocated() == before


def test_out_of_memory_says_how_much(sim: Running) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 64\.00 GiB.*total capacity of 39\.39 GiB"):
        torch.empty(1 << 35, dtype=torch.float16, device="sim")


def test_modules_move_and_ties_survive(sim: Running) -> None:
    model = nn.ModuleDict({"a": nn.Linear(512, 512), "b": nn.Linear(512, 512)})
    model["b"].weight = model["a"].weight
    model.to("sim")
    assert model["a"].weight is model["b"].weight
    assert {p.device for p in model.parameters()} == {torch.device("sim", 0)}
    assert sim.machine.cards[0].ledger.now_bytes == MIB + 2 * 2048
    model.to("cpu")
    assert sim.machine.cards[0].ledger.now_bytes == 0


def test_data_can_be_exchanged_across_devices(sim: Running) -> None:
    parameter = nn.Parameter(torch.empty(1024, 1024))
    home = parameter.data
    parameter.data = home.to("sim")
    assert parameter.device.type == "sim"
    parameter.data = home
    assert parameter.device.type == "cpu"
    assert parameter.data_ptr() == home.data_ptr()


def test_in_place_writes_forget_values_of_all_views(sim: Running) -> None:
    small = torch.zeros(4, device="sim")
    view = small[:2]
    small.copy_(torch.empty(1 << 20, device="sim")[:4])
    with pytest.raises(Unsupported):
        view.tolist()


def test_boolean_indices_with_values_decide_shapes(sim: Running) -> None:
    hidden = torch.empty(4, 1 << 18, device="sim")
    mask = torch.tensor([True, False, True, True], device="sim")
    assert hidden[mask].shape == (3, 1 << 18)
    with pytest.raises(Unsupported, match="nonzero"):
        hidden[hidden > 0]


def test_inference_mode_works_and_leaves_ordinary_tensors(sim: Running) -> None:
    layer = nn.Linear(64, 64).to("sim")
    with torch.inference_mode():
        out = layer(torch.ones(2, 64, device="sim"))
    layer.weight.data = layer.weight.data.to("cpu")
    assert (out.shape, layer.weight.device.type) == ((2, 64), "cpu")


def test_an_operator_without_shape_inference_is_named(sim: Running) -> None:
    library = torch.library.Library("paretune_test", "FRAGMENT")
    library.define("opaque(Tensor x) -> Tensor")
    with pytest.raises(Unsupported, match=r"paretune_test\.opaque.*meta \(fake\) implementation"):
        torch.ops.paretune_test.opaque(torch.ones(4, device="sim"))


def test_simulated_tensors_outlive_their_simulation() -> None:
    with Simulation("t4") as running:
        kept = torch.empty(MIB, device="sim")
    del kept
    assert running.machine.cards[0].ledger.now_bytes == 0


def test_peaks_by_phase_and_who_reached_them(sim: Running) -> None:
    machine = sim.machine
    machine.begin_phase("denoise")
    layer = nn.Linear(2048, 2048, bias=False)
    sim.label("transformer", layer)
    layer.to("sim")
    layer(torch.empty(2048, 2048, device="sim"))
    peak = machine.cards[0].ledger.picture()
    assert peak.module == "transformer"
    assert peak.operator == "aten.linear.default"
    assert peak.by_label["transformer", "weight"] == 16 * MIB
    machine.begin_phase("decode")
    assert machine.cards[0].ledger.phase_peaks["denoise"] == peak.total_bytes
    assert sum(peak.by_label.values()) == peak.total_bytes


def test_the_device_module_has_the_names_of_cuda() -> None:
    module = torch.get_device_module("sim")
    missing = {name for name in module.__all__ if not hasattr(torch.cuda, name)}
    assert missing == {"get_amp_supported_dtype"}  # autocast asks it of every backend registered from Python
    assert not module.is_available()
    with Simulation("t4"):
        assert module.is_available()
        assert module.get_device_capability() == (7, 5)
        free, total = module.mem_get_info()
        assert total - free == module.get_device_properties().total_memory - free


def test_memory_that_outlives_the_interpreter_is_not_counted_any_more() -> None:
    with Simulation("rtx-4090") as sim:
        storage = torch.empty(1 << 20, device="sim").sim_storage  # type: ignore[attr-defined]
        live = sim.machine.cards[0].ledger.now_bytes
        storage.__del__(lambda: True)
        assert sim.machine.cards[0].ledger.now_bytes == live
        storage.__del__(lambda: False)
        assert sim.machine.cards[0].ledger.now_bytes == live - (4 << 20)
