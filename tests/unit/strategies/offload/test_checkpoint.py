"""Sharded checkpoints: what is loaded is what was saved last, whole, tied, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.snapshot import snapshot
from support.toys import MODULES, Case

from paretune.harness.simulator import Simulation
from paretune.strategies import Applied, PlanError
from paretune.strategies.mechanics import checkpoint, shard_files
from paretune.strategies.mechanics.checkpoint import load_sharded, save_sharded
from paretune.strategies.mechanics.shard_files import CheckpointError
from paretune.strategies.sizes import SizeError

LONE = MODULES[0]


def assert_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
        assert value.stride() == theirs[name].stride(), name


@pytest.mark.parametrize("size", ["100B", "1KB", "5GB"])
@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_a_round_trip_keeps_values_ties_and_strides(case: Case, size: str, tmp_path: Path) -> None:
    saved, loaded = case.model(seed=1), case.model(seed=2)
    save_sharded(saved, tmp_path, max_shard_size=size)
    load_sharded(loaded, tmp_path)
    assert_equal_weights(saved, loaded)
    if case.name == "tied_weights":
        assert loaded.head.weight is loaded.embed.weight
        assert loaded.part.untyped_storage()._cdata == loaded.blocks[0].up.weight.untyped_storage()._cdata


def test_a_model_on_meta_is_filled_or_refused(tmp_path: Path) -> None:
    case = next(case for case in MODULES if case.name == "tied_weights")
    saved = case.model(seed=1)
    save_sharded(saved, tmp_path, max_shard_size="1KB")
    with torch.device("meta"):
        empty = case.build().eval()
    load_sharded(empty, tmp_path)
    assert_equal_weights(saved, empty)
    assert empty.head.weight is empty.embed.weight
    save_sharded(LONE.model(), tmp_path / "lone")
    with torch.device("meta"):
        buffers = LONE.build()
    with pytest.raises(CheckpointError, match="'scratch' is in no shard"):
        load_sharded(buffers, tmp_path / "lone")


def test_the_index_states_sizes_and_no_shard_passes_the_limit(tmp_path: Path) -> None:
    model = LONE.model()
    index = json.loads(save_sharded(model, tmp_path, max_shard_size="2KB").read_text())
    assert index["metadata"]["total_size"] == sum(
        t.numel() * t.element_size() for t in model.state_dict(keep_vars=True).values()
    )
    sizes = [sum(t.numel() * t.element_size() for t in shard_files.read_shard(tmp_path, file).values())
             for file in set(index["weight_map"].values())]  # fmt: skip
    assert max(sizes) <= 2000
    assert len(sizes) > 1


def test_an_older_save_never_wins_and_leaves_no_file(tmp_path: Path) -> None:
    old, new = LONE.model(seed=1), LONE.model(seed=2)
    loaded = LONE.model(seed=3)
    for first, second in (("1KB", "5GB"), ("5GB", "1KB")):
        save_sharded(old, tmp_path, max_shard_size=first)
        save_sharded(new, tmp_path, max_shard_size=second)
        load_sharded(loaded, tmp_path)
        assert_equal_weights(new, loaded)
        index = json.loads(next(tmp_path.glob("*.json")).read_text())
        assert {path.name for path in tmp_path.glob("*.safetensors")} == set(index["weight_map"].values())


def test_variants_live_side_by_side_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    plain, ema, loaded = LONE.model(seed=1), LONE.model(seed=2), LONE.model(seed=3)
    save_sharded(ema, tmp_path, variant="ema", max_shard_size="1KB")
    save_sharded(plain, tmp_path)
    load_sharded(loaded, tmp_path, variant="ema")
    assert_equal_weights(ema, loaded)
    load_sharded(loaded, tmp_path)
    assert_equal_weights(plain, loaded)
    with pytest.raises(CheckpointError, match="variant 'fp16'"):
        load_sharded(loaded, tmp_path, variant="fp16")


def test_a_save_that_breaks_leaves_the_older_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, loaded = LONE.model(seed=1), LONE.model(seed=3)
    save_sharded(old, tmp_path, max_shard_size="1KB")
    before = sorted(path.name for path in tmp_path.iterdir())
    calls: list[Path] = []
    plain = checkpoint._digest

    def breaks(path: Path) -> str:
        calls.append(path)
        if len(calls) == 3:
            raise OSError("disk full")
        return plain(path)

    monkeypatch.setattr(checkpoint, "_digest", breaks)
    with pytest.raises(OSError, match="disk full"):
        save_sharded(LONE.model(seed=2), tmp_path, max_shard_size="1KB")
    load_sharded(loaded, tmp_path)
    assert_equal_weights(old, loaded)
    assert set(before) <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob(".writing*"))


def test_missing_shards_and_foreign_names_are_named(tmp_path: Path) -> None:
    save_sharded(LONE.model(), tmp_path, max_shard_size="1KB")
    with pytest.raises(CheckpointError, match=r"of the model is missing|is not the model"):
        load_sharded(MODULES[1].model(), tmp_path)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_sharded(LONE.model(), tmp_path)


@pytest.mark.parametrize("plan", ["model_offload", "group_offload(level=leaf_level)", "sharded_checkpoint"])
def test_files_are_the_same_whatever_plan_is_applied(plan: str, tmp_path: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    model = LONE.model()
    save_sharded(model, tmp_path / "before", max_shard_size="1KB")
    with Applied(plan, model, "cpu"):
        model(LONE.input())
        save_sharded(model, tmp_path / "during", max_shard_size="1KB")
    assert files(tmp_path / "before") == files(tmp_path / "during")


def test_weights_are_cast_and_placed_while_they_are_loaded(tmp_path: Path) -> None:
    saved = LONE.model(seed=1)
    save_sharded(saved, tmp_path)
    loaded = LONE.model(seed=2)
    load_sharded(loaded, tmp_path, dtype=torch.bfloat16, device={"": "cpu"})
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert torch.equal(loaded.after.weight, saved.after.weight.bfloat16())
    with pytest.raises(CheckpointError, match=r"gives .* no device"):
        load_sharded(LONE.model(), tmp_path, device={"blocks": "cpu"})


def test_as_a_strategy_it_leaves_no_file_and_sizes_are_strict(tmp_path: Path) -> None:
    model = LONE.model()
    before = snapshot(model)
    with Applied(f'sharded_checkpoint(max_shard_size="1KB",folder="{tmp_path}")', model, "cpu") as applied:
        assert len(list(tmp_path.iterdir())) == 1
        assert next(iter(applied.facts.values()))["num_shards"] > 1
    assert list(tmp_path.iterdir()) == []
    assert before.differences(snapshot(model)) == []
    with pytest.raises(PlanError, match="ambiguous"):
        Applied("sharded_checkpoint(max_shard_size=5Gb)", model, "cpu")
    with pytest.raises(SizeError):
        save_sharded(model, tmp_path, max_shard_size="-1GB")


def test_shards_are_written_and_read_on_a_simulated_machine() -> None:
    with Simulation("rtx-4090") as sim, torch.no_grad():
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).half()
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        sim.machine.traffic.reset()
        with Applied("sharded_checkpoint(max_shard_size=17MB)", model, "sim") as applied:
            assert next(iter(applied.facts.values()))["num_shards"] == 2
            assert model(torch.empty(1, 2048, dtype=torch.float16, device="sim")).shape == (1, 2048)
        assert sim.machine.traffic.disk_read_bytes == sim.machine.traffic.disk_write_bytes == size
