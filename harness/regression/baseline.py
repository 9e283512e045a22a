"""Read and write baselines: small, reviewable JSON lines; anything damaged, empty or doubled is refused."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paretune.harness.records import Record
from paretune.harness.regression.compare import by_identity
from paretune.harness.regression.identity import name_of
from paretune.harness.store import Store
from paretune.harness.usage import UsageError

__all__ = ["read", "slim", "write"]

_KEPT_ENVIRONMENT = ("versions", "processor", "num_cores", "settings", "device")
_MOST_TEXT = 2000


def read(path: Path) -> list[Record]:
    """Records of a baseline. Raises ``UsageError`` when it is missing, empty, damaged or holds a plan twice."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such baseline. Make it: paretune check --baseline {path} --update ...")
    store = Store(path) if path.suffix == ".jsonl" else None
    if store is None:
        raise UsageError(f"{path}: a baseline is a .jsonl file of records.")
    records = store.records()
    if store.problems:
        raise UsageError(f"a damaged baseline guards nothing: {' '.join(store.problems)}")
    if not records:
        raise UsageError(f"{path}: the baseline holds no record, so it would pass whatever happens.")
    by_identity(records, str(path))
    return records


def write(path: Path, records: Iterable[Record]) -> None:
    """Replace the baseline in one step, sorted by what was run so that a diff shows what moved."""
    lines = [slim(record).to_json() for record in sorted(records, key=name_of)]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text("".join(f"{line}\n" for line in lines))
    unfinished.replace(path)


def slim(record: Record) -> Record:
    """The record without what no comparison reads: long traces, raw warm-up, date, isolation."""
    environment = {name: value for name, value in record.environment.items() if name in _KEPT_ENVIRONMENT}
    environment["settings"] = _portable(record.environment.get("settings", {}))
    options = {name: value for name, value in record.options.items() if name != "isolation"}
    return dataclasses.replace(
        record,
        warmup_s=(),
        step_latency_s=(),
        load_s=None,
        advice=(),
        created="",
        environment=environment,
        options=options,
        facts=_short({name: value for name, value in record.facts.items() if name != "not_restored"}),
        counters=_short(record.counters),
        reason=record.reason[:_MOST_TEXT] if record.reason else None,
    )


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without folders of the machine that measured."""
    return {name: value for name, value in settings.items() if not name.endswith("_DIR")}


def _short(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not _is_long(value)}


def _is_long(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return (is_list and len(value) > 50) or (isinstance(value, str) and len(value) > _MOST_TEXT)
