"""The loop of a study: ask for a plan, answer it from records or run it, write it down, until effort is spent."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from paretune.harness.infer import infer
from paretune.harness.pilot import Pilot
from paretune.harness.question import Question
from paretune.harness.records import Kind, Outcome, Record, Trial
from paretune.harness.search.ledger import Ledger
from paretune.harness.search.open import caps_of, earlier_records
from paretune.harness.store import Store
from paretune.strategies import RESIDENT

__all__ = ["Event", "Progress", "Run", "Study", "StudyResult", "checked"]

Run = Callable[[Trial], Record]

_PAUSE_S = 0.5
_MAX_STALE_ASKS = 30
"""Proposals in a row that lead to nothing new, after which a plan is taken from the rest of the list."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One plan was answered: by running it (``is_new``) or from what is recorded."""

    record: Record
    is_new: bool
    num_run: int
    max_trials: int


Progress = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What a study found and why it stopped. ``records`` holds one record per answered plan."""

    records: tuple[Record, ...]
    num_run: int
    num_reused: int
    num_inferred: int
    stopped: str


@dataclass
class Study:
    """Runs a question until its effort is spent; starting it again continues where it stopped.

    run: measures one trial, whatever happens to it. store: where records go. ledger: the Optuna study that proposes.
    """

    question: Question
    store: Store
    ledger: Ledger
    run_trial: Run
    progress: Progress | None = None
    clock: Callable[[], float] = time.monotonic
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _in_flight: set[str] = field(default_factory=set, init=False)
    _counts: dict[str, int] = field(default_factory=lambda: {"reused": 0, "inferred": 0, "stale": 0}, init=False)
    _stopped: str = field(default="", init=False)

    def run(self) -> StudyResult:
        """Work until effort is spent. ``KeyboardInterrupt`` passes through; everything finished is kept."""
        self._began = self.clock()
        self._known = self._recorded()
        self.ledger.close_stale(self._known)
        self._baseline_first()
        workers = self.question.spec.effort.workers
        if workers == 1:
            self._work()
        else:
            self._work_side_by_side(workers)
        return self._result()

    def _work_side_by_side(self, workers: int) -> None:
        """After an interrupt or an error nobody takes another plan; trials that run are finished and kept."""
        with ThreadPoolExecutor(workers) as pool:
            working = [pool.submit(self._work) for _ in range(workers)]
            try:
                for done in working:
                    done.result()
            except BaseException:
                with self._changed:
                    self._stopped = "interrupted"
                    self._changed.notify_all()
                raise

    def _recorded(self) -> dict[str, Record]:
        """Records that answer plans of this question, by plan: of the store, and of studies whose choices were others.

        What only such a study holds, because another machine measured it, is put into the store.
        """
        by_key = self.store.by_key()
        keys = {self.question.key(plan): plan for plan in self.question.encoding.plans}
        for record in earlier_records(self.ledger, self.question):
            if record.key in keys and record.key not in by_key:
                self.store.append(record)
                by_key[record.key] = record
        return {plan: by_key[key] for key, plan in keys.items() if key in by_key}

    def _baseline_first(self) -> None:
        if RESIDENT not in self.ledger.answered() and not self.ledger.is_waiting(RESIDENT):
            self.ledger.enqueue(RESIDENT)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            trial, plan = taken
            try:
                self._answer(trial, plan)
            except BaseException:
                self.ledger.drop(trial)
                raise
            finally:
                with self._changed:
                    self._in_flight.discard(plan)
                    self._changed.notify_all()

    def _take(self) -> tuple[Any, str] | None:
        """Claim a trial that nobody has answered; ``None`` when the study is over."""
        with self._changed:
            while not self._is_over():
                self.ledger.retire_silent()
                self.ledger.close_stale(self._known)
                if self._others_have_the_rest():
                    self._changed.wait(_PAUSE_S)
                    continue
                taken = self._ask()
                if taken is not None:
                    self._in_flight.add(taken[1])
                    return taken
        return None

    def _is_over(self) -> bool:
        """Whether to stop; while other workers' trials decide about that, wait for one of them to end."""
        while not self._stopped:
            reason = self._reason_to_stop()
            if not reason:
                return False
            if not self._in_flight:
                self._stopped = reason
            else:
                self._changed.wait()
        return True

    def _others_have_the_rest(self) -> bool:
        """Whether every plan that is left is with another worker, who may yet fall silent and leave it."""
        return not set(self.question.encoding.plans) - self.ledger.answered() - self.ledger.taken()

    def _reason_to_stop(self) -> str:
        effort, answered = self.question.spec.effort, self.ledger.answered()
        if self.ledger.num_run() + max(self.ledger.num_running(), len(self._in_flight)) >= effort.max_trials:
            return f"{effort.max_trials} trials are done"
        if len(answered | self._in_flight) >= len(self.question.encoding.plans):
            return "every plan of the space is answered"
        if not self.ledger.has_heartbeat and not self._in_flight and self._others_have_the_rest():
            return "other workers have the rest"
        if effort.max_seconds is not None and self.clock() - self._began >= effort.max_seconds:
            return f"{effort.max_seconds:g} s have passed"
        if effort.patience is not None and self._num_without_gain() >= effort.patience:
            return f"{effort.patience} trials in a row gained nothing"
        return ""

    def _num_without_gain(self) -> int:
        """Trials since the fastest plan that fits and may be recommended was found; 0 before there is one."""
        best, since = math.inf, 0
        for latency, excess in self.ledger.latencies(allow_lossy=self.question.spec.allow_lossy):
            if excess <= 0 and latency < best * 0.995:
                best, since = latency, 0
            else:
                since += 1
        return since if best < math.inf else 0

    def _ask(self) -> tuple[Any, str] | None:
        """A trial and its plan; ``None`` when the proposal leads to nothing new, after closing its trial."""
        if self._counts["stale"] >= _MAX_STALE_ASKS:
            self._take_from_the_rest()
        trial, plan = self.ledger.ask()
        is_free = plan is not None and plan not in self._in_flight and self.ledger.is_first(trial, plan)
        if plan is not None and is_free and plan not in self.ledger.answered():
            self._counts["stale"] = 0
            return trial, plan
        self._counts["stale"] += 1
        if plan is None:
            self.ledger.refuse(trial)
        elif not is_free:
            self.ledger.drop(trial)
        else:
            self.ledger.repeat(trial, plan)
        return None

    def _take_from_the_rest(self) -> None:
        taken = self.ledger.answered() | self._in_flight
        rest = [plan for plan in self.question.encoding.plans if plan not in taken]
        if rest:
            self.ledger.enqueue(rest[0])
        self._counts["stale"] = 0

    def _answer(self, trial: Any, plan: str) -> None:
        record, is_new = self._known.get(plan), False
        if record is not None:
            self._counts["reused"] += 1
        else:
            record = infer(plan, self.question, list(self._known.values()))
            if record is not None:
                self._counts["inferred"] += 1
            else:
                with self.ledger.alive(trial):
                    record, is_new = checked(self.run_trial(self._trial(plan))), True
            self.store.append(record)
            self._known[plan] = record
        self.ledger.tell(trial, plan, record, is_new=is_new)
        if self.progress is not None:
            limit = self.question.spec.effort.max_trials
            self.progress(Event(record=record, is_new=is_new, num_run=self.ledger.num_run(), max_trials=limit))

    def _trial(self, plan: str) -> Trial:
        """The trial of a plan, with a pilot where that saves time; the untouched model is always measured in full."""
        spec = self.question.spec
        if not spec.search.pilot or self.question.is_simulated or plan == RESIDENT or spec.objective != "latency":
            return self.question.trial(plan)
        known, caps = list(self._known.values()), caps_of(self.question)
        pilot = Pilot.against(known, caps, self.question.budget, allow_lossy=spec.allow_lossy)
        return self.question.trial(plan, options=pilot.options())

    def _result(self) -> StudyResult:
        found: Mapping[str, Record] = {**self._known, **{r.plan: r for r in self.ledger.records()}}
        answered = self.ledger.answered()
        return StudyResult(
            records=tuple(record for plan, record in found.items() if plan in answered or record.plan in answered),
            num_run=self.ledger.num_run(),
            num_reused=self._counts["reused"],
            num_inferred=self._counts["inferred"],
            stopped=self._stopped,
        )


def checked(record: Record) -> Record:
    """The record, or a failed one when it claims to be complete without a usable latency."""
    if record.kind is Kind.INFERRED or not record.is_complete:
        return record
    usable = record.latency_s and all(isinstance(s, int | float) and 0 < s < math.inf for s in record.latency_s)
    if usable:
        return record
    reason = f"its latency is not a positive number of seconds: {record.latency_s!r}"
    return replace(record, outcome=Outcome.CRASHED, reason=reason, latency_s=())
