"""Open the ledger of a question: the same question over the same plans continues, a changed space starts anew."""

from __future__ import annotations

import hashlib
import json
import warnings
from typing import Any

from paretune.harness.question import Question
from paretune.harness.records import Record
from paretune.harness.search.ledger import Ledger
from paretune.harness.search.patience import patiently
from paretune.harness.search.residual import Prior
from paretune.harness.search.samplers import sampler_for

__all__ = ["caps_of", "earlier_records", "open_ledger", "study_name"]


def study_name(question: Question) -> str:
    """Name of the Optuna study: it changes with the question and with what may be chosen, because a study's choices are
    fixed; trials of an earlier space are reused through their records."""
    choices = json.dumps(question.encoding.choices, sort_keys=True)
    return f"{question.name}-{hashlib.sha256(choices.encode()).hexdigest()[:8]}"


def open_ledger(question: Question, storage: Any, *, prior: Prior | None = None, name: str | None = None) -> Ledger:
    """Create or continue the Optuna study of ``question`` in ``storage``; the question is kept with it for workers."""
    import optuna

    spec = question.spec
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = sampler_for(
        spec.search, question.encoding, prior=prior, caps=caps_of(question), allow_lossy=spec.allow_lossy
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            study_name=name or study_name(question), storage=storage, sampler=sampler, load_if_exists=True
        )
    if "question" not in study.user_attrs:
        study.set_user_attr("question", spec.model_dump_json())
        study.set_user_attr("device", question.device)
    return Ledger(study, question.encoding, question.budget)


def earlier_records(ledger: Ledger, question: Question) -> list[Record]:
    """Records of other studies in the ledger's storage: of the same workload and device, over other choices."""
    import optuna

    storage, own = ledger.study._storage, ledger.study.study_name
    found: list[Record] = []
    for name in patiently(lambda: optuna.get_all_study_names(storage)):
        if name != own and _asked(name) == _asked(own):
            study = patiently(lambda name=name: optuna.load_study(study_name=name, storage=storage))
            found += Ledger(study, question.encoding, question.budget).records()
    return found


def _asked(name: str) -> str:
    """Workload and device of a study, without its budget and what it chooses from."""
    return name.rsplit("-", 2)[0]


def caps_of(question: Question) -> tuple[int, ...]:
    """The memory sizes that the study must answer."""
    cap = question.budget.device_memory
    return tuple(dict.fromkeys([*((cap,) if cap else ()), *question.spec.ladder]))
