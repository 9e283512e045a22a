"""What a study knows so far, read from the trials of its ledger: which plans are taken and how they came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FAILED_SIZES", "Seen", "seen_in"]

FAILED_SIZES = ("oom", "oom_host")
"""Outcomes that say something about size; any other failure says something about the combination."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One trial that ended. Figures are ``None`` where it does not know them; ``excess`` is its largest constraint."""

    plan: str
    outcome: str
    latency_s: float | None
    need_bytes: float | None
    is_lossy: bool = False
    excess: float = 0.0

    @property
    def is_complete(self) -> bool:
        return self.outcome == "complete"

    @property
    def is_stopped(self) -> bool:
        """It fits no longer or is too slow, by a short call: ``latency_s`` is a prediction, ``need_bytes`` was measured."""
        return self.outcome == "stopped"

    @property
    def is_feasible(self) -> bool:
        return self.is_complete and self.excess <= 0


def seen_in(trials: Iterable[Any]) -> tuple[dict[str, Seen], set[str]]:
    """Finished trials by plan, and the plans that are finished or being run. ``trials`` are Optuna's frozen trials."""
    finished: dict[str, Seen] = {}
    taken: set[str] = set()
    for trial in trials:
        told = trial.user_attrs.get("told")
        if trial.state.is_finished():
            if told is not None:
                finished[told["plan"]] = _seen(told["plan"], told)
        elif "claim" in trial.user_attrs:
            taken.add(trial.user_attrs["claim"]["plan"])
    return finished, taken | finished.keys()


def _seen(plan: str, told: Mapping[str, Any]) -> Seen:
    return Seen(
        plan=plan,
        outcome=str(told["outcome"]),
        latency_s=told.get("latency_s"),
        need_bytes=told.get("need_bytes"),
        is_lossy=bool(told.get("is_lossy", False)),
        excess=float(told.get("excess", 0.0)),
    )
