"""Keep records as append-only JSON lines: one line per trial, on disk before the next trial starts, never rewritten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from paretune.harness.lock import locked
from paretune.harness.records import Record

__all__ = ["FILE_NAME", "Store"]

FILE_NAME = "records.jsonl"


class Store:
    """The records of a study, or of a machine.

    path: a ``.jsonl`` file, or a folder in which ``records.jsonl`` is kept. It need not exist before the first append.

    Several processes may append at once. A torn last line (the writer was killed) is not an error: it is reported like
    any other damaged line, in ``problems`` and with its number, skipped, and left as it is.
    """

    def __init__(self, path: str | Path) -> None:
        given = Path(path)
        self.path = given if given.suffix == ".jsonl" else given / FILE_NAME
        self.problems: tuple[str, ...] = ()

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on disk. Raises ``OSError`` when it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = record.to_json().encode() + b"\n"
        with locked(self.path), self.path.open("ab") as handle:
            if _ends_torn(self.path):
                line = b"\n" + line
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())

    def records(self) -> list[Record]:
        """Every readable record in the order written; ``problems`` then tells which lines are not."""
        problems: list[str] = []
        found = list(self._read(problems))
        self.problems = tuple(problems)
        return found

    def _read(self, problems: list[str]) -> Iterator[Record]:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                yield Record.from_json(line.decode())
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"{self.path}:{number}: not a readable record ({error}); skipped and left as it is.")

    def find(self, key: str) -> Record | None:
        """The newest record with this key, ``None`` when there is none."""
        return self.by_key().get(key)

    def by_key(self) -> dict[str, Record]:
        """The newest record of every key."""
        return {record.key: record for record in self.records()}


def _ends_torn(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0:
        return False
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) != b"\n"
