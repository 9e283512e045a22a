"""A study killed at any moment, over and over, loses no finished trial, repeats none, and spends its effort exactly."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from support.toy_space import Machine, question, toy_registry

from paretune.harness.records import Record, Trial
from paretune.harness.search.open import open_ledger
from paretune.harness.storage import open_storage
from paretune.harness.store import Store
from paretune.harness.study import Study

NUM_KILLS = 20
MAX_TRIALS = 60


def work(folder: Path) -> None:
    """Run the study in this process; every run is noted, and so is one whose plan is already recorded."""
    asked = question(search={"sampler": "random"}, effort={"max_trials": MAX_TRIALS})
    store, machine = Store(folder), Machine()

    def run(trial: Trial) -> Record:
        is_repeat = trial.plan in {record.plan for record in store.records()}
        with (folder / "runs.log").open("a") as log:
            log.write(f"{'repeat' if is_repeat else 'run'} {trial.plan}\n")
        time.sleep(0.01)
        return machine(trial)

    ledger = open_ledger(asked, open_storage(f"sqlite:///{folder}/study.db"))
    Study(question=asked, store=store, ledger=ledger, run_trial=run).run()


def test_killed_at_random_times(tmp_path: Path) -> None:
    chance, fork = random.Random(7), multiprocessing.get_context("fork")
    with toy_registry():
        for _ in range(NUM_KILLS):
            child = fork.Process(target=work, args=(tmp_path,))
            child.start()
            child.join(chance.uniform(0.05, 1.0))
            if child.pid is not None and child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
            child.join()
        before = len(Store(tmp_path).records())
        work(tmp_path)
    records = Store(tmp_path).records()
    plans = Counter(record.plan for record in records)
    assert max(plans.values()) == 1
    assert len(plans) == MAX_TRIALS >= before
    assert "resident" in plans
    assert not [line for line in (tmp_path / "runs.log").read_text().splitlines() if line.startswith("repeat")]
