"""Options of the commands that ask a question, and how they become one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from paretune.harness.question import Question
    from paretune.harness.spec import Spec
    from paretune.harness.study import Event, Progress

__all__ = [
    "OutputOption",
    "QuestionArgument",
    "SamplerOption",
    "StorageOption",
    "TrialsOption",
    "VramOption",
    "WorkersOption",
    "all_asked",
    "asked",
    "open_study",
    "progress_on_stderr",
]

QuestionArgument = Annotated[str, typer.Argument(help="A question (YAML file or shipped name), or just a workload.")]
VramOption = Annotated[str | None, typer.Option("--vram", help="Device memory the answer may use, such as 12GiB.")]
TrialsOption = Annotated[int | None, typer.Option("--trials", min=1, help="Finished trials at most.")]
SamplerOption = Annotated[
    str | None, typer.Option(help="How plans are proposed: residual, grid, random, coordinate, tpe, gp or nsga2.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Trials at a time; more than one only in simulation.")]
StorageOption = Annotated[
    str | None, typer.Option(help="Optuna storage: a database URL or a .journal file. Default: study.db in the output.")
]
OutputOption = Annotated[Path, typer.Option("--output", help="Folder that keeps records and the study.")]


def asked(name: str, overrides: Sequence[str], settings: dict[str, Any]) -> Question:
    """The question named on the command line; options that were given win over the file. Raises ``UsageError``."""
    from paretune.harness import config

    told = _told(overrides, settings)
    is_question = _is_question(name)
    spec = config.load(name, told) if is_question else config.parse({"workload": {"name": name}}, told, name=name)
    question = _prepared(spec)
    if settings.get("effort.workers", 1) not in (None, 1) and not question.is_simulated:
        raise UsageError("--workers: trials on a real device would disturb each other. Use 1, or a worker per device.")
    return question


def all_asked(name: str, overrides: Sequence[str], settings: dict[str, Any]) -> list[tuple[str, Question]]:
    """Every question of a file, with its title; a file (or workload) that is one question gives that one.

    Raises ``UsageError``.
    """
    from paretune.harness.scenarios import load_questions

    if not _is_question(name):
        return [(name, asked(name, overrides, settings))]
    return [(titled.title, _prepared(titled.spec)) for titled in load_questions(name, _told(overrides, settings))]


def _told(overrides: Sequence[str], settings: dict[str, Any]) -> list[str]:
    return [*overrides, *(f"{key}={value}" for key, value in settings.items() if value is not None)]


def _is_question(name: str) -> bool:
    """Whether the name is a question's file rather than a workload: an architecture file has `components`."""
    from paretune.harness import config

    if name.endswith((".yaml", ".yml")):
        return "components:" not in _text(name)
    return name in config.shipped_configs()


def _prepared(spec: Spec) -> Question:
    from paretune.harness import config
    from paretune.harness.question import prepare
    from paretune.harness.workloads.base import WorkloadError

    try:
        question = prepare(spec)
    except WorkloadError as error:
        raise UsageError(f"{error} Shipped questions: {', '.join(config.shipped_configs())}.") from error
    if spec.device == "auto":
        print(f"auto: {question.device}" + ("" if not question.is_simulated else " (simulated)"), file=sys.stderr)
    return question if question.is_simulated else question.with_workers(1)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def open_study(question: Question, output: Path, storage: str | None, run_trial: Any) -> Any:
    """Store and ledger of a question under ``output``."""
    from paretune.harness.search.open import open_ledger
    from paretune.harness.search.prior import prior_for
    from paretune.harness.storage import open_storage
    from paretune.harness.store import Store

    output.mkdir(parents=True, exist_ok=True)
    store = Store(output)
    prior = prior_for(question, store, run_trial)
    try:
        opened = open_storage(storage or f"sqlite:///{(output / 'study.db').resolve()}")
    except ValueError as error:
        raise UsageError(str(error)) from error
    ledger = open_ledger(question, opened, prior=prior)
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return store, ledger


def progress_on_stderr() -> Progress:
    """A bar on a terminal, one line per trial elsewhere; results stay alone on standard output."""
    if not sys.stderr.isatty():
        return _line
    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(stderr=True), transient=True)
    task = bar.add_task("trials")
    bar.start()

    def show(event: Event) -> None:
        bar.update(task, total=event.max_trials, completed=event.num_run, description=event.record.plan[:60])
        if event.num_run >= event.max_trials:
            bar.stop()

    return show


def _line(event: Event) -> None:
    record, how = event.record, "ran" if event.is_new else "known"
    seconds = record.median_latency_s
    told = f"{seconds:.3g} s" if seconds is not None else str(record.outcome)
    print(f"[{event.num_run}/{event.max_trials}] {how}: {record.plan}: {told}", file=sys.stderr, flush=True)
