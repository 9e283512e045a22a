"""Time of a user's own model, base and head from git: what is slower is named, and the head never passes for the base."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest
from support.records import record

from paretune.harness import runner
from paretune.harness.cli import main
from paretune.harness.regression import baseline

MODEL = """
import torch


class Turns(torch.nn.Module):
    def forward(self, x):
        for _ in range({turns}):
            x = x @ x
        return x


def workload():
    return Turns(), {{"x": torch.eye(64)}}
"""

QUICK = ("--pairs", "4", "--max-pairs", "4", "--rounds", "3", "--tolerance", "0.3")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository whose only commit is the base; the model of the head lies in its folder, measured once."""
    folder = tmp_path / "project"
    (folder / "ci").mkdir(parents=True)
    (folder / "slow_model.py").write_text(MODEL.format(turns=40))
    (folder / "README.md").write_text("Turns a matrix.")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", "base"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    committed = record(kind="measured", device="cpu", workload={"name": "slow_model:workload"})
    baseline.write(folder / "ci" / "cpu.jsonl", [committed])
    monkeypatch.chdir(folder)
    monkeypatch.setattr(runner, "run_trial", lambda trial: committed)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def check(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["check", "--baseline", "ci/cpu.jsonl", *arguments])
    return ended.value.code or 0


def test_a_slower_head_is_one_and_named_everywhere(project, capsys):
    (project / "slow_model.py").write_text(MODEL.format(turns=160))
    outputs = ("--junit", "out/j.xml", "--json", "out/j.json", "--summary", "out/s.md")
    assert check("--base", "HEAD", *QUICK, *outputs) == 1
    said = capsys.readouterr()
    assert "processor time SLOW" in said.out and "8 pairs of processes" in said.out
    assert "4 pairs of processes can show a slowdown of 4.9%" in said.err
    document = json.loads((project / "out" / "j.json").read_text())
    assert document["exit_status"] == 1 and document["detectable_slowdown"] == pytest.approx(0.0487, abs=0.001)
    failures = ET.parse(project / "out" / "j.xml").getroot().iter("failure")
    assert "slow" in {failure.get("type") for failure in failures}
    assert "processor time SLOW" in (project / "out" / "s.md").read_text()
    changed = subprocess.run(["git", "status", "--short", "slow_model.py"], cwd=project, capture_output=True, text=True)
    assert changed.stdout.split() == ["M", "slow_model.py"]  # the working tree was left alone


def test_a_self_test_is_never_an_alarm_and_says_what_can_be_seen_here(project, capsys):
    assert check("--self-test", *QUICK) in (0, 3)
    assert "equal code differed by" in capsys.readouterr().err


def test_a_base_that_imports_the_heads_code_is_not_compared(project, capsys, monkeypatch):
    """As with a project installed in place: two sides that run the same file would always agree."""
    subprocess.run(["git", "rm", "-q", "--cached", "slow_model.py"], cwd=project, check=True)
    identity = ("-c", "user.name=n", "-c", "user.email=e@x")
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "moved"], cwd=project, check=True)
    monkeypatch.setenv("PYTHONPATH", str(project))
    assert check("--base", "HEAD", *QUICK) == 3
    assert "which is the head's" in capsys.readouterr().out
