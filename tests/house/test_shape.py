"""The habits of the house, held by counting: short files and functions, a first line that says the idea, public names."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for package in ("harness", "strategies", "attention") for path in sorted((ROOT / package).rglob("*.py"))]
IDS = [str(path.relative_to(ROOT)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_file_is_one_idea(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "line 1 says what the file is for"
    assert text.count("\n") <= 300
    assert path.stem != "utils"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_functions_are_short_and_typed(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_public_names_are_listed_and_exist(path):
    tree = ast.parse(path.read_text())
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in defined if not name.startswith("_")}
    listed = [n for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"]
    if not listed:
        assert not public, f"no __all__, but it defines {sorted(public)}"
        return
    assert public <= set(ast.literal_eval(listed[0].value))


def test_every_folder_of_code_is_packaged():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(config["tool"]["setuptools"]["packages"])
    for folder in {path.parent.relative_to(ROOT) for path in FILES}:
        assert "paretune." + ".".join(folder.parts) in packages


def test_every_dependency_is_pinned():
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*config["dependencies"], *(d for e in config["optional-dependencies"].values() for d in e)]
    names = {d.split(";")[0].split("[")[0].split(">")[0].split("=")[0].strip().lower() for d in wanted}
    assert names - pinned <= {"paretune", "flash-attn", "sageattention"}, "pin it in constraints.txt"
