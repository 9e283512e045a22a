"""Snapshots agree with the ledger, and PyTorch's own readers of them can read ours."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.cuda import _memory_viz

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.simulation import Simulation as Running
from paretune.harness.simulator.snapshot import Recorder, recording, write_snapshot

MIB = 1 << 20


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as found:
        yield found


@pytest.fixture
def sim(recorder: Recorder) -> Iterator[Running]:
    with Simulation("rtx-4090", memory_bytes=4 << 30) as running, torch.no_grad():
        yield running


def work(sim: Running) -> torch.Tensor:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to("sim").half()
    sim.label("denoiser", model)
    sim.machine.start_call()
    sim.machine.begin_phase("denoise")
    return model(torch.empty(512, 1024, dtype=torch.float16, device="sim"))  # type: ignore[no-any-return]


def entries(recorder: Recorder) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recorder.snapshot()["device_traces"][0]
    return found


def replayed(trace: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Live bytes at the end, their maximum, and reserved bytes, from the entries alone."""
    live: dict[int, int] = {}
    top = reserved = 0
    for entry in trace:
        if entry["action"] == "alloc":
            assert entry["addr"] not in live
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"]
        elif entry["action"] in ("segment_alloc", "segment_map"):
            reserved += entry["size"]
        elif entry["action"] in ("segment_free", "segment_unmap"):
            reserved -= entry["size"]
        top = max(top, sum(live.values()))
    return sum(live.values()), top, reserved


@pytest.mark.parametrize("expandable", [False, True])
def test_a_trace_tells_what_the_ledger_counts(recorder: Recorder, expandable: bool) -> None:
    with Simulation("rtx-4090", options={"expandable_segments": expandable}) as sim, torch.no_grad():
        kept = work(sim)
        card = sim.machine.cards[0]
        top = max(card.ledger.peak_bytes, *card.ledger.phase_peaks.values())
        assert replayed(entries(recorder)) == (card.ledger.now_bytes, top, card.allocator.reserved_bytes)
        del kept
        torch.sim.empty_cache()  # type: ignore[attr-defined]
        assert replayed(entries(recorder))[2] == card.allocator.reserved_bytes
        segments = recorder.snapshot()["segments"]
    assert sum(segment["total_size"] for segment in segments) == card.allocator.reserved_bytes
    assert sum(segment["allocated_size"] for segment in segments) == card.ledger.now_bytes
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]


def test_frames_name_operator_module_and_owner(sim: Running, recorder: Recorder) -> None:
    kept = work(sim)
    output = next(entry for entry in reversed(entries(recorder)) if entry["action"] == "alloc")
    assert output["frames"] == [
        {"name": "aten.linear.default", "filename": "denoiser.2", "line": 0},
        {"name": "activation", "filename": "denoiser", "line": 0},
    ]
    del kept


def test_memory_that_another_stream_uses_waits(sim: Running, recorder: Recorder) -> None:
    stream = torch.sim.Stream()  # type: ignore[attr-defined]
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="sim")
    with stream:
        torch.empty(64 * MIB, dtype=torch.uint8, device="sim").copy_(x)
    x.record_stream(stream)
    del x
    blocks = [block for segment in recorder.snapshot()["segments"] for block in segment["blocks"]]
    assert [block["size"] for block in blocks if block["state"] == "active_pending_free"] == [64 * MIB]
    assert [entry["action"] for entry in entries(recorder)].count("free_requested") == 2


def test_memory_that_runs_out_is_an_entry(sim: Running, recorder: Recorder) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(8 << 30, dtype=torch.uint8, device="sim")
    last = entries(recorder)[-1]
    assert (last["action"], last["size"]) == ("oom", 8 << 30) and 0 < last["device_free"] < 4 << 30


def test_what_follows_a_call_is_left_out(sim: Running, recorder: Recorder) -> None:
    kept = work(sim)
    sim.machine.end_call()
    num_entries = len(entries(recorder))
    torch.empty(MIB, device="sim")
    sim.machine.end_call()
    assert len(entries(recorder)) == num_entries
    del kept


def test_without_a_recorder_nothing_is_recorded() -> None:
    with Simulation("rtx-4090") as sim:
        assert "allocate" not in vars(sim.machine.cards[0])


def test_pytorch_reads_it(sim: Running, recorder: Recorder, tmp_path: Path) -> None:
    kept = work(sim)
    write_snapshot(recorder.snapshot(), tmp_path / "deep" / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "deep" / "snapshot.pickle").read_bytes())
    assert snapshot == recorder.snapshot()
    for draw in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "snapshot.pickle" in draw(snapshot)
    filtered = _memory_viz.filter_alloc_free_pairs({"device_traces": [list(entries(recorder))]})
    assert len(filtered["device_traces"][0]) < len(entries(recorder))
    assert "total_reserved: " in _memory_viz.segsum(snapshot)
    assert "cudaMalloc" in _memory_viz.trace(snapshot)
    flames = _memory_viz.memory(snapshot, format_flamegraph=str)
    live = sum(int(line.rsplit(" ", 1)[1]) for line in flames.splitlines() if "active_allocated" in line)
    assert live == sim.machine.cards[0].ledger.now_bytes and "denoiser.2:0:aten.linear.default" in flames
    del kept
