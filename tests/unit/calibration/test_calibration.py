"""Calibrating a simulated card finds the card's own sheet again; a real device gives sheets that can be read."""

import dataclasses

import pytest
import torch

from paretune.attention import attend
from paretune.harness.calibration.attention import attention_rates
from paretune.harness.calibration.refine import refine
from paretune.harness.calibration.run import Sizes, calibrate
from paretune.harness.calibration.stopwatch import Stopwatch
from paretune.harness.records import Kind, Outcome, Phase, Record
from paretune.harness.simulator import GpuSheet, Simulation, load_gpu, load_host
from paretune.harness.simulator.sheets import sheet_labelled

SMALL = Sizes(products=(128,), memory_bytes=1 << 20, link_bytes=1 << 20, disk_bytes=1 << 20, attention=False)


@pytest.mark.parametrize("name", ["rtx-4090", "h100"])
def test_a_simulated_card_is_measured_as_its_sheet_says(name):
    with Simulation(name):
        found = calibrate("sim", sizes=Sizes(attention=False))
    sheet, host = load_gpu(name), load_host()
    assert found.gpu.dense_flops_per_s["float32"] == pytest.approx(sheet.dense_flops_per_s["float32"], rel=0.05)
    for dtype in ("bfloat16", "float16"):
        reached = found.gpu.dense_flops_per_s[dtype] * found.gpu.product_efficiency
        assert reached == pytest.approx(
            sheet.dense_flops_per_s[dtype] * sheet.product_efficiency, rel=0.08
        )  # probes are not endless
    moved = found.gpu.bandwidth_bytes_per_s * found.gpu.bandwidth_efficiency
    assert moved == pytest.approx(sheet.bandwidth_bytes_per_s * sheet.bandwidth_efficiency, rel=0.02)
    assert found.gpu.pinned_h2d_bytes_per_s == pytest.approx(sheet.pinned_h2d_bytes_per_s, rel=0.02)
    assert found.gpu.memory_bytes == sheet.memory_bytes and found.gpu.context_bytes == sheet.context_bytes
    for figure in ("pageable_h2d_bytes_per_s", "pageable_d2h_bytes_per_s", "pin_bytes_per_s"):
        assert getattr(found.host, figure) == pytest.approx(getattr(host, figure), rel=0.02)
    for figure in ("eager_operator_s", "hook_s", "module_call_s", "event_call_s", "copy_call_s", "kernel_s"):
        assert getattr(found.host, figure) == pytest.approx(getattr(host, figure), rel=0.1)


def test_a_real_device_gives_sheets_that_are_read_back(tmp_path):
    made = calibrate("cpu", name="here", sizes=SMALL)
    gpu, host = made.write(tmp_path)
    assert load_gpu(str(gpu)) == made.gpu and load_host(str(host)) == made.host
    assert made.gpu.name == "here" and made.host.name == "host-here"
    assert all(rate > 0 for rate in made.gpu.dense_flops_per_s.values())
    assert made.host.sources["eager_operator_s"].startswith("measured")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3060", "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 4060 Ti", "rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", None),
        ("Some Future Card", None),
    ],
)
def test_the_shipped_sheet_of_a_card_is_found_by_its_name(label, name):
    found = sheet_labelled(label)
    assert (found.name if found else None) == name


def measured(seconds: float, **fields: object) -> Record:
    record = Record(
        kind=Kind.MEASURED,
        outcome=Outcome.COMPLETE,
        workload={"name": "x"},
        device="cuda",
        plan="resident",
        phases={"denoise": Phase(duration_s=seconds)},
    )
    return dataclasses.replace(record, **fields)


def test_trials_correct_the_efficiency_by_the_median_ratio():
    sheet = load_gpu("rtx-4090")
    records = [
        measured(2.0),
        measured(2.2),
        measured(2.4),
        measured(1e9, plan="model_offload"),
        measured(9, kind=Kind.SIMULATED),
    ]
    found = refine(sheet, records, lambda record: measured(2.0))
    assert found.num_trials == 3 and found.factor == pytest.approx(2.0 / 2.2)
    assert found.sheet.product_efficiency == pytest.approx(sheet.product_efficiency * found.factor)


def test_useless_or_absurd_trials_are_refused():
    sheet = load_gpu("rtx-4090")
    with pytest.raises(ValueError, match="no completed"):
        refine(sheet, [measured(2.0, outcome=Outcome.OOM)], lambda record: record)
    with pytest.raises(ValueError, match="times as fast"):
        refine(sheet, [measured(20.0)], lambda record: measured(2.0))


def attention_s(sheet: GpuSheet, backend: str, dtype: torch.dtype = torch.float16, length: int = 8192) -> float:
    """Seconds of one call on a simulated card."""
    with Simulation(sheet) as sim:
        query = torch.empty(1, length, 16, 128, dtype=dtype, device="sim")
        torch.sim.synchronize()
        before = sim.machine.host_s
        attend(query, query, query, backend=backend)
        torch.sim.synchronize()
        return sim.machine.host_s - before


def test_attention_rates_of_a_simulated_card_find_its_own_times_again(tmp_path):
    sizes = dataclasses.replace(SMALL, attention=True, products=(8192,))
    with Simulation("l40s"):
        made = calibrate("sim", name="mine", sizes=sizes)
    assert {"_native_flash", "_native_math"} <= set(made.gpu.attention_flops_per_s) == set(made.attention_flops_per_s)
    sheet, read = load_gpu("l40s"), load_gpu(str(made.write(tmp_path)[0]))
    assert read.attention_flops_per_s == made.attention_flops_per_s
    for backend in ("_native_flash", "native"):
        assert attention_s(read, backend) == pytest.approx(attention_s(sheet, backend), rel=0.06)


def test_a_measured_backend_sets_its_own_level_and_no_other():
    sheet = load_gpu("l40s")
    with Simulation(sheet):
        rates = attention_rates(Stopwatch.on(torch.device("sim")), torch.bfloat16)
    twice = dataclasses.replace(sheet, attention_flops_per_s={"_native_flash": 2 * rates["_native_flash"]})
    for length in (4096, 16384):
        plain, fast = (attention_s(one, "_native_flash", length=length) for one in (sheet, twice))
        assert plain / fast == pytest.approx(2.0, rel=0.1)
    assert attention_s(twice, "native") == pytest.approx(attention_s(twice, "_native_flash"), rel=0.02)
    assert attention_s(twice, "_native_math") == attention_s(sheet, "_native_math")
    assert attention_s(twice, "_native_math", torch.float32) == attention_s(sheet, "_native_math", torch.float32)
