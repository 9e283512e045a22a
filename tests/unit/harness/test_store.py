"""The store keeps every record, whatever happens to the writer or to the file."""

import dataclasses
import errno
import multiprocessing

import pytest

from paretune.harness.records import Kind, Outcome, Phase, Record
from paretune.harness.store import Store


def record(key: str, **fields: object) -> Record:
    base = Record(
        key=key, kind=Kind.MEASURED, outcome=Outcome.COMPLETE, workload={"name": "toy"}, device="cpu", plan="resident"
    )
    return dataclasses.replace(base, **fields)


def test_what_is_appended_is_read_back_equal(tmp_path):
    store = Store(tmp_path)
    first = record(
        "a", latency_s=(1.5, float("inf")), phases={"denoise": Phase(peak_allocated_bytes=3, duration_s=0.1)}
    )
    second = record("b", outcome=Outcome.OOM, reason="ümlaut\nline", oom={"requested_bytes": 5})
    store.append(first)
    store.append(second)
    assert Store(tmp_path / "records.jsonl").records() == [first, second]
    assert store.find("b") == second
    assert store.find("c") is None


def test_every_truncation_of_the_last_record_keeps_the_others_and_the_next(tmp_path):
    Store(tmp_path).append(record("a"))
    Store(tmp_path).append(record("b"))
    whole = (tmp_path / "records.jsonl").read_bytes()
    start = whole.index(b"\n") + 1
    for cut in range(start, len(whole)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "records.jsonl").write_bytes(whole[:cut])
        store = Store(folder)
        store.append(record("c"))
        keys = [r.key for r in store.records()]
        assert keys[0] == "a" and keys[-1] == "c"
        assert len(store.problems) == (0 if cut in (start, len(whole) - 1) else 1)


def test_a_corrupt_line_is_reported_with_its_number_and_never_rewritten(tmp_path):
    store = Store(tmp_path)
    store.append(record("a"))
    with store.path.open("ab") as handle:
        handle.write(b'{"schema": 1, "broken\n\xff\xfe\n{"schema": 99}\n[]\n')
    store.append(record("b"))
    before = store.path.read_bytes()
    assert [r.key for r in store.records()] == ["a", "b"]
    assert [p.split(":")[1] for p in store.problems] == ["2", "3", "4", "5"]
    assert store.path.read_bytes() == before


def append_many(path: str, name: str) -> None:
    store = Store(path)
    for index in range(20):
        store.append(record(f"{name}{index}", reason="x" * 5000))


def test_two_processes_never_mix_their_lines(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(str(tmp_path), name)) for name in "pq"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    store = Store(tmp_path)
    assert {r.key for r in store.records()} == {f"{name}{i}" for name in "pq" for i in range(20)}
    assert store.problems == ()


def test_a_folder_that_cannot_be_written_raises(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Store(tmp_path / "file" / "study").append(record("a"))


def test_a_full_disk_raises_and_costs_no_other_record(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.append(record("a"))
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space left")))
        full.setattr(Record, "to_json", lambda self: '{"schema": 1, "key": "cut o')
        with pytest.raises(OSError, match="no space left"):
            store.append(record("b"))
    store.append(record("c"))
    assert [kept.key for kept in store.records()] == ["a", "c"]
    assert len(store.problems) == 1
