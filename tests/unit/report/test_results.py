"""The committed results: every file holds what its folder says, of one question, and nothing of the machine's own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support.records import record, study

from paretune.harness.records import Kind
from paretune.harness.report.ladder import rungs
from paretune.harness.store import Store
from paretune.harness.workloads.catalog import workload_names

RESULTS = Path(__file__).parents[3] / "results"
FILES = sorted([*(RESULTS / "simulated").glob("*/*.jsonl"), *(RESULTS / "cpu").glob("*.jsonl")])
KINDS = {"simulated": Kind.SIMULATED, "cpu": Kind.MEASURED}


def made():
    spec = importlib.util.spec_from_file_location("make_results", RESULTS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_file_holds_one_question_of_its_kind(path):
    store = Store(path)
    records = store.records()
    assert records and not store.problems
    kind, *card = path.relative_to(RESULTS).parts[:-1]
    assert {r.kind for r in records} == {KINDS[kind]}
    assert not card or {r.device.partition(",")[0] for r in records} == {f"sim:{card[0]}"}
    assert {r.workload["name"] for r in records} == {path.stem}
    assert len({r.plan for r in records}) == len(records)
    assert all(r.environment["versions"]["torch"] for r in records)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_no_folder_or_host_of_the_machine_that_made_it_is_told(path):
    text = path.read_text()
    assert not re.search(r"/(root|home|tmp|work|Users|mnt)/", text)
    assert not re.search(r'"(hostname|host_name|node|user|cwd)"', text)


def test_every_pipeline_of_full_size_gets_a_ladder():
    names = made().full_size_pipelines()
    assert {"flux.1-dev", "sdxl", "wan-2.1-14b"} <= set(names)
    assert set(names) <= set(workload_names()) and not any(name.endswith("-tiny") for name in names)


def test_a_cell_names_time_and_plan_and_says_where_nothing_fits():
    cell = made()._cell
    nothing, small = rungs([*study(), record("a:b(k=1) + c:d", latency_s=9.0)], ("1GiB", "3GiB"))
    assert cell(nothing) == "-"
    assert cell(small) == "3.00 s<br>group\\_offload leaf"
    many = "x:group_offload(level=leaf_level,k=1) + y:group_offload(level=leaf_level) + z:d"
    (rung,) = rungs([record(many, latency_s=9.0)], ("16GiB",))
    assert cell(rung) == "9.00 s<br>group\\_offload leaf + d"
