"""Names of simulated devices: what they may say, and what is refused with a sentence."""

from __future__ import annotations

import pytest

from paretune.harness.devices.names import DeviceError
from paretune.harness.devices.simulated import SimulatedDevice, parse_spec

GIB = 1 << 30


@pytest.mark.parametrize(
    ("spec", "gpu", "count", "options"),
    [
        ("sim:rtx-4090", "rtx-4090", 1, {}),
        ("sim:rtx-4090x2", "rtx-4090", 2, {}),
        ("sim:t4,memory=80GiB", "t4", 1, {"memory": 80 * GIB}),
        ("sim:h100x8,memory=1GB,host_memory=64GiB,expandable_segments=true", "h100", 8,
         {"memory": 10**9, "host_memory": 64 * GIB, "expandable_segments": True}),
    ],
)  # fmt: skip
def test_specs_are_read(spec: str, gpu: str, count: int, options: dict[str, object]) -> None:
    asked = parse_spec(spec)
    assert (asked.gpu, asked.num_devices, dict(asked.options)) == (gpu, count, options)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sim:", "write sim:NAME"),
        ("sim:rtx-9999", "Known: .*rtx-4090"),
        ("sim:t4,memory=24", "no unit"),
        ("sim:t4,speed=2", "speed=2.*Known: memory="),
        ("sim:t4x0", "at least 1"),
        ("sim:t4,expandable_segments=yes", "true or false"),
    ],
)
def test_what_cannot_be_read_is_refused(spec: str, says: str) -> None:
    with pytest.raises(DeviceError, match=says):
        SimulatedDevice(spec)


def test_facts_say_that_it_is_simulated() -> None:
    facts = SimulatedDevice("sim:rtx-4070,memory=80GiB").facts()
    assert facts["simulated"] is True
    assert facts["memory_bytes"] == 80 * GIB
    assert facts["name"].endswith("(simulated)")


def test_a_session_enforces_the_smaller_limit_and_sees_peaks() -> None:
    import torch

    device = SimulatedDevice("sim:rtx-4070")
    with device.session(device_memory_bytes=2 * GIB) as session:
        session.mark("denoise")
        x = torch.empty(1 << 28, dtype=torch.uint8, device=device.torch_device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 << 30, dtype=torch.uint8, device=device.torch_device)
        del x
        session.mark("decode")
    phases = session.phases()
    assert phases["denoise"].peak_allocated_bytes == 1 << 28
    assert phases["decode"].peak_allocated_bytes == 0
    assert phases["decode"].peak_used_bytes is not None


def test_the_timeline_of_the_last_call_keeps_the_peaks_of_its_phases_by_kind() -> None:
    import torch

    device = SimulatedDevice("sim:rtx-4070")
    with device.session() as session, torch.no_grad():
        session.mark("prepare")
        layer = torch.nn.Linear(1024, 1024, dtype=torch.float16).to(device.torch_device)
        for rows in (1 << 16, 1 << 10):
            session.start_call()
            session.mark("denoise")
            x = torch.empty(rows, 1024, dtype=torch.float16, device=device.torch_device)
            for _ in range(40):
                x = layer(x)
            session.mark("decode")
            del x
            torch.empty(1 << 20, device=device.torch_device)
        session.mark("undo")
        torch.empty(1 << 29, device=device.torch_device)
    rows, last_call = session.counters()["memory_timeline"], 2 << 20
    tops = {name: max(row[1] for row in rows if row[2] == name) for name in ("denoise", "decode")}
    weights = {row[3]["weight"] for row in rows}
    assert weights == {2 * 1024 * 1024 + 2048}
    workspace = rows[-1][3]["workspace"]
    assert tops["denoise"] == weights.pop() + workspace + 2 * last_call  # a layer's input and output
    assert all(row[1] == sum(row[3].values()) for row in rows) and len(rows) <= 100
    assert rows[-1][2] == "decode" and rows[-1][0] <= session.now_s()
