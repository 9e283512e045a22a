"""A study's book in an Optuna storage: who runs which plan, how it came out, and what nobody will ever finish."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paretune.harness.constraints import constraint_names, need_of, violations
from paretune.harness.pilot import predicted_latency_s
from paretune.harness.records import Outcome, Record
from paretune.harness.search.encoding import Encoding
from paretune.harness.search.patience import patiently
from paretune.harness.spec import Budget

__all__ = ["Ledger"]

_CHUNK = 60_000
"""Characters of one attribute; some databases hold no longer text in a column."""

_log = logging.getLogger(__name__)


class Ledger:
    """Wraps one Optuna study. Every ask is closed by a tell, every tell sets each constraint exactly once."""

    def __init__(self, study: Any, encoding: Encoding, budget: Budget) -> None:
        import optuna

        self.study = study
        self._optuna = optuna
        self._encoding = encoding
        self._budget = budget
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def ask(self) -> tuple[Any, str | None]:
        """A new trial with the plan it stands for, ``None`` for parameters that rules refuse."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Heartbeat of storage", category=UserWarning)
            trial = patiently(self.study.ask)
        params = {
            name: patiently(trial.suggest_categorical, name, values) for name, values in self._encoding.choices.items()
        }
        plan = self._encoding.plan(params)
        patiently(trial.set_user_attr, "claim", {"worker": _this_worker(), "plan": plan})
        return trial, plan

    def enqueue(self, plan: str) -> None:
        """Run this plan next."""
        patiently(self.study.enqueue_trial, self._encoding.params(plan))

    def tell(self, trial: Any, plan: str, record: Record, *, is_new: bool) -> None:
        """Close a trial with what its plan's record says; a failure is a finished trial with constraints above zero.

        ``is_new``: it ran for this trial and counts as effort; otherwise it was answered from what is recorded.
        """
        broken = violations(record, self._budget)
        if record.outcome is Outcome.STOPPED:
            broken["outcome"] = 0.0  # it works; what is wrong with it are its size or the seconds it was predicted
        need = need_of(record)
        told: dict[str, Any] = {
            "plan": plan,
            "key": record.key,
            "latency_s": _latency_s(record),
            "need_bytes": need.total_bytes if need else None,
            "is_lossy": record.is_lossy,
            "excess": max(broken.values()),
            "is_new": is_new,
            "outcome": str(record.outcome),
        }
        self._close(trial, self._value(record), broken, {**_chunks(record.to_json()), "told": told})

    def refuse(self, trial: Any) -> None:
        """Close a trial whose parameters no plan of the space has."""
        broken = dict.fromkeys(constraint_names(self._budget), 0.0) | {"outcome": 1.0}
        self._close(trial, self._worst(), broken, {})

    def repeat(self, trial: Any, plan: str) -> None:
        """Close a trial whose plan another trial of this study has already answered."""
        earlier = next((t for t in self._finished() if _told(t)["plan"] == plan), None)
        if earlier is None:
            self.drop(trial)
            return
        broken = {name: float(value) for name, value in earlier.constraints.items()}
        self._close(trial, earlier.value, broken, {})

    def drop(self, trial: Any) -> None:
        """Close a trial that was never run, so that it neither counts nor blocks its plan."""
        try:
            patiently(lambda: self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL))
        except (ValueError, self._optuna.exceptions.UpdateFinishedTrialError) as error:
            _log.warning("trial %d was closed already: %s", trial.number, error)

    def records(self) -> list[Record]:
        """The records of all finished trials, by all workers, one per plan."""
        texts = {_told(trial)["plan"]: _text(trial.user_attrs) for trial in self._finished()}
        return [Record.from_json(text) for text in texts.values() if text]

    def num_run(self) -> int:
        """Finished trials that ran for this study."""
        return sum(_told(trial)["is_new"] for trial in self._finished())

    def num_running(self) -> int:
        """Trials that some worker is known to be busy with."""
        state = self._optuna.trial.TrialState.RUNNING
        trials = patiently(lambda: self.study.get_trials(deepcopy=False, states=(state,)))
        return sum("claim" in trial.user_attrs for trial in trials)

    def taken(self) -> set[str]:
        """Plans that some worker is busy with, or will be."""
        return {plan for _, plan in self._claims()}

    def is_first(self, trial: Any, plan: str) -> bool:
        """Whether no earlier trial claims the plan; of two workers that chose the same, the later one lets go."""
        return all(number >= trial.number for number, claimed in self._claims() if claimed == plan)

    def _claims(self) -> list[tuple[int, str]]:
        states = (self._optuna.trial.TrialState.RUNNING, self._optuna.trial.TrialState.WAITING)
        trials = patiently(lambda: self.study.get_trials(deepcopy=False, states=states))
        return [(t.number, t.user_attrs["claim"]["plan"]) for t in trials if "claim" in t.user_attrs]

    @property
    def has_heartbeat(self) -> bool:
        """Whether a worker that falls silent is noticed by the others."""
        return self._interval_s() is not None

    @contextmanager
    def alive(self, trial: Any) -> Iterator[None]:
        """Give signs of life for a trial while it runs; a storage that is away for a while does no harm."""
        interval_s, stop = self._interval_s(), threading.Event()
        if interval_s is None:
            yield
            return

        def beat() -> None:
            while not stop.wait(interval_s):
                with suppress(Exception):
                    self.study._storage.record_heartbeat(trial._trial_id)

        patiently(self.study._storage.record_heartbeat, trial._trial_id)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def retire_silent(self) -> None:
        """Fail the trials of workers that fell silent; the storage enqueues each once more."""
        if self.has_heartbeat:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                patiently(self._optuna.storages.fail_stale_trials, self.study)

    def _interval_s(self) -> float | None:
        storage = self.study._storage
        interval: float | None = (
            storage.get_heartbeat_interval() if hasattr(storage, "get_heartbeat_interval") else None
        )
        return interval

    def is_waiting(self, plan: str) -> bool:
        """Whether the plan is enqueued and nobody has taken it yet."""
        state = self._optuna.trial.TrialState.WAITING
        wanted = self._encoding.params(plan)
        trials = patiently(lambda: self.study.get_trials(deepcopy=False, states=(state,)))
        return any(trial.system_attrs.get("fixed_params") == wanted for trial in trials)

    def latencies(self, *, allow_lossy: bool) -> list[tuple[float, float]]:
        """Latency and largest constraint of each trial that ran for this study, in order.

        The latency of what cannot be recommended is infinite: failures, and lossy plans unless they are allowed.
        """
        ran = [told for trial in self._finished() if (told := _told(trial))["is_new"]]
        return [(t["latency_s"] if _is_wanted(t, allow_lossy) else math.inf, t["excess"]) for t in ran]

    def forecast(self) -> Mapping[str, Any]:
        """Forecasts of this study's sampler by plan; empty for samplers that have none."""
        told: Mapping[str, Any] = getattr(self.study.sampler, "forecast", dict)()
        return told

    def answered(self) -> set[str]:
        """Plans with a finished trial."""
        return {_told(trial)["plan"] for trial in self._finished()}

    def close_stale(self, found: Mapping[str, Record]) -> int:
        """Close trials of this machine's dead workers: with the record their plan has after all, or to be tried again.

        ``found``: records by plan. Returns how many were closed.
        """
        state = self._optuna.trial.TrialState.RUNNING
        running = patiently(lambda: self.study.get_trials(deepcopy=False, states=(state,)))
        stale = [trial for trial in running if _is_dead(trial.user_attrs.get("claim"))]
        for frozen in stale:
            trial = self._optuna.trial.Trial(self.study, frozen._trial_id)
            plan = frozen.user_attrs["claim"]["plan"]
            if plan in found:
                self.tell(trial, plan, found[plan], is_new=True)
                continue
            self.drop(trial)
            if plan is not None and not frozen.user_attrs.get("second_try"):
                again = self._encoding.params(plan)
                patiently(lambda again=again: self.study.enqueue_trial(again, user_attrs={"second_try": True}))
        return len(stale)

    def _finished(self) -> list[Any]:
        state = self._optuna.trial.TrialState.COMPLETE
        return [
            trial
            for trial in patiently(lambda: self.study.get_trials(deepcopy=False, states=(state,)))
            if "told" in trial.user_attrs
        ]

    def _close(self, trial: Any, value: float, broken: Mapping[str, float], attributes: Mapping[str, Any]) -> None:
        """Constraints once each, attributes, value. A result that comes after the trial was given up stops nobody."""
        try:
            already = patiently(lambda: trial.constraints)
            for name, amount in broken.items():
                if name not in already:
                    patiently(trial.set_constraint, name, amount)
            for name, told in attributes.items():
                patiently(trial.set_user_attr, name, told)
            patiently(lambda: self.study.tell(trial, value, state=self._optuna.trial.TrialState.COMPLETE))
        except (ValueError, self._optuna.exceptions.UpdateFinishedTrialError) as error:
            _log.warning("trial %d was closed before its result came: %s", trial.number, error)

    def _value(self, record: Record) -> float:
        latency = _latency_s(record)
        is_known = record.is_complete or record.outcome is Outcome.STOPPED
        return latency if is_known and latency is not None else self._worst()

    def _worst(self) -> float:
        """A finite value for what has none: as bad as the worst that completed."""
        complete = [t.value for t in self._finished() if _told(t)["outcome"] == Outcome.COMPLETE]
        return max((value for value in complete if math.isfinite(value)), default=1.0)


def _is_wanted(told: Mapping[str, Any], allow_lossy: bool) -> bool:
    return told["latency_s"] is not None and told["outcome"] == "complete" and (allow_lossy or not told["is_lossy"])


def _latency_s(record: Record) -> float | None:
    """Measured, or for a trial that was stopped early: predicted."""
    return record.median_latency_s if record.outcome is not Outcome.STOPPED else predicted_latency_s(record)


def _told(trial: Any) -> dict[str, Any]:
    told: dict[str, Any] = trial.user_attrs["told"]
    return told


def _chunks(text: str) -> dict[str, str]:
    return {f"record.{start // _CHUNK}": text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)}


def _text(attributes: Mapping[str, Any]) -> str:
    number, pieces = 0, []
    while (piece := attributes.get(f"record.{number}")) is not None:
        pieces.append(piece)
        number += 1
    return "".join(pieces)


def _this_worker() -> dict[str, Any]:
    import psutil

    started = psutil.Process().create_time()
    return {"machine": _this_machine(), "pid": os.getpid(), "started": round(started, 2)}


def _this_machine() -> str:
    """Tells machines apart without naming one."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def _is_dead(claim: Mapping[str, Any] | None) -> bool:
    """Whether the worker was a process of this machine that is gone; an unknown one is not ours to judge."""
    import psutil

    if claim is None or claim["worker"]["machine"] != _this_machine():
        return False
    try:
        started = psutil.Process(claim["worker"]["pid"]).create_time()
        return bool(abs(started - claim["worker"]["started"]) > 1)
    except psutil.NoSuchProcess:
        return True
