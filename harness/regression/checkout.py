"""The base of a comparison: a folder that is checked out already, or a revision unpacked from git for as long as needed."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from paretune.harness.usage import UsageError

__all__ = ["checked_out"]


def checked_out(base: str, scratch: Path) -> Path:
    """The folder ``base``; else the revision of that name, unpacked under ``scratch``; the repository stays as it is.

    Of a repository the part below the current folder is taken, as that is what the head is run from.
    Raises ``UsageError`` when it is neither.
    """
    if base and Path(base).is_dir():
        return Path(base)
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if found is None:
        raise UsageError(
            f"--base {base}: no such folder, and no such revision in git here. Name a checkout, a branch, a tag or a "
            "commit; in a shallow clone, fetch it first (fetch-depth: 0 in a GitHub job)."
        )
    commit = found.decode().strip()
    archive = _git("archive", "--format=tar", commit)
    if archive is None:
        raise UsageError(f"--base {base}: git cannot unpack {commit[:12]} here. Is the current folder part of it?")
    folder = scratch / f"base-{commit[:12]}"
    folder.mkdir()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as packed:
            packed.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise UsageError(f"--base {base}: {commit[:12]} holds nothing that can be unpacked here ({error}).") from error
    return folder


def _git(*arguments: str) -> bytes | None:
    """What git prints, ``None`` when it fails or is not there."""
    try:
        found = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return None if found.returncode else found.stdout
