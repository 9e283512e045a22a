"""Read records for a report: a study folder or a file, with what could not be read told apart."""

from __future__ import annotations

from pathlib import Path

from paretune.harness.records import Record
from paretune.harness.store import Store
from paretune.harness.usage import UsageError

__all__ = ["read_records"]


def read_records(path: Path) -> tuple[list[Record], tuple[str, ...]]:
    """Records and the problems met. Raises ``UsageError`` when there is no such file or no record in it."""
    store = Store(path)
    if not store.path.is_file():
        raise UsageError(f"{path}: no records there. Give a study folder (with {store.path.name}) or a .jsonl file.")
    records = store.records()
    if not records:
        raise UsageError(f"{path}: holds no readable record. {' '.join(store.problems[:3])}".rstrip())
    return records, store.problems
