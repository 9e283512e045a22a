"""The guide and the example job name only commands and options that there are, and promise only what is computed."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path

import pytest
import torch
import typer
import yaml
from typer.main import get_command

from paretune.harness import regression
from paretune.harness.cli import COMMANDS
from paretune.harness.regression.latency import DEFAULT_SPREAD
from paretune.harness.stats import pairs_needed
from paretune.harness.workloads import function

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
    told = re.search(
        r"by ([\d.]+) % between processes, (\d+) pairs show a slowdown of 5 % and (\d+) pairs one of 2 %", GUIDE
    )
    spread, *pairs = told.groups()
    assert float(spread) / 100 == DEFAULT_SPREAD
    assert [int(n) for n in pairs] == [pairs_needed(effect, DEFAULT_SPREAD) for effect in (0.05, 0.02)]


def test_the_example_of_a_workload_is_one():
    code = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
    package = types.ModuleType("my_package")
    package.build_model = lambda: torch.nn.Identity()
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "my_package", package)
        exec(code, names)
        built = function._understood("my_model:workload", names["workload"](), "forward")
    assert list(built.call) == ["x"]
