"""How pairs become findings: which clock decides, when more are measured, and that nothing measured is no pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.records import failed, record

from paretune.harness.records import Kind
from paretune.harness.regression.findings import Status, exit_status
from paretune.harness.regression.gate import Request
from paretune.harness.regression.latency import Sensitivity
from paretune.harness.regression.sequential import settled
from paretune.harness.regression.sides import check_head, side
from paretune.harness.regression.timing import findings_of, time_findings
from paretune.harness.usage import UsageError

REQUEST = Request(baseline=Path("b.jsonl"), base="HEAD")
ON_CPU = record(kind=Kind.MEASURED, device="cpu")
SAME, SLOW = (1.0, 1.001, 0.999, 1.0), (1.3, 1.302, 1.299, 1.3)
NOISY = (0.7, 1.5, 1.1, 0.8)


def pairs(*heads):
    return [((1.0,) * 4, (head,) * 4) for head in heads]


def measured(wall, processor):
    taken = []

    def measure(confidence):
        taken.append(confidence)
        return {"wall": pairs(*wall), "processor": pairs(*processor)}

    return measure, taken


@pytest.mark.parametrize(
    ("wall", "processor", "statuses"),
    [
        (SAME, SAME, {"latency": Status.PASS, "processor_time": Status.PASS}),
        (NOISY, SAME, {"latency": Status.NOTE, "processor_time": Status.PASS}),
        (NOISY, SLOW, {"latency": Status.INCONCLUSIVE, "processor_time": Status.REGRESSION}),
        (SLOW, SAME, {"latency": Status.REGRESSION, "processor_time": Status.PASS}),
        (NOISY, NOISY, {"latency": Status.INCONCLUSIVE, "processor_time": Status.INCONCLUSIVE}),
    ],
)
def test_a_busy_machine_blurs_the_wall_clock_and_processor_time_decides(wall, processor, statuses):
    measure, taken = measured(wall, processor)
    assert {f.metric: f.status for f in findings_of(ON_CPU, measure, REQUEST)} == statuses
    assert len(taken) == 1 + (SLOW in (wall, processor))  # measured again once, and only to confirm


def test_a_device_is_judged_by_its_own_clock_alone():
    measure, _ = measured(SAME, SLOW)
    (finding,) = findings_of(record(kind=Kind.MEASURED, device="cuda"), measure, REQUEST)
    assert finding.metric == "latency" and finding.status is Status.PASS


def test_pairs_are_added_while_they_are_ambiguous_and_no_longer():
    def taken(*draws):
        asked, left = [], iter(draws)

        def draw(num_pairs):
            asked.append(num_pairs)
            return {"wall": pairs(*next(left)[:num_pairs])}

        settled(draw, clock="wall", num_pairs=4, max_pairs=10, sensitivity=Sensitivity())
        return asked

    assert taken(SAME) == [4]
    assert taken(SLOW) == [4]
    assert taken(NOISY, SAME, SAME) == [4, 4, 2]


@pytest.mark.parametrize("before", [[failed("resident", kind=Kind.MEASURED, device="cpu")], [record()], []])
def test_time_that_was_not_judged_is_no_pass(before, tmp_path):
    found = time_findings(before, REQUEST, base=tmp_path, scratch=tmp_path, tell=print)
    assert exit_status(found) == 3 and "none that completed on a real device" in found[0].text


def checkout(folder):
    for name in ("harness", "strategies", "attention", "configs"):
        (folder / name).mkdir(parents=True)
    return folder


def test_another_checkout_is_no_head_of_the_installed_code(tmp_path, monkeypatch):
    base, here = checkout(tmp_path / "base"), checkout(tmp_path / "here")
    monkeypatch.chdir(here)
    with pytest.raises(UsageError, match="not that of the current folder"):
        check_head(base)
    monkeypatch.chdir(tmp_path)
    check_head(base)


def test_a_users_base_is_imported_from_its_folder_and_its_src(tmp_path):
    (tmp_path / "src").mkdir()
    made = side(ON_CPU, checkout=tmp_path, scratch=tmp_path / "scratch")
    assert made.environment == {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(tmp_path / "src")])}
    assert made.folder == tmp_path
