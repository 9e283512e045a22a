"""Files that ask several questions, and the shipped one with every example of the guides."""

from __future__ import annotations

from pathlib import Path

import pytest

from paretune.harness import config
from paretune.harness.config import ConfigError
from paretune.harness.scenarios import load_questions
from paretune.harness.workloads import workload_named
from paretune.strategies.plan import Plan


def test_every_shipped_example_names_a_workload_and_plans_that_exist() -> None:
    questions = load_questions("seed_scenarios")
    for asked in questions:
        assert workload_named(asked.spec.workload).spec["name"] == asked.spec.workload["name"]
        assert asked.spec.space.plans[0] == "resident"
        assert all(str(Plan.parse(plan)) for plan in asked.spec.space.plans)
    full = {asked.spec.workload["name"] for asked in questions if asked.spec.device.startswith("sim:")}
    small = {asked.spec.workload["name"] for asked in questions if asked.spec.device == "cpu"}
    assert small == {f"{name}-tiny" for name in full}


def written(folder: Path, text: str) -> str:
    (folder / "several.yaml").write_text(text)
    return str(folder / "several.yaml")


def test_keys_beside_the_questions_hold_for_all_and_overrides_win(tmp_path: Path) -> None:
    path = written(tmp_path, "device: cpu\nquestions:\n  - workload: sdxl\n  - {title: Two, workload: sd1.5}\n")
    first, second = load_questions(path, ["device=sim:t4"])
    assert (first.title, second.title) == ("sdxl", "Two")
    assert first.spec.device == second.spec.device == "sim:t4"


def test_a_file_with_one_question_is_one_question(tmp_path: Path) -> None:
    (asked,) = load_questions(written(tmp_path, "workload: sdxl\n"))
    assert asked.spec == config.parse({"workload": "sdxl"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("questions: []", "a list of mappings"),
        ("questions: {a: 1}", "a list of mappings"),
        ("questions: [{workload: sdxl, devise: cpu}]", r"questions\.0.*`devise`.*`device`"),
    ],
)
def test_mistakes_are_named_with_their_entry(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_questions(written(tmp_path, text))


def test_commands_that_answer_one_question_refuse_several(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="paretune sweep"):
        config.load(written(tmp_path, "questions: [{workload: sdxl}]"))
