"""The base of a comparison: a folder, or what git had; anything else is told, and the repository is left alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types

import pytest

from paretune.harness.regression import pair_worker
from paretune.harness.regression.checkout import checked_out
from paretune.harness.usage import UsageError


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *words], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits of a file, a part of its own below, and a change that is not committed."""
    folder = tmp_path / "repository"
    (folder / "part").mkdir(parents=True)
    git(folder, "init", "-q")
    for text in ("old", "new"):
        (folder / "model.py").write_text(text)
        (folder / "part" / "inner.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", text)
    git(folder, "tag", "v1", "HEAD~1")
    (folder / "model.py").write_text("not committed")
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(("base", "text"), [("HEAD", "new"), ("HEAD~1", "old"), ("v1", "old")])
def test_a_revision_is_unpacked_as_it_was(repository, tmp_path, base, text):
    folder = checked_out(base, tmp_path / "scratch")
    assert (folder / "model.py").read_text() == text
    assert (repository / "model.py").read_text() == "not committed"
    assert not list((repository / ".git").glob("worktrees/*"))


def test_below_the_root_only_that_part_is_taken(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(repository / "part")
    folder = checked_out("v1", tmp_path / "scratch")
    assert [path.name for path in folder.iterdir()] == ["inner.py"]


def test_a_folder_is_taken_as_it_is(repository, tmp_path):
    assert checked_out(str(repository), tmp_path / "scratch") == repository


@pytest.mark.parametrize("base", ["nowhere", "--help", "-x", "", "HEAD:model.py"])
def test_what_is_neither_is_named(repository, tmp_path, base):
    with pytest.raises(UsageError, match="no such folder, and no such revision"):
        checked_out(base, tmp_path / "scratch")


def test_a_revision_without_files_is_no_base(repository, tmp_path):
    git(repository, "rm", "-rq", "--cached", ".")
    git(repository, "commit", "-q", "-m", "empty")
    with pytest.raises(UsageError, match="holds nothing"):
        checked_out("HEAD", tmp_path / "scratch")


def test_outside_a_repository_a_revision_means_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="no such revision in git here"):
        checked_out("HEAD", tmp_path)


@pytest.mark.parametrize(
    ("file", "is_refused"),
    [
        ("{head}/model.py", True),
        ("{head}/base/model.py", False),
        ("{head}/.venv/lib/python3/site-packages/torch/__init__.py", False),
        ("_ops.py", False),
        ("/elsewhere/model.py", False),
        (None, False),
    ],
)
def test_only_code_of_the_head_is_refused_in_the_base(tmp_path, monkeypatch, file, is_refused):
    module = types.ModuleType("of_a_side")
    module.__file__ = file and file.format(head=tmp_path)
    monkeypatch.setitem(sys.modules, "of_a_side", module)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="of_a_side") if is_refused else contextlib.nullcontext():
        pair_worker._refuse_code_of(tmp_path, own=tmp_path / "base")
