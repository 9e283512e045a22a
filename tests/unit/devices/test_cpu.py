"""Peaks on the CPU are exact to the byte, per phase, workspaces inside operators included."""

import pytest
import torch

from paretune.harness.devices import device_named
from paretune.harness.devices.names import DeviceError
from paretune.harness.records import Kind

MIB = 2**20


def peaks(session) -> dict[str, int]:
    return {name: phase.peak_allocated_bytes for name, phase in session.phases().items()}


def test_each_phase_starts_from_what_is_live_and_sees_earlier_memory_freed():
    with device_named("cpu").session() as session:
        session.mark("load")
        weights = torch.empty(64 * MIB, dtype=torch.uint8)
        text = torch.empty(32 * MIB, dtype=torch.uint8)
        session.mark("encode")
        torch.empty(10 * MIB, dtype=torch.uint8)
        session.mark("offload")
        del text
        more = torch.empty(16 * MIB, dtype=torch.uint8)
        session.mark("denoise")
        torch.empty(18 * MIB, dtype=torch.uint8)
    assert {k: v / MIB for k, v in peaks(session).items()} == {"load": 96, "encode": 106, "offload": 96, "denoise": 98}
    del weights, more


def test_a_phase_entered_again_keeps_its_larger_peak():
    with device_named("cpu").session() as session:
        for size in (8, 2, 4):
            session.mark("step")
            torch.empty(size * MIB, dtype=torch.uint8)
            session.mark("rest")
    assert peaks(session) == {"step": 8 * MIB, "rest": 0}


def test_temporaries_inside_operators_count():
    values = torch.rand(4 * MIB)
    with device_named("cpu").session() as session:
        session.mark("sort")
        torch.sort(values)
    outputs = values.numel() * (4 + 8)
    assert peaks(session)["sort"] > outputs


def test_the_timing_session_knows_durations_steps_and_host_memory():
    with device_named("cpu").session(memory=False) as session:
        session.start_call()
        session.mark("denoise")
        for _ in range(3):
            session.step()
        session.mark("decode")
    phase = session.phases()["denoise"]
    assert len(session.step_latency_s()) == 3 and sum(session.step_latency_s()) <= phase.duration_s
    assert phase.peak_allocated_bytes is None and phase.peak_host_bytes > MIB


def test_the_cpu_is_a_measuring_device_without_options():
    device = device_named("cpu")
    assert device.kind is Kind.MEASURED and device.torch_device == torch.device("cpu")
    assert device.total_memory_bytes() is None
    with pytest.raises(DeviceError, match="takes no options"):
        device_named("cpu,memory=3GiB")


def test_the_call_leaves_a_timeline_that_keeps_every_peak_of_its_phases():
    with device_named("cpu").session() as session:
        session.mark("load")
        weights = torch.empty(64 * MIB, dtype=torch.uint8)
        session.mark("encode")
        for _ in range(300):
            torch.empty(1 * MIB, dtype=torch.uint8)
        torch.empty(10 * MIB, dtype=torch.uint8)
        session.mark("decode")
        torch.empty(3 * MIB, dtype=torch.uint8)
        session.mark("undo")
        torch.empty(900 * MIB, dtype=torch.uint8)
    rows = session.counters()["memory_timeline"]
    tops = {name: max(row[1] for row in rows if row[2] == name) for name in ("encode", "decode")}
    assert tops == {"encode": 74 * MIB, "decode": 67 * MIB} and {row[2] for row in rows} == set(tops)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows) and len(rows) <= 100
    del weights
