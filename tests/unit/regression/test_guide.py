"""The guide and the example job name only commands and options that there are, and promise only what is computed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

from paretune.harness import regression
from paretune.harness.cli import COMMANDS
from paretune.harness.stats import pairs_needed

FOLDER = Path(regression.__file__).parent
GUIDE = (FOLDER / "GUIDE.md").read_text(encoding="utf-8")
WORKFLOW = (FOLDER / "example-workflow.yml").read_text(encoding="utf-8")
LINES = sorted({line.strip() for line in re.findall(r"paretune [a-z]+ [^`\n]*", GUIDE + WORKFLOW)})


def options(command):
    app = typer.Typer(add_completion=False)
    app.command()(importlib.import_module(f"paretune.harness.cli.{command}").command)
    return {name for parameter in get_command(app).params for name in parameter.opts}


def test_there_are_examples():
    assert len(LINES) >= 10


@pytest.mark.parametrize("line", LINES)
def test_every_command_and_option_exists(line):
    command = line.split()[1]
    assert command in COMMANDS
    assert set(re.findall(r"--[a-z-]+", re.sub(r'"[^"]*"', "", line))) <= options(command)


def test_the_example_is_a_job_that_runs_the_check():
    job = yaml.safe_load(WORKFLOW)["jobs"]["check"]
    assert any("paretune check --baseline" in step.get("run", "") for step in job["steps"])
    assert job["timeout-minutes"] > 0


def test_the_numbers_of_pairs_are_those_the_command_uses():
    told = re.search(r"(\d+) pairs show a slowdown of 10 %, (\d+) pairs one of 5 %, (\d+) pairs one of 2 %", GUIDE)
    assert [int(n) for n in told.groups()] == [pairs_needed(effect, 0.058) for effect in (0.10, 0.05, 0.02)]
