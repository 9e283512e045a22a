"""From question to answer: search, re-measure the finalists side by side, recommend, verify under the cap."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paretune.harness.constraints import is_feasible
from paretune.harness.question import Question
from paretune.harness.recommend import Recommendation, ladder, recommend
from paretune.harness.records import Kind, Outcome, Record
from paretune.harness.residency_fit import try_more_residents
from paretune.harness.search.ledger import Ledger
from paretune.harness.search.quality import PriorQuality, prior_quality
from paretune.harness.store import Store
from paretune.harness.study import Progress, Run, Study, StudyResult, checked
from paretune.harness.tile_fit import try_larger_tiles

__all__ = ["Answer", "answer_from", "tune", "verified"]

FINAL = "final"
"""Value of the trial option ``purpose`` of a finalist's run."""

_MAX_VERIFICATIONS = 5


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a question's study says: one recommendation for its budget and one per size of its ladder.

    prior: how good the forecasts were, where there were some.
    """

    question: Question
    recommendation: Recommendation
    ladder: tuple[Recommendation, ...]
    records: tuple[Record, ...]
    study: StudyResult | None = None
    prior: PriorQuality | None = None

    @property
    def extent(self) -> str:
        """How much the answer rests on: never "optimal", but best of what was run."""
        kinds = Counter(record.kind for record in self.records)
        ran = kinds[Kind.MEASURED] + kinds[Kind.EMULATED]
        num_stopped = sum(record.outcome is Outcome.STOPPED for record in self.records)
        stopped = f" ({num_stopped} stopped early)" if num_stopped else ""
        return (
            f"best of {ran} run{stopped}, {kinds[Kind.SIMULATED]} simulated, {kinds[Kind.INFERRED]} inferred, "
            f"{self.question.plans.num_refused} refused by rules, of {len(self.question.plans.feasible)} plans"
        )


def tune(
    question: Question, *, store: Store, ledger: Ledger, run_trial: Run, progress: Progress | None = None
) -> Answer:
    """Search until effort is spent, then recommend and verify. Everything is kept in ``store`` as it comes."""
    study = Study(question=question, store=store, ledger=ledger, run_trial=run_trial, progress=progress)
    result = study.run()
    _bring_home(result, store)
    _fill_the_cap(question, store, run_trial)
    _finals(question, store, run_trial)
    answer = answer_from(question, store, run_trial=run_trial)
    quality = prior_quality(ledger.forecast(), result.records)
    return dataclasses.replace(answer, study=result, prior=quality)


def _bring_home(result: StudyResult, store: Store) -> None:
    """Keep here too what other machines measured for this study."""
    here = store.by_key()
    for record in result.records:
        if record.key not in here:
            store.append(record)


def answer_from(question: Question, store: Store, *, run_trial: Run | None = None) -> Answer:
    """The answer that records give; with ``run_trial`` it is verified, otherwise it is what the records say."""
    records = [record for record in store.records() if question.answers(record)]
    lossy = question.spec.allow_lossy
    best = recommend(records, question.budget, allow_lossy=lossy, objective=question.spec.objective)
    if run_trial is not None:
        best, records = verified(question, best, records, store, run_trial)
    steps = ladder(records, question.spec.ladder, question.budget, allow_lossy=lossy)
    return Answer(question=question, recommendation=best, ladder=steps, records=tuple(records))


def verified(
    question: Question, best: Recommendation, records: Sequence[Record], store: Store, run_trial: Run
) -> tuple[Recommendation, list[Record]]:
    """Run the recommended plan again in a fresh process under the cap; if it fails, the next one."""
    known, budget = list(records), best.budget
    lossy, objective = question.spec.allow_lossy, question.spec.objective
    for _ in range(_MAX_VERIFICATIONS):
        if best.chosen is None or best.status == "verified":
            break
        trial = question.verification(best.chosen.plan, budget.device_memory)
        record = run_trial(trial)
        store.append(record)
        known.append(record)
        best = recommend(known, budget, allow_lossy=lossy, objective=objective)
    return best, known


def _fill_the_cap(question: Question, store: Store, run_trial: Run) -> None:
    """Add what the recommended plan needs and takes with more of it resident, then with larger tiles, as far as fits."""
    known = {r.plan: r for r in store.records() if question.answers(r) and r.options.get("purpose") is None}

    def run(plan: str) -> Record:
        return known[plan] if plan in known else checked(run_trial(question.trial(plan)))

    for refine in (try_more_residents, try_larger_tiles):
        for plan, record in refine(question, list(known.values()), run):
            if plan not in known:
                store.append(record)
                known[plan] = record


def _finals(question: Question, store: Store, run_trial: Run) -> None:
    """Measure the fastest plans again in turns, so that a drift of the machine meets all of them alike."""
    records = [r for r in store.records() if question.answers(r) and r.options.get("purpose") != FINAL]
    num_finalists = question.spec.effort.finalists
    if question.is_simulated or num_finalists < 2:
        return
    names = _finalists(question, records, num_finalists)
    done = {r.plan for r in store.records() if question.answers(r) and r.options.get("purpose") == FINAL}
    if len(names) < 2 or done >= set(names):
        return
    rounds: dict[str, list[Record]] = {name: [] for name in names}
    for _ in range(2):
        for name in names:
            rounds[name].append(run_trial(question.trial(name, options={"purpose": FINAL})))
    for name in names:
        store.append(_merged(rounds[name]))


def _finalists(question: Question, records: Sequence[Record], number: int) -> list[str]:
    """The recommended plan and the fastest that fit beside it."""
    best = recommend(records, question.budget, allow_lossy=question.spec.allow_lossy)
    if best.chosen is None or best.chosen.kind is Kind.SIMULATED:
        return []
    fitting = [r.record for r in best.runners_up if is_feasible(r.record, question.budget)]
    near = [record for record in fitting if _is_near(record, best.chosen)]
    return [best.chosen.plan, *(record.plan for record in near)][:number]


def _is_near(record: Record, chosen: Record) -> bool:
    one, other = record.median_latency_s, chosen.median_latency_s
    return one is not None and other is not None and one <= 1.1 * other


def _merged(rounds: Iterable[Record]) -> Record:
    """One record of several rounds: all samples, the largest peaks; a round that failed speaks for all."""
    listed = list(rounds)
    failed = next((record for record in listed if not record.is_complete), None)
    if failed is not None:
        return failed
    peaks = dataclasses.asdict(Record.over(listed))
    samples = tuple(sample for record in listed for sample in record.latency_s)
    return dataclasses.replace(listed[-1], latency_s=samples, **peaks)
