"""The README names commands, files and names that exist, and its programs compile."""

import re
from pathlib import Path

import pytest

import paretune.strategies
from paretune.harness.cli import COMMANDS
from paretune.strategies import Plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_command_is_in_its_table_or_its_code():
    told = set(re.findall(r"[a-z]+", README[README.index("## What the commands do") : README.index("## How to read")]))
    assert set(COMMANDS) - {"worker", "bench", "demo"} <= told
    assert set(re.findall(r"paretune ([a-z]+) ", README)) <= set(COMMANDS) | {"implements", "is", "measures"}


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_its_programs_compile_and_import_what_exists(code):
    compile(code, "README.md", "exec")
    for names in re.findall(r"from paretune\.strategies import (.+)", code):
        for name in names.split(","):
            assert hasattr(paretune.strategies, name.strip())


def test_every_file_it_points_to_exists():
    for path in re.findall(
        r"\]\(([^)#]+)\)|- `|`((?:harness|strategies|attention|configs|results)/[a-z_./]+)`", README
    ):
        for name in filter(None, path):
            assert (ROOT / name).exists(), name


def test_its_plans_can_be_read():
    plans = re.findall(r"^    ([a-z_]+:[a-z_]+\(.+)$", README, re.MULTILINE)
    assert plans
    for plan in plans:
        assert str(Plan.parse(plan)) == plan
