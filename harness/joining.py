"""Join a study in a shared storage: the question comes from the study, the plans are expanded here and must agree."""

from __future__ import annotations

from pathlib import Path

from paretune.harness.question import Question, prepare
from paretune.harness.search.ledger import Ledger
from paretune.harness.search.open import open_ledger, study_name
from paretune.harness.spec import Spec
from paretune.harness.storage import masked, open_storage
from paretune.harness.store import Store
from paretune.harness.study import Progress, Run, Study, StudyResult

__all__ = ["join"]


def join(
    storage: str,
    name: str,
    *,
    output: Path,
    run_trial: Run,
    progress: Progress | None = None,
    heartbeat_s: int | None = None,
) -> StudyResult:
    """Work on study ``name`` until its effort is spent.

    Raises ``ValueError`` when the storage has no such study, or when this installation would choose from other plans.
    """
    from paretune.harness.search.prior import prior_for

    question = _question(storage, name)
    store = Store(output)
    opened = open_storage(storage, heartbeat_s=heartbeat_s)
    ledger: Ledger = open_ledger(question, opened, prior=prior_for(question, store, run_trial), name=name)
    return Study(question=question, store=store, ledger=ledger, run_trial=run_trial, progress=progress).run()


def _question(storage: str, name: str) -> Question:
    import optuna

    try:
        study = optuna.load_study(study_name=name, storage=open_storage(storage))
    except KeyError:
        raise ValueError(f"{masked(storage)} holds no study {name!r}. `paretune tune --storage` creates one.") from None
    spec = Spec.model_validate_json(study.user_attrs["question"])
    question = prepare(spec.model_copy(update={"device": study.user_attrs["device"]}))
    if study_name(question) != name:
        raise ValueError(
            f"study {name!r} chooses from other plans than this installation offers. "
            "Install the versions that created it."
        )
    return question
