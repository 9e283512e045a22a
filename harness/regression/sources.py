"""Where the two sides of a comparison come from: a study folder, a file, or a file as it was at a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from paretune.harness.records import Record
from paretune.harness.report.reading import read_records
from paretune.harness.usage import UsageError

__all__ = ["records_of"]


def records_of(source: str) -> list[Record]:
    """Records of a path, or of ``COMMIT:PATH``, read from git. Raises ``UsageError``.

    Of each plan the newest record counts; a damaged line is refused, because what it held cannot be compared.
    """
    if Path(source).exists():
        records, problems = read_records(Path(source))
    else:
        records, problems = _at_commit(source)
    if problems:
        raise UsageError(f"{source} is damaged: {' '.join(problems)}")
    from paretune.harness.regression.identity import identity

    return list({identity(record): record for record in records}.values())


def _at_commit(source: str) -> tuple[list[Record], tuple[str, ...]]:
    commit, colon, path = source.partition(":")
    if not colon or not path or commit.startswith("-"):
        raise UsageError(f"{source!r}: no such file or folder. Give one, or COMMIT:PATH for a file in git.")
    found = subprocess.run(["git", "show", f"{commit}:./{path}"], capture_output=True, check=False)
    if found.returncode:
        raise UsageError(f"{source!r}: {found.stderr.decode(errors='replace').strip()}")
    records, problems = [], []
    for number, line in enumerate(found.stdout.decode(errors="replace").splitlines(), start=1):
        try:
            records.append(Record.from_json(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"line {number}: not a readable record ({error}).")
    return records, tuple(problems)
