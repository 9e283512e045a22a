"""Storages: a journal torn or damaged anywhere opens again with its finished trials; passwords stay out of sight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
import pytest
from support.toy_space import Machine, question

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


def test_numbers_of_any_make_and_long_texts_are_kept(tmp_path: Path) -> None:
    asked = question()
    ledger: Ledger = open_ledger(asked, open_storage(str(tmp_path / "a.journal")))
    ledger.enqueue("resident")
    trial, plan = ledger.ask()
    assert plan == "resident"
    import dataclasses

    facts = {"half": np.float32(0.5), "count": np.int64(3), "nan": float("nan"), "none": None, "text": "ä" * 200_000}
    record = dataclasses.replace(Machine()(asked.trial("resident")), facts=facts)
    ledger.tell(trial, plan, record, is_new=True)
    again = open_ledger(asked, open_storage(str(tmp_path / "a.journal"))).records()
    assert again[0].facts["text"] == "ä" * 200_000
    assert again[0].facts["half"] == 0.5 and again[0].facts["none"] is None


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
