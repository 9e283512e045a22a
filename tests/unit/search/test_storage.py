"""Storages: a journal torn or damaged anywhere opens again with its finished trials; passwords stay out of sight."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from support.toy_space import Machine, question, toy_registry

from paretune.harness.records import Record, Trial
from paretune.harness.search.history import seen_in
from paretune.harness.search.ledger import Ledger
from paretune.harness.search.open import open_ledger
from paretune.harness.search.patience import patiently
from paretune.harness.storage import masked, open_storage, repair_journal
from paretune.harness.store import Store
from paretune.harness.study import Study


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "study.journal"
    asked = question(search={"sampler": "grid"}, effort={"max_trials": 3})
    ledger = open_ledger(asked, open_storage(str(path)))
    Study(question=asked, store=Store(tmp_path), ledger=ledger, run_trial=Machine()).run()
    return path


def trials_in(path: Path) -> list[optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name=None, storage=open_storage(str(path)))
    return study.get_trials()


def test_torn_at_any_byte_of_the_last_record(journal: Path) -> None:
    whole = journal.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(whole) - 1, 7):
        journal.write_bytes(whole[:end])
        trials = trials_in(journal)
        assert sum("told" in trial.user_attrs for trial in trials) == 3
        assert sum(trial.state.is_finished() for trial in trials) >= 2
        trials[0].user_attrs.clear()
        optuna.load_study(study_name=None, storage=open_storage(str(journal))).set_user_attr("still", "writable")


def test_a_damaged_line_in_the_middle_costs_only_itself(journal: Path) -> None:
    lines = journal.read_bytes().split(b"\n")
    number = next(i for i, line in enumerate(lines) if b'"told"' in line)
    lines[number] = lines[number][: len(lines[number]) // 2]
    damaged = b"\n".join(lines)
    journal.write_bytes(damaged)
    copy = repair_journal(journal)
    assert copy is not None and copy.read_bytes() == damaged
    assert sum("told" in trial.user_attrs for trial in trials_in(journal)) == 2


def test_an_undamaged_journal_is_left_alone(journal: Path) -> None:
    before = journal.read_bytes()
    assert repair_journal(journal) is None
    assert journal.read_bytes() == before


@pytest.mark.parametrize(
    "url", ["postgresql://zoe:secret@host/db", "mysql+pymysql://zoe:se:cr@secret@host:3306/db?password=secret&x=1"]
)
def test_urls_are_shown_without_credentials(url: str) -> None:
    shown = masked(f"cannot reach {url} now")
    assert "secret" not in shown and "zoe" not in shown and "se:cr" not in shown
    assert "host" in shown


def test_a_storage_that_cannot_be_opened_is_an_error_without_its_password() -> None:
    with pytest.raises(ValueError, match="cannot be opened") as caught:
        open_storage("nonsense+driver://zoe:secret@host/db")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="journal file ends in"):
        open_storage("study.txt")


def test_a_server_that_comes_back_costs_no_call() -> None:
    class OperationalError(Exception):
        pass

    calls, pauses = iter([OperationalError(), OperationalError(), None]), list[float]()

    def call() -> str:
        problem = next(calls)
        if problem:
            raise problem
        return "done"

    assert patiently(call, sleep=pauses.append) == "done"
    assert len(pauses) == 2
    with pytest.raises(KeyError):
        patiently({}.__getitem__, "missing", sleep=pauses.append)


@pytest.mark.parametrize("kind", ["journal", "sqlite", "memory"])
def test_numbers_of_any_make_and_long_texts_are_kept(kind: str, tmp_path: Path) -> None:
    asked = question()
    urls = {"journal": str(tmp_path / "a.journal"), "sqlite": f"sqlite:///{tmp_path}/a.db", "memory": None}
    storage = open_storage(urls[kind])
    ledger: Ledger = open_ledger(asked, storage)
    ledger.enqueue("resident")
    trial, plan = ledger.ask()
    assert plan == "resident"
    import dataclasses

    facts = {"half": np.float32(0.5), "count": np.int64(3), "nan": float("nan"), "none": None, "text": "ä\n\0" * 10**6}
    facts |= {"least": -math.inf, "tensor": torch.tensor(2.5), "bytes": b"\xff\x00", "flag": np.bool_(True)}
    record = dataclasses.replace(Machine()(asked.trial("resident")), facts=facts, reason="𝄞" * 70_000)
    ledger.tell(trial, plan, record, is_new=True)
    (again,) = open_ledger(asked, open_storage(urls[kind]) if urls[kind] else storage).records()
    kept = again.facts
    assert kept["text"] == "ä\n\0" * 10**6 and again.reason == "𝄞" * 70_000
    assert (kept["half"], kept["count"], kept["none"], kept["least"], kept["tensor"]) == (0.5, 3, None, -math.inf, 2.5)
    assert math.isnan(kept["nan"]) and kept["flag"] is True and kept["bytes"] == str(b"\xff\x00")


def test_a_result_that_comes_too_late_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    asked = question()
    ledger = open_ledger(asked, open_storage(None))
    ledger.enqueue("resident")
    trial, plan = ledger.ask()
    assert plan is not None
    ledger.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    record = Machine()(asked.trial(plan))
    ledger.tell(trial, plan, record, is_new=True)
    assert ledger.num_run() == 0
    assert "was closed before its result came" in caplog.text
    assert seen_in(ledger.study.get_trials())[0] == {}


@contextmanager
def proxy_to(storage: Any, port: int = 0) -> Iterator[int]:
    """Optuna's proxy in front of a storage, as `run_grpc_proxy_server` starts it; gives its port."""
    grpc = pytest.importorskip("grpc")
    from optuna.storages._grpc.auto_generated import api_pb2_grpc
    from optuna.storages._grpc.servicer import OptunaStorageProxyService

    server = grpc.server(ThreadPoolExecutor(max_workers=10))
    api_pb2_grpc.add_StorageServiceServicer_to_server(OptunaStorageProxyService(storage), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def test_a_study_runs_through_a_proxy(tmp_path: Path) -> None:
    behind = optuna.storages.get_storage(f"sqlite:///{tmp_path}/behind.db")
    asked, machine = question(search={"sampler": "grid"}, effort={"max_trials": 6}), Machine()
    with proxy_to(behind) as port:
        url = f"grpc://127.0.0.1:{port}"
        ledger = open_ledger(asked, open_storage(url))
        half = question(search={"sampler": "grid"}, effort={"max_trials": 3})
        Study(question=half, store=Store(tmp_path / "one"), ledger=ledger, run_trial=machine).run()
        again = open_ledger(asked, open_storage(url))
        result = Study(question=asked, store=Store(tmp_path / "two"), ledger=again, run_trial=machine).run()
    assert result.num_run == 6 and max(machine.counts.values()) == 1
    assert {r.plan for r in result.records} == set(machine.counts)
    trials = optuna.load_study(study_name=None, storage=behind).get_trials()
    assert all(set(t.constraints) == {"outcome", "device_memory"} for t in trials if "told" in t.user_attrs)


def test_a_proxy_that_is_restarted_costs_no_trial(tmp_path: Path) -> None:
    behind = optuna.storages.get_storage(f"sqlite:///{tmp_path}/behind.db")
    asked, machine = question(search={"sampler": "grid"}, effort={"max_trials": 4}), Machine()
    with ExitStack() as running:
        port = running.enter_context(proxy_to(behind))
        ledger = open_ledger(asked, open_storage(f"grpc://127.0.0.1:{port}"))

        def restarting(trial: Trial) -> Record:
            if len(machine.counts) == 1:
                running.pop_all().close()
                running.enter_context(proxy_to(behind, port))
            return machine(trial)

        result = Study(question=asked, store=Store(tmp_path), ledger=ledger, run_trial=restarting).run()
    assert result.num_run == 4 and max(machine.counts.values()) == 1


@pytest.mark.parametrize(
    "url", ["grpc://host", "grpc://host:abc", "grpc://zoe:secret@host:13000", "grpc://host:13000/study"]
)
def test_a_proxy_is_a_host_and_a_port(url: str) -> None:
    with pytest.raises(ValueError, match="grpc://host:port") as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr("paretune.harness.storage._PROXY_S", 0.2)
    with pytest.raises(ValueError, match="no proxy answered"):
        open_storage("grpc://127.0.0.1:1")


def test_two_writers_of_one_journal_lose_nothing(tmp_path: Path) -> None:
    url, machine = str(tmp_path / "study.journal"), Machine()

    def work(number: int) -> None:
        asked = question(search={"sampler": "random", "seed": number}, effort={"max_trials": 20})
        ledger = open_ledger(asked, open_storage(url))
        Study(question=asked, store=Store(tmp_path / str(number)), ledger=ledger, run_trial=machine).run()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (1, 2)))
    assert repair_journal(Path(url)) is None
    told = [trial.user_attrs["told"]["plan"] for trial in trials_in(Path(url)) if "told" in trial.user_attrs]
    assert set(told) == set(machine.counts) and len(told) >= 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_journal_that_cannot_be_written_stops_the_study_and_keeps_what_was_measured(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, machine, url = question(effort={"max_trials": 6}), Machine(), str(tmp_path / "study.journal")
    ledger, store = open_ledger(asked, open_storage(url)), Store(tmp_path)

    def fails_later(trial: Trial) -> Record:
        if len(machine.counts) == 2:
            backend = "optuna.storages.journal.JournalFileBackend.append_logs"
            monkeypatch.setattr(backend, lambda *_: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
        return machine(trial)

    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        Study(question=asked, store=store, ledger=ledger, run_trial=fails_later).run()
    measured = set(machine.counts)
    assert {record.plan for record in store.records()} == measured
    monkeypatch.undo()
    with toy_registry():
        Study(question=asked, store=store, ledger=open_ledger(asked, open_storage(url)), run_trial=machine).run()
    assert max(machine.counts.values()) == 1 and len(machine.counts) == 6
