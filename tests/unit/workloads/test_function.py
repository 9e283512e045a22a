"""Workloads that a user's own function makes, also beside files that are called like our packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paretune.harness.workloads import WorkloadError, workload_named

CPU = torch.device("cpu")
MODULE = """
import torch
import attention, strategies

def make(width=4):
    assert attention.WHO == strategies.WHO == "theirs"
    return torch.nn.Linear(width, 2), {"input": torch.ones(1, width)}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("attention", "strategies"):
        (tmp_path / f"{name}.py").write_text('WHO = "theirs"\n')
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("attention", "strategies", "mine", "odd", "pipe"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("spelling", ["{home}/mine.py:make", "mine:make"])
def test_their_own_modules_are_the_ones_it_imports(home: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    monkeypatch.chdir(home)
    workload = workload_named(spelling.format(home=home))
    output = workload.run(workload.load(), device=CPU)
    assert output.shape == (1, 2)
    assert workload.phases == ("forward",)
    again = workload_named(spelling.format(home=home))
    assert torch.equal(again.run(again.load(), device=CPU), output)


def test_a_process_that_has_used_our_packages_still_imports_theirs(home: Path) -> None:
    code = (
        "import torch, paretune.attention, paretune.strategies\n"
        "from paretune.harness.workloads import workload_named\n"
        "workload = workload_named('mine:make')\n"
        "print(tuple(workload.run(workload.load(), device=torch.device('cpu')).shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 2)\n", done.stderr


def test_arguments_reach_the_function(home: Path) -> None:
    workload = workload_named({"name": f"{home}/mine.py:make", "arguments": {"width": 7}})
    assert workload.load().in_features == 7


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "{home}/mine.py:missing"}, "no function 'missing'"),
        ({"name": "{home}/absent.py:make"}, "does not exist"),
        ({"name": "no_such_module:make"}, "no module 'no_such_module'"),
        ({"name": "{home}/mine.py:make", "arguments": {"wide": 7}}, "workload.arguments.*wide"),
        ({"name": "{home}/mine.py:make", "dtype": "float16"}, "workload.dtype"),
        ({"name": "{home}/mine.py:make", "variant": "fp16"}, "workload.variant"),
        ({"name": "{home}/mine.py:make", "steps": 3}, "workload.steps: the call does not take it"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key(home: Path, asked: dict[str, object], said: str) -> None:
    asked = {**asked, "name": str(asked["name"]).format(home=home)}
    with pytest.raises(WorkloadError, match=said):
        workload_named(asked).load()


@pytest.mark.parametrize("returned", ["torch.nn.Linear(1, 1)", "42", "(42, {})"])
def test_a_return_value_that_cannot_be_called_is_refused(home: Path, returned: str) -> None:
    (home / "odd.py").write_text(f"import torch\ndef make():\n    return {returned}\n")
    with pytest.raises(WorkloadError, match="returns a"):
        workload_named(f"{home}/odd.py:make").load()


def test_a_pipeline_of_the_users_runs_with_its_own_arguments(home: Path) -> None:
    (home / "pipe.py").write_text(
        "from paretune.harness.workloads import workload_named\n"
        "def make():\n    return workload_named('sd1.5-tiny').load(), {'height': 32, 'width': 32}\n"
    )
    workload = workload_named({"name": f"{home}/pipe.py:make", "steps": 2})
    assert workload.run(workload.load(), device=CPU).shape == (1, 3, 32, 32)
    assert workload.phases == ("encode", "denoise", "decode")
