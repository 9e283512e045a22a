"""One line for a script: plan for the pipeline that is loaded, apply the plan, say why, and take it back."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from paretune.harness.config import parse
from paretune.harness.question import Question, prepare, surroundings_of
from paretune.harness.recommend import Recommendation
from paretune.harness.records import Record, Trial
from paretune.harness.store import Store
from paretune.harness.tuning import Answer, answer_from, tune
from paretune.harness.usage import UsageError
from paretune.strategies import Applied, InfeasiblePlan, Plan
from paretune.strategies.sizes import format_size, parse_size

if TYPE_CHECKING:
    from paretune.harness.study import Run

__all__ = ["Fitted", "fit"]


class Fitted:
    """A plan at work on a pipeline, with the reason why it was chosen.

    plan: what is applied. recommendation: the arithmetic, the runners-up and why they were not taken.
    """

    def __init__(self, applied: Applied, recommendation: Recommendation) -> None:
        self._applied = applied
        self.recommendation = recommendation

    @property
    def plan(self) -> Plan:
        return self._applied.plan

    @property
    def reason(self) -> str:
        """One sentence: what was chosen, whether it fits and how that is known."""
        return self.recommendation.sentence

    def describe(self) -> str:
        """The reason, what must fit term by term, and what was rejected."""
        best = self.recommendation
        lines = [best.sentence]
        if best.need is not None:
            lines += [f"  {format_size(t.num_bytes):>14}  {t.name}: {t.because}" for t in best.need.terms]
        lines += [f"  not {other.record.plan}: {other.because.splitlines()[0]}" for other in best.runners_up]
        return "\n".join([*lines, *best.advice])

    def undo(self) -> None:
        """Give the pipeline back exactly as it was; calling it again does nothing."""
        self._applied.undo()

    def __enter__(self) -> Fitted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def fit(
    model: Any,
    vram: str | int | None = None,
    *,
    device: str = "auto",
    exact: bool = True,
    call: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Fitted:
    """Find the fastest plan for ``model`` in ``vram`` on ``device``, and apply it.

    with fit(pipe, vram="12GiB") as handle:
        print(handle.reason)
        image = pipe(prompt).images[0]

    model: a loaded diffusers pipeline or ``nn.Module``; it is planned for as it is, with its own components and shapes.
    vram: device memory it may use; all of the device's by default. exact: only plans that leave the output as it is.
    call: what calls will look like (height, width, steps, num_frames, batch_size, ...), defaults of the pipeline
    otherwise.
    options: ``records`` (a folder whose records are used and added to), ``simulate`` (the card whose data sheet is
    used, by default the likest to ``device``), ``trials`` (plans to simulate), and keys of a question's ``space``.

    The plan is chosen on the simulator, or from records of this machine where there are some. Raises ``InfeasiblePlan``
    when nothing fits, naming the closest plan and what is missing; the model is then untouched.
    """
    told = dict(options or {})
    target = _target(device)
    card = str(told.pop("simulate", None) or _card(target))
    cap = parse_size(vram, name="vram") if vram is not None else _memory_of(target)
    question, workload = _question(model, call or {}, card=card, target=target, cap=cap, exact=exact, options=told)
    answer = _answer(question, _runner(workload), told.get("records"))
    best = answer.recommendation
    if best.chosen is None:
        raise InfeasiblePlan([best.sentence])
    return Fitted(Applied(best.chosen.plan, model, target), best)


def _question(
    model: Any, call: Mapping[str, Any], *, card: str, target: str, cap: int, exact: bool, options: Mapping[str, Any]
) -> tuple[Question, Any]:
    from paretune.harness.loaded import components_in, fingerprint, loaded_workload
    from paretune.harness.workloads.request import read_request

    name = f"loaded:{type(model).__name__}-{fingerprint(model)}"
    asked = {"name": name, **call}
    document: dict[str, Any] = {
        "workload": asked,
        "device": f"sim:{card}",
        "allow_lossy": not exact,
        "budget": {"device_memory": cap},
        "effort": {"max_trials": options.get("trials", 24), "finalists": 0},
    }
    if "space" in options:
        document["space"] = options["space"]
    spec = parse(document, name="fit")
    question = prepare(spec, where=surroundings_of(target), components=components_in(model))
    return question.exact_only() if exact else question, loaded_workload(model, read_request(asked))


def _answer(question: Question, run_trial: Run, records: str | None) -> Answer:
    from paretune.harness.search.open import open_ledger
    from paretune.harness.storage import open_storage

    if records is not None and any(question.answers(r) and r.is_complete for r in Store(records).records()):
        return answer_from(question, Store(records), run_trial=run_trial)
    with tempfile.TemporaryDirectory(prefix="paretune-fit-") as folder:
        store = Store(records or Path(folder))
        ledger = open_ledger(question, open_storage(None))
        return tune(question, store=store, ledger=ledger, run_trial=run_trial)


def _runner(workload: Any) -> Run:
    from paretune.harness.perform import perform

    def run(trial: Trial) -> Record:
        once = dataclasses.replace(trial.procedure, num_warmup=1, min_iterations=1, max_iterations=1)
        return perform(dataclasses.replace(trial, procedure=once), lambda phase: None, workload)

    return run


def _target(device: str) -> str:
    """The device that the plan is applied on; ``auto`` is the accelerator, or the CPU where there is none."""
    import torch

    if device != "auto":
        return device
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(found) if found is not None else "cpu"


def _card(target: str) -> str:
    from paretune.harness.devices.names import AUTO_GPU, device_named
    from paretune.harness.search.prior import nearest_card

    if target.startswith("cpu"):
        return AUTO_GPU
    return nearest_card(device_named(target).facts()) or AUTO_GPU


def _memory_of(target: str) -> int:
    from paretune.harness.devices.names import device_named

    total = device_named(target).total_memory_bytes()
    if total is None:
        raise UsageError(f'vram: {target} has no memory of its own. Say how much to plan for, such as vram="12GiB".')
    return total
