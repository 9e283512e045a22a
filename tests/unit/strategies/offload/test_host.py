"""The host's side: values are always right there, memory is not doubled, files are the plan's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.snapshot import snapshot
from support.toys import MODULES, WIDTH
from torch import nn

from paretune.strategies import Applied
from paretune.strategies.mechanics.host_limits import lockable_bytes
from paretune.strategies.mechanics.host_store import DiskStore, FoundStore, PinnedStore
from paretune.strategies.mechanics.residency import residency_of

LONE = MODULES[0]
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip


def plans(folder: Path) -> list[str]:
    disk = f'offload_to_disk_path="{folder}"'
    return [
        "model_offload",
        "sequential_offload",
        "group_offload",
        f"group_offload({disk})",
        f"group_offload(level=leaf_level,{disk})",
        "block_residency(num_resident_blocks=1,look_ahead=0)",
    ]


def test_state_dict_is_right_while_offloaded(tmp_path: Path) -> None:
    for case in MODULES:
        for plan in plans(tmp_path):
            if "residency" in plan and case.name in ("buffers", "convolutions"):
                continue
            model, wanted = case.model(), case.model().state_dict()
            with Applied(plan, model, "cpu"), torch.no_grad():
                for _ in range(2):
                    found = model.state_dict()
                    assert found.keys() == wanted.keys()
                    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
                    model(case.input())


def test_edits_of_weights_reach_the_next_call_and_survive_undo(tmp_path: Path) -> None:
    for plan in plans(tmp_path):
        model, edited = LONE.model(), LONE.model()
        with torch.no_grad(), Applied(plan, model, "cpu"):
            model(LONE.input())
            for target in (model, edited):
                target.blocks[1].up.weight.add_(1)
                target.after.bias.data.mul_(2)
                target.before.weight.data = target.before.weight.data.flip(0).clone()
            assert torch.equal(model(LONE.input()), edited(LONE.input())), plan
        with torch.no_grad():
            assert torch.equal(model(LONE.input()), edited(LONE.input())), plan


def test_a_buffer_that_changes_while_it_computes_is_kept(tmp_path: Path) -> None:
    for plan in plans(tmp_path):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        torch.manual_seed(0)
        reference = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        with torch.no_grad(), Applied(plan, model, "cpu"):
            for step in range(3):
                x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step))
                assert torch.equal(model(x), reference(x))
        assert int(model[1].num_batches_tracked) == 3
        assert torch.equal(model[1].running_mean, reference[1].running_mean)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout_survives_the_disk(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Module()
    plain = torch.arange(24).reshape(4, 6).to(dtype)
    model.register_buffer("plain", plain)
    model.register_buffer("transposed", plain.clone().t())
    model.register_buffer("expanded", plain.clone()[:1].expand(5, 6))
    model.register_buffer("scalar", plain.clone()[1, 1])
    model.register_buffer("part", plain.clone()[1:3, 2:5])
    model.register_buffer("empty", plain.clone()[:0])
    model.register_buffer("large", torch.zeros(5000).to(dtype))
    before = snapshot(model)
    with Applied(f'group_offload(level=leaf_level,offload_to_disk_path="{tmp_path}")', model, "cpu"):
        assert torch.equal(model.plain.view(torch.uint8), plain.view(torch.uint8))
    assert before.differences(snapshot(model)) == []


def test_models_in_one_folder_never_mix_and_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "old.weights").write_bytes(b"not ours")
    one, two = LONE.model(seed=1), LONE.model(seed=2)
    plan = f'group_offload(offload_to_disk_path="{tmp_path}")'
    with torch.no_grad():
        wanted = [model(LONE.input()) for model in (one, two)]
        with Applied(plan, one, "cpu"), Applied(plan, two, "cpu"):
            assert len(list(tmp_path.iterdir())) == 3
            assert torch.equal(one(LONE.input()), wanted[0])
            assert torch.equal(two(LONE.input()), wanted[1])
    assert [path.name for path in tmp_path.iterdir()] == ["old.weights"]


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    model = LONE.model()
    before = snapshot(model)
    with pytest.raises(OSError):
        Applied(f'group_offload(offload_to_disk_path="{tmp_path / "file"}")', model, "cpu")
    assert before.differences(snapshot(model)) == []


def test_each_group_is_read_once_a_pass(tmp_path: Path) -> None:
    model = LONE.model()
    with Applied(f'group_offload(offload_to_disk_path="{tmp_path}")', model, "cpu"), torch.no_grad():
        placed = residency_of(model)
        assert placed is not None
        fetched: list[int] = []
        fetch = placed.link.fetch
        placed.link.fetch = lambda n, *args, **kw: (fetched.append(n), fetch(n, *args, **kw))[1]  # type: ignore[method-assign]
        model(LONE.input())
        assert len(fetched) == len(placed.units)


def test_pinned_memory_keeps_to_its_budget_and_the_rest_stays_pageable(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plain = torch.empty

    def empty(*size: object, pin_memory: bool = False, **kwargs: object) -> torch.Tensor:
        if pin_memory:
            made.append(int(size[0]))  # type: ignore[call-overload]
        return plain(*size, **kwargs)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", empty)
    store = PinnedStore(budget_bytes=2048)
    kept = dict(pair for batch in store.buffers([1000, 1000, 1000, 0]) for pair in batch)
    assert store.pinned_bytes == sum(made) <= 2048
    assert [kept[index] is not None for index in range(4)].count(True) == 2
    made.clear()
    assert all(flat is None for batch in PinnedStore(budget_bytes=0).buffers([1000]) for _, flat in batch)
    assert all(flat is None for batch in FoundStore().buffers([1000]) for _, flat in batch)
    assert made == []


def test_stores_hand_out_buffers_of_the_sizes_asked_for(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    kept = dict(pair for batch in store.buffers([10, 0, 300]) for pair in batch)
    assert [kept[index].numel() for index in range(3)] == [10, 0, 300]  # type: ignore[union-attr]
    store.close()
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_the_container_limits_what_may_be_locked(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 64 kB\n")
    assert lockable_bytes(control_groups=tmp_path / "none", meminfo=meminfo) == 64 * 1024
    (tmp_path / "memory.max").write_text("50000\n")
    (tmp_path / "memory.current").write_text("20000\n")
    assert lockable_bytes(control_groups=tmp_path, meminfo=meminfo) == 30000
    (tmp_path / "memory.max").write_text("max\n")
    assert lockable_bytes(control_groups=tmp_path, meminfo=meminfo) == 64 * 1024
    assert lockable_bytes(control_groups=tmp_path / "none", meminfo=tmp_path / "none") is None


def test_folders_that_were_made_for_weights_go_with_them_and_no_others(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    folder = there / "made" / "for" / "weights"
    with Applied(f'group_offload(offload_to_disk_path="{folder}")', LONE.model(), "cpu"):
        assert any(folder.iterdir())
    assert there.is_dir() and not any(there.iterdir())
    with Applied(f'group_offload(offload_to_disk_path="{folder}")', LONE.model(), "cpu"):
        (folder / "somebody's").write_text("")
    assert [path.name for path in folder.iterdir()] == ["somebody's"]
