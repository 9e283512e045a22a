"""Imports run one way, help costs nothing, and the pure part needs no torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "harness": {"harness", "strategies", "attention", "configs"},
    "strategies": {"strategies", "attention"},
    "attention": {"attention"},
}
FILES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}: write paretune.PACKAGE..."
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    package = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[1] for name in imported(ast.parse(path.read_text())) if name.startswith("paretune.")}
    assert ours <= ALLOWED[package]


def modules_after(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "statement",
    [
        "from paretune.harness.cli import main; main(['--help'])",
        "from paretune.strategies import registry; registry()",
        "from paretune.strategies import Plan; Plan.parse('model_offload')",
        "from paretune.attention.catalog import catalog; catalog()",
        "import paretune.harness.spec, paretune.harness.config, paretune.harness.records, paretune.harness.pareto",
        "import paretune.harness.recommend, paretune.harness.planner, paretune.harness.runner",
        "import paretune.harness.report.table, paretune.harness.report.text, paretune.harness.store",
    ],
)
def test_the_pure_part_imports_no_torch(statement):
    loaded = modules_after(statement)
    assert not {"torch", "diffusers", "transformers"} & loaded


def test_help_does_not_even_import_the_parser():
    assert not {"typer", "pydantic", "pandas"} & modules_after(
        "from paretune.harness.cli import main; main(['--help'])"
    )


def test_the_parent_of_trials_touches_no_device():
    touched = (
        "import torch\n"
        "def refuse(*a): raise AssertionError('device initialised in the parent')\n"
        "torch.cuda._lazy_init = refuse\n"
        "import paretune.harness.runner, paretune.harness.forkserver\n"
        "from paretune.harness.devices import device_named\n"
        "device_named('cuda:0')"
    )
    assert "torch" in modules_after(touched)
