"""Tiles of a model whose weights are offloaded: right answers, and the number of loads is told, or is one a group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from paretune.harness.advice import advise
from paretune.harness.records import Kind, Outcome, Record
from paretune.harness.simulator import Simulation
from paretune.strategies import Applied, PlanError
from paretune.strategies.mechanics.residency import residency_of

PLACING = [
    "group_offload",
    "group_offload(level=leaf_level)",
    "sequential_offload",
    "block_residency(num_resident_blocks=1,look_ahead=0)",
]


class Decoder(nn.Module):
    """Four blocks between two lone layers; the tiles of a constant differ only at its edges."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.spatial_compression_ratio = 1
        self.enter, self.leave = nn.Conv2d(4, channels, 1), nn.Conv2d(channels, 3, 1)
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4))

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        z = self.enter(z)
        for block in self.blocks:
            z = torch.relu(block(z))
        answer: torch.Tensor = self.leave(z)
        return answer


def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval()


def told(applied: Applied, strategy: str = "vae_tiling") -> dict[str, Any]:
    return dict(next(facts for setting, facts in applied.facts.items() if strategy in setting))


@pytest.mark.parametrize("placing", PLACING)
@pytest.mark.parametrize("keeps", ["false", "true"])
def test_tiles_under_offload_give_what_tiles_alone_give(placing: str, keeps: str) -> None:
    model, z = decoder(), torch.randn(1, 4, 40, 24)
    tiling = f"vae_tiling(tile_size=16,keep_weights={keeps})"
    with torch.no_grad():
        with Applied(tiling, model, "cpu"):
            alone = model.decode(z)
        with Applied(f"{tiling} + {placing}", model, "cpu"):
            for _ in range(2):
                assert torch.equal(model.decode(z), alone)
            residency = residency_of(model)
            assert residency is not None and not residency.keeps_passing
            assert residency.resident_bytes == sum(
                u.num_bytes for u in residency.units if u.group.keep.value == "always"
            )


@pytest.mark.parametrize("placing", PLACING)
def test_the_number_of_loads_is_told_and_kept_weights_are_loaded_once(placing: str) -> None:
    z, found = torch.randn(1, 4, 40, 24), {}
    for keeps in ("false", "true"):
        model = decoder()
        with (
            torch.no_grad(),
            Applied(f"vae_tiling(tile_size=16,keep_weights={keeps}) + {placing}", model, "cpu") as applied,
        ):
            residency = residency_of(model)
            assert residency is not None
            model.decode(z)
            before = sum(unit.num_fetches for unit in residency.units)
            model.decode(z)
            found[keeps] = told(applied)["decode"]
            assert found[keeps]["num_group_loads"] == sum(unit.num_fetches for unit in residency.units) - before
    every_time, once = found["false"], found["true"]
    assert every_time["num_tiles"] == once["num_tiles"] == 6
    passing = sum(unit.group.keep.value == "call" for unit in _units(placing))
    assert every_time["num_group_loads"] - once["num_group_loads"] == 5 * passing > 0


def _units(placing: str) -> Any:
    model = decoder()
    with Applied(placing, model, "cpu"):
        residency = residency_of(model)
        assert residency is not None
        return list(residency.units)


def test_without_an_offload_only_tiles_are_counted() -> None:
    model = decoder()
    with torch.no_grad(), Applied("vae_tiling(tile_size=16)", model, "cpu") as applied:
        model.decode(torch.randn(1, 4, 16, 16))
        assert told(applied)["decode"] == {"num_tiles": 1}
        model.decode(torch.randn(1, 4, 17, 16))
        assert told(applied)["decode"] == {"num_tiles": 2}


def test_an_error_inside_a_tile_keeps_nothing_on_the_device() -> None:
    model = decoder()
    with torch.no_grad(), Applied("vae_tiling(tile_size=16,keep_weights=true) + group_offload", model, "cpu"):
        with pytest.raises(RuntimeError):
            model.decode(torch.randn(1, 5, 40, 24))
        residency = residency_of(model)
        assert residency is not None and residency.resident_bytes == 0 and not residency.keeps_passing


def test_on_a_simulated_card_keeping_moves_fewer_bytes_and_holds_more() -> None:
    def simulated(keeps: str) -> tuple[int, int, dict[str, Any]]:
        with Simulation("rtx-4090") as sim, torch.no_grad():
            model, z = Decoder(1024).half(), torch.empty(1, 4, 640, 64, dtype=torch.float16, device="sim")
            plan = f"vae_tiling(tile_size=64,keep_weights={keeps}) + group_offload"
            with Applied(plan, model, "sim") as applied:
                for _ in range(2):
                    sim.machine.begin_phase("decode")
                    sim.machine.traffic.reset()
                    model.decode(z)
                return sim.machine.traffic.h2d_bytes, sim.machine.cards[0].ledger.peak_bytes, told(applied)["decode"]

    moved, peak, facts = simulated("false")
    moved_once, peak_keeping, facts_keeping = simulated("true")
    assert facts["num_tiles"] == facts_keeping["num_tiles"] == 13
    assert facts["num_group_loads"] - facts_keeping["num_group_loads"] == 12 * 4
    assert moved > 10 * moved_once and peak < peak_keeping
    assert moved_once == pytest.approx(facts_keeping["group_bytes"], rel=0.01)


def test_what_is_no_truth_value_is_refused() -> None:
    with pytest.raises(PlanError, match="keep_weights"):
        Applied("vae_tiling(keep_weights=2)", decoder(), "cpu")


@pytest.mark.parametrize(("loads", "says"), [(126, True), (14, False)])
def test_loads_once_a_tile_are_pointed_out(loads: int, says: bool) -> None:
    decode = {"num_tiles": 9, "num_groups": 14, "num_group_loads": loads, "group_bytes": 3 << 28}
    record = Record(
        kind=Kind.MEASURED,
        outcome=Outcome.COMPLETE,
        workload={"name": "toy"},
        device="cuda",
        plan="vae:vae_tiling + vae:group_offload",
        facts={"vae:vae_tiling": {"tiled": ["decode"], "decode": decode}},
    )
    found = [words for words in advise(record) if "keep_weights" in words]
    assert bool(found) is says
    assert all("126" in words and "0.75 GiB" in words for words in found)
