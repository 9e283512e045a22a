"""Published rows become simulated runs or a reason, units meet, and summaries count what they say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from paretune.harness.records import Kind, Outcome, Phase, Record
from paretune.harness.validation.applied_by_others import technique_of
from paretune.harness.validation.compare import RowResult, compare
from paretune.harness.validation.express import CannotExpress, express
from paretune.harness.validation.report import markdown
from paretune.harness.validation.rows import COLUMNS, PublishedRow, read_rows
from paretune.harness.validation.summary import errors_of, kendall_tau, ratios, summarise
from paretune.harness.validation.uncertainty import learn, relative_uncertainty

GIB = 2**30
BASE = {
    "id": "od-1", "source": "a repository", "source_ref": "table 1", "model": "FLUX.1-dev", "pipeline": "FluxPipeline",
    "gpu": "RTX 4090", "dtype": "bf16", "resolution_or_frames": "1024x1024", "batch": "1", "steps": "28",
    "config": "offload=none;casting=none", "metric": "peak_allocated_gb", "value": "33.8", "unit_note": "GB=2^30", "notes": "",
}  # fmt: skip


def table(tmp_path: Path, *changes: dict[str, str]) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([{**BASE, **change} for change in changes])
    return path


def row(tmp_path: Path, **changes: str) -> PublishedRow:
    (read,), _ = read_rows(table(tmp_path, changes))
    return read


def record(**peaks: int) -> Record:
    return Record(
        kind=Kind.SIMULATED,
        outcome=Outcome.COMPLETE,
        workload={},
        device="sim:t4",
        plan="",
        latency_s=(4.0,),
        step_latency_s=(0.5,) * 4,
        phases={"denoise": Phase(duration_s=2.0)},
        **peaks,  # type: ignore[arg-type]
    )


def result(published: float, simulated: float, strategy: str = "resident", **more: object) -> RowResult:
    shared = {"id": "a-1", "source": "s", "family": "a", "part": "fit", "model": "m", "gpu": "g", "metric": "latency_s"}
    return RowResult(**{**shared, "kind": "time", **more}, published=published, simulated=simulated, strategy=strategy)  # type: ignore[arg-type]


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,value\na,1\n")
    with pytest.raises(ValueError, match="no column source"):
        read_rows(path)


def test_rows_without_a_number_are_listed(tmp_path: Path) -> None:
    rows, refused = read_rows(table(tmp_path, {"value": "about 30"}, {"value": "-1"}, {}))
    assert len(rows) == 1
    assert [reason for _, reason in refused] == ["value 'about 30' is not a number", "value -1.0 is not positive"]


def test_a_row_becomes_a_run(tmp_path: Path) -> None:
    case = express(row(tmp_path, config="offload=group_block4+stream+record_stream;tiling=vae", steps="20"))
    assert (case.workload, case.gpu, dict(case.overrides)) == (
        "flux.1-dev",
        "rtx-4090",
        {"height": 1024, "width": 1024, "steps": 20},
    )
    technique = case.technique
    assert (technique.offload, technique.num_blocks, technique.use_stream, technique.record_stream) == (
        "block",
        4,
        True,
        True,
    )
    assert technique.vae_tiling


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "NoSuchModel"}, "no architecture file for NoSuchModel"),
        ({"gpu": "GTX 1080"}, "no data sheet for GTX 1080"),
        ({"config": "quantization=bnb_nf4"}, "quantised by bnb_nf4"),
        ({"config": "cache=first_block_cache"}, "cache=first_block_cache is no strategy"),
        ({"metric": "tflops"}, "metric tflops"),
        ({"config": "offload=own"}, "not one that this simulator applies"),
        ({"resolution_or_frames": "not stated"}, "size of the picture or video is not stated"),
        ({"resolution_or_frames": "model default"}, "size of the picture or video is not stated"),
        ({"metric": "latency_s", "value": "3", "unit_note": "s (tqdm, 1 s resolution)"}, "coarser than the error"),
        ({"metric": "latency_s", "notes": "single run"}, "whether a warm one is not stated"),
        ({"metric": "latency_s", "unit_note": "s (first call, cold; sets up)"}, "a cold run"),
        ({"config": "offload=group_leaf+stream(assumed from the code)"}, "guessed by whoever collected"),
        ({"config": "attention=Sage2-8b"}, "routed by another library's own code"),
        ({"gpu": "AMD Instinct MI250 (not stated)"}, "no data sheet for AMD"),
        ({"notes": "memory kind not stated in the table"}, "kind of the peak is not stated"),
        ({"metric": "latency_s", "notes": "claimed at 20 steps"}, "a claim"),
        ({"notes": "unmatched modules stay in one group at that revision"}, "older revision"),
        ({"metric": "latency_s", "steps": "see config"}, "number of steps is not stated"),
        ({"model": "sdxl-vae-fp16-fix", "dtype": "not stated"}, "dtype is not stated"),
    ],
)
def test_what_cannot_be_expressed_says_why(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        express(row(tmp_path, **changes))


def test_whole_seconds_are_compared_where_they_are_fine_enough(tmp_path: Path) -> None:
    assert express(row(tmp_path, metric="latency_s", value="16", unit_note="s (tqdm, 1 s resolution)"))


@pytest.mark.parametrize(
    ("pipeline", "workload", "inputs"),
    [
        ("AutoencoderKL.decode", "sd-vae-decode", (("z", (2, 4, 64, 96)),)),
        ("AutoencoderKL.encode", "sd-vae-encode", (("x", (2, 3, 512, 768)),)),
    ],
)
def test_an_autoencoder_runs_at_the_published_size(
    tmp_path: Path, pipeline: str, workload: str, inputs: tuple[tuple[str, tuple[int, ...]], ...]
) -> None:
    changes = {"model": "sd-vae-ft-mse", "pipeline": pipeline, "resolution_or_frames": "512x768", "batch": "2"}
    case = express(row(tmp_path, dtype="not stated (fp16 likely)", **changes))
    assert (case.workload, case.inputs, case.overrides) == (workload, inputs, ())


def test_a_dtype_other_than_the_model_file_s_is_asked_for(tmp_path: Path) -> None:
    assert dict(express(row(tmp_path, dtype="fp16")).overrides)["dtype"] == "float16"
    assert "dtype" not in dict(express(row(tmp_path, dtype="bf16")).overrides)


@pytest.mark.parametrize(
    "name", ["group_leaf", "group_leaf+stream", "group_leaf+stream+record_stream+disk", "model", "sequential"]
)
def test_offload_words_are_understood(name: str) -> None:
    technique = technique_of({"offload": name}, "FLUX.1-dev")
    assert technique is not None
    assert technique.use_stream == ("+stream" in name)
    assert technique.to_disk == name.endswith("disk")


@pytest.mark.parametrize(
    ("changes", "kind", "published", "simulated"),
    [
        ({}, "allocated", 33.8 * GIB, 10.0),
        ({"unit_note": "GB=10^9"}, "allocated", 33.8e9, 10.0),
        ({"metric": "peak_reserved_gb"}, "reserved", 33.8 * GIB, 20.0),
        ({"metric": "peak_gb_unspecified", "unit_note": "GB=2^30 (NVML)"}, "used", 33.8 * GIB, 30.0),
        ({"metric": "peak_gb_unspecified", "unit_note": "5 % x 24211 MiB (card total)"}, "reserved", 33.8 * GIB, 20.0),
        ({"metric": "peak_gb_unspecified", "unit_note": "45.30% x 10003 MiB"}, "reserved", 33.8 * GIB, 20.0),
        ({"metric": "peak_gb_unspecified", "unit_note": "3.51901% x 24211 MiB"}, "allocated", 33.8 * GIB, 10.0),
        ({"metric": "latency_s", "value": "8"}, "time", 8.0, 4.0),
        ({"metric": "latency_s", "value": "2", "unit_note": "s per iteration"}, "time", 2.0, 0.5),
        ({"metric": "latency_s", "value": "2", "unit_note": "s (denoising loop only)"}, "time", 2.0, 2.0),
        ({"metric": "it_per_s", "value": "2"}, "time", 0.5, 0.5),
        ({"metric": "latency_s", "value": "10", "unit_note": "s for 5 forwards"}, "time", 2.0, 4.0),
    ],
)
def test_units_meet(tmp_path: Path, changes: dict[str, str], kind: str, published: float, simulated: float) -> None:
    simulation = record(peak_allocated_bytes=10, peak_reserved_bytes=20, peak_used_bytes=30)
    found = compare(row(tmp_path, **changes), simulation, part="fit", case="c", is_card_known=True)
    assert (found.kind, found.published, found.simulated) == (kind, pytest.approx(published), simulated)
    assert found.to_json()["published"] == pytest.approx(float(changes.get("value", "33.8")))


def test_errors_are_counted() -> None:
    errors = errors_of([0.1, -0.2, 0.3])
    assert (errors.count, errors.median, errors.largest, errors.bias) == (3, 0.2, 0.3, 0.1)


def test_order_and_ratios_compare_within_one_card() -> None:
    assert kendall_tau([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(1 / 3)
    rows = [result(1.0, 2.0), result(4.0, 8.0, "offload=model"), result(9.0, 18.0, "offload=model", gpu="other")]
    assert ratios(rows) == [0.0]


def test_the_report_says_what_was_missed() -> None:
    rows = [
        result(1.0, 1.5),
        result(2.0, 2.2, "offload=model"),
        result(3.0, 3.3, "offload=sequential", is_card_known=True),
    ]
    text = markdown(summarise(rows, unread=[("x-1", "value is not a number")]))
    assert "| time | 3 | 10.0% | 15.0% | 50.0% | - | reached |" in text
    assert "value is not a number" in text
    assert "Kendall tau" in text


def test_uncertainty_is_learnt_by_kind_and_has_a_floor_of_rows() -> None:
    rows = [result(1.0, 1.0 + error / 100) for error in range(10)] + [result(1.0, 2.0, "offload=model")]
    learnt = learn(rows)["latency_s"]
    assert learnt["resident"] == pytest.approx(0.09)
    assert "pageable" not in learnt
    assert relative_uncertainty("resident").keys() <= {
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "peak_used_bytes",
        "latency_s",
    }


@pytest.mark.parametrize(
    ("stated", "sheet"),
    [
        ("RTX 4070 Ti SUPER 16GB", "rtx-4070-ti-super"),
        ("RTX 4070", "rtx-4070"),
        ("GeForce RTX3060 Ti", "rtx-3060-ti"),
        ("NVIDIA L4 24GB", "l4"),
        ("L40S 48GB", "l40s"),
        ("RTX A6000 48GB", "rtx-a6000"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("H20 96GB", "h20"),
        ("H200", "h200"),
        ("RTX 4090 Laptop GPU", None),
        ("L40 48GB", None),
    ],
)
def test_a_stated_card_is_found_by_its_whole_name(tmp_path: Path, stated: str, sheet: str | None) -> None:
    published = row(tmp_path, gpu=stated)
    if sheet is None:
        with pytest.raises(CannotExpress, match="no data sheet"):
            express(published)
    else:
        assert (express(published).gpu, express(published).is_card_known) == (sheet, True)
