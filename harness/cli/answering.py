"""Print an answer: the sentence first, then the arithmetic, the others and why not, the ladder, the code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from paretune.strategies.sizes import format_gib

if TYPE_CHECKING:
    from paretune.harness.recommend import Recommendation
    from paretune.harness.records import Record
    from paretune.harness.tuning import Answer

__all__ = ["as_dict", "print_answer"]


def print_answer(answer: Answer, format: str) -> None:
    """The answer on standard output, for people or as JSON."""
    if format == "json":
        print(json.dumps(as_dict(answer), indent=1))
        return
    best = answer.recommendation
    print(best.sentence)
    print(f"{answer.extent}." + (f" {answer.prior}." if answer.prior else ""))
    _print_need(best)
    _print_others(best)
    for sentence in best.advice:
        print(f"note: {sentence}")
    if answer.ladder:
        print("\nladder:")
        for step in answer.ladder:
            print(f"  {_step(step)}")
    _print_code(answer)


def _print_need(best: Recommendation) -> None:
    if best.need is None or best.budget.device_memory is None:
        return
    print("\nwhat must fit:")
    for term in best.need.terms:
        print(f"  {format_gib(term.num_bytes):>10}  {term.name} ({term.because})")
    total = best.need.total_bytes
    spare = best.budget.device_memory - total
    print(f"  {format_gib(total):>10}  of {format_gib(best.budget.device_memory)}, {format_gib(spare)} to spare")


def _print_others(best: Recommendation) -> None:
    if best.runners_up:
        print("\nother plans:")
    for other in best.runners_up:
        print(f"  {_seconds(other.record):>9}  {other.record.plan}: {other.because.splitlines()[0]}")


def _seconds(record: Record) -> str:
    value = record.median_latency_s
    return f"{value:.3g} s" if value is not None else str(record.outcome)


def _step(step: Recommendation) -> str:
    cap = format_gib(step.budget.device_memory or 0)
    if step.chosen is None:
        return f"{cap:>10}  {step.sentence}"
    need = format_gib(step.need.total_bytes) if step.need else "unknown"
    return f"{cap:>10}  {_seconds(step.chosen):>9}  needs {need:>10}  {step.chosen.plan}"


def _print_code(answer: Answer) -> None:
    if answer.recommendation.chosen is None:
        return
    from paretune.harness.export import to_command, to_python, to_yaml

    print("\nas YAML:")
    print(_indented(to_yaml(answer)))
    print("\nin Python:")
    print(_indented(to_python(answer)))
    print("\nmeasure it again:")
    print(_indented(to_command(answer)))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.rstrip().splitlines())


def as_dict(answer: Answer) -> dict[str, Any]:
    """The answer as JSON values."""
    told = _recommendation(answer.recommendation)
    told["ladder"] = [_recommendation(step) for step in answer.ladder]
    told["num_refused"] = answer.question.plans.num_refused
    told["num_plans"] = len(answer.question.plans.feasible)
    told["extent"] = answer.extent
    if answer.prior is not None:
        told["prior"] = {"rank_correlation": answer.prior.rank_correlation, "bias": answer.prior.bias}
    if answer.study is not None:
        told["study"] = {
            "num_run": answer.study.num_run,
            "num_reused": answer.study.num_reused,
            "num_inferred": answer.study.num_inferred,
            "stopped": answer.study.stopped,
        }
    if answer.recommendation.chosen is not None:
        from paretune.harness.export import to_command, to_diffusers, to_python, to_yaml

        told["yaml"], told["python"] = to_yaml(answer), to_python(answer)
        told["diffusers"], told["command"] = to_diffusers(answer), to_command(answer)
    return told


def _recommendation(best: Recommendation) -> dict[str, Any]:
    return {
        "sentence": best.sentence,
        "status": best.status,
        "budget": best.budget.model_dump(),
        "plan": best.chosen.plan if best.chosen else None,
        "record": json.loads(best.chosen.to_json()) if best.chosen else None,
        "need": None
        if best.need is None
        else {
            "total_bytes": best.need.total_bytes,
            "terms": [{"name": t.name, "num_bytes": t.num_bytes, "because": t.because} for t in best.need.terms],
        },
        "runners_up": [
            {
                "plan": r.record.plan,
                "latency_s": r.record.median_latency_s,
                "outcome": str(r.record.outcome),
                "because": r.because,
            }
            for r in best.runners_up
        ],
        "advice": list(best.advice),
        "closest": best.closest.plan if best.closest else None,
        "missing_bytes": best.missing_bytes,
        "num_considered": best.num_considered,
    }
