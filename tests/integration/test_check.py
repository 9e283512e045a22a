"""The gate from end to end: planted regressions are caught in the right metric and named; exit statuses and files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from support.records import GIB, GROUPED, failed, record, study

from paretune.harness import runner
from paretune.harness.cli import main
from paretune.harness.regression import baseline

QUIET = {"GITHUB_ACTIONS": "", "GITHUB_STEP_SUMMARY": ""}


@pytest.fixture
def head(monkeypatch):
    """Records that measuring again yields, by plan; those of the small study unless a test changes them."""
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    yields = {r.plan: r for r in study()}
    monkeypatch.setattr(runner, "run_trial", lambda trial: yields[trial.plan])
    return yields


@pytest.fixture
def committed(tmp_path):
    path = tmp_path / "baseline.jsonl"
    baseline.write(path, study())
    return path


def check(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["check", *map(str, arguments)])
    return ended.value.code or 0


def test_nothing_changed_is_zero_and_silent(head, committed, capsys):
    assert check("--baseline", committed) == 0
    assert capsys.readouterr().out.splitlines() == ["pass: nothing changed in 74 metrics of 6 plans."]


def test_a_regression_is_one_and_named_in_every_output(head, committed, tmp_path, capsys):
    head[GROUPED] = failed(GROUPED)
    files = [tmp_path / "out" / name for name in ("junit.xml", "summary.md", "all.json")]
    assert check("--baseline", committed, "--junit", files[0], "--summary", files[1], "--json", files[2]) == 1
    assert "used to fit, now out of memory" in capsys.readouterr().out
    assert ET.parse(files[0]).getroot().get("failures") == "1"
    assert "used to fit" in files[1].read_text()
    assert json.loads(files[2].read_text())["exit_status"] == 1


def test_inside_a_github_job_summary_and_annotations_appear_unasked(head, committed, tmp_path, capsys, monkeypatch):
    head["resident"] = record(peak_gib=9.0)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert check("--baseline", committed) == 1
    assert "::error title=peak_allocated_bytes of toy-dit" in capsys.readouterr().out
    assert (tmp_path / "step.md").read_text().startswith("## paretune check")


@pytest.mark.parametrize("arguments", [["--baseline", "none.jsonl"], [], ["--baseline", "x.jsonl", "--pairs", "0"]])
def test_usage_errors_are_two(head, tmp_path, monkeypatch, arguments, capsys):
    monkeypatch.chdir(tmp_path)
    assert check(*arguments) == 2
    assert capsys.readouterr().err


def test_time_of_simulated_plans_is_refused_and_tight_tolerances_too(head, committed, tmp_path, capsys):
    assert check("--baseline", committed, "--base", tmp_path) == 2
    measured = tmp_path / "measured.jsonl"
    baseline.write(measured, [record(kind="measured", device="cpu")])
    assert check("--baseline", measured, "--base", tmp_path, "--tolerance", "0.02") == 2
    assert "16 pairs of processes can only show 2.4%" in capsys.readouterr().err
    assert check("--baseline", measured, "--base", tmp_path, "--pairs", "9", "--max-pairs", "5") == 2
    assert "--max-pairs 5 is below --pairs 9" in capsys.readouterr().err
    assert check("--baseline", measured, "--base", "no-such-branch") == 2
    assert "no such revision in git here" in capsys.readouterr().err
    assert check("--baseline", measured, "--base", tmp_path, "--self-test") == 2


def test_timed_trials_never_run_side_by_side(head, tmp_path, capsys):
    measured = tmp_path / "measured.jsonl"
    baseline.write(measured, [record(kind="measured", device="cpu")])
    assert check("--baseline", measured, "--workers", 2) == 2
    assert "side by side" in capsys.readouterr().err


def test_fewer_records_than_expected_is_three(head, committed, tmp_path):
    few = tmp_path / "few.jsonl"
    baseline.write(few, study()[:3])
    assert check("--baseline", committed, "--records", few) == 3


def test_updating_needs_a_reason_for_worse_and_none_for_better(head, committed, capsys):
    head["resident"] = record(peak_gib=9.0)
    assert check("--baseline", committed, "--update") == 2
    assert "--because" in capsys.readouterr().err
    assert check("--baseline", committed, "--update", "--because", "exact masks need it") == 0
    kept = {r.plan: r for r in baseline.read(committed)}
    assert kept["resident"].peak_allocated_bytes == 9 * GIB
    assert kept["resident"].facts["accepted_because"] == "exact masks need it"
    assert check("--baseline", committed) == 0


def test_a_first_baseline_is_made_from_a_list_of_plans(head, committed, tmp_path, capsys):
    fresh = tmp_path / "new" / "b.jsonl"
    assert check("--baseline", fresh, "--update") == 2
    assert check("--baseline", fresh, "--update", "--records", committed) == 0
    assert fresh.read_text() == committed.read_text()


def test_compare_shows_both_sides_and_exits_like_check(tmp_path, capsys):
    one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    baseline.write(one, study())
    baseline.write(other, [record(latency_s=3.0), *study()[1:]])
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(one), str(other)])
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert "1.50x" in out and "latency_s 2.00 s -> 3.00 s (+50.00%)" in out


def test_compare_refuses_what_is_no_source(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", "nowhere", "x:y"])
    assert ended.value.code == 2 and "no such file or folder" in capsys.readouterr().err


def test_show_history_and_report_read_the_same_files(committed, tmp_path, capsys):
    for words in (
        ["show", str(committed), "--budget", "7GiB"],
        ["history", str(committed), "--metric", "peak_allocated_bytes"],
        ["report", str(committed), "--output", str(tmp_path / "r.html")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    out = capsys.readouterr().out
    assert "fits 7.00 GiB" in out and "no change point" in out and (tmp_path / "r.html").exists()
