"""``paretune plan``: what a question would try, what is refused and why, and how long it would take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paretune.harness.cli.asking import QuestionArgument, asked
from paretune.harness.cli.options import DeviceText, FormatOption, OverridesArgument

if TYPE_CHECKING:
    from paretune.harness.question import Question

__all__ = ["command"]

_SECONDS_PER_TRIAL = {"sim": 4.0, "cpu": 20.0}
_SECONDS_ELSEWHERE = 90.0


def command(
    question: QuestionArgument,
    overrides: OverridesArgument = None,
    device: Annotated[str | None, typer.Option(help=f"Where to run: {DeviceText}.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Plans and refusals to list at most.")] = 20,
    format: FormatOption = "text",
) -> None:
    """List the plans of a question without running anything."""
    made = asked(question, overrides or [], {"device": device})
    told = _told(made)
    if format == "json":
        print(json.dumps(told, indent=1))
        return
    print(_sentence(told))
    for axis, choices in told["axes"].items():
        print(f"  {axis}: {len(choices)} choices")
    print("plans:")
    for plan in told["plans"][:limit]:
        print(f"  {plan}")
    _more(len(told["plans"]) - limit)
    if told["refused"]:
        print("refused:")
    for entry in told["refused"][:limit]:
        print(f"  {entry['settings']} ({entry['num_plans']} plans): {entry['reasons'][0]}")
    _more(len(told["refused"]) - limit)


def _more(number: int) -> None:
    if number > 0:
        print(f"  ... and {number} more (--limit)")


def _told(question: Question) -> dict[str, Any]:
    plans = question.plans
    spec = question.spec
    family = next((name for name in _SECONDS_PER_TRIAL if question.device.startswith(name)), "")
    num_trials = min(spec.effort.max_trials, len(plans.feasible))
    return {
        "workload": dict(spec.workload),
        "device": question.device,
        "family": question.components.family,
        "num_plans": len(plans.feasible),
        "num_refused": plans.num_refused,
        "num_trials": num_trials,
        "estimated_s": num_trials * _SECONDS_PER_TRIAL.get(family, _SECONDS_ELSEWHERE) / spec.effort.workers,
        "axes": {name: list(choices) for name, choices in question.encoding.choices.items()},
        "plans": [str(plan) for plan in plans.feasible],
        "refused": [
            {"settings": entry.settings, "reasons": list(entry.reasons), "num_plans": entry.num_plans}
            for entry in plans.refused
        ],
    }


def _sentence(told: dict[str, Any]) -> str:
    minutes = told["estimated_s"] / 60
    return (
        f"{told['num_plans']} plans for {told['workload']['name']} on {told['device']} ({told['family']}), "
        f"{told['num_refused']} combinations refused by rules; {told['num_trials']} trials would take about "
        f"{minutes:.0f} min."
    )
