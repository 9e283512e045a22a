"""Forecasts for a real card: search the space on its simulated sibling first, and extend that to every plan."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from paretune.harness.constraints import need_of
from paretune.harness.question import Question
from paretune.harness.records import Record
from paretune.harness.search.residual import Forecast, Prior
from paretune.harness.search.surrogate import Surrogate
from paretune.harness.store import Store
from paretune.harness.study import Run

__all__ = ["SimulatedPrior", "forecasts", "nearest_card", "prior_for"]

_NUM_SIMULATED = 80
_WORKERS = 2


def prior_for(question: Question, store: Store, run_trial: Run) -> Prior | None:
    """The simulator as prior for a GPU that has a data sheet; ``None`` for simulated devices and the CPU."""
    search = question.spec.search
    if question.is_simulated or question.device.startswith("cpu") or not search.prior or search.sampler != "residual":
        return None
    from paretune.harness.devices.names import device_named

    card = nearest_card(device_named(question.device).facts())
    return SimulatedPrior(question, card, store, run_trial) if card else None


def nearest_card(facts: Mapping[str, Any]) -> str | None:
    """The data sheet that describes a device best: same compute capability, then its name, the likest name, memory."""
    from paretune.harness.simulator.sheets import gpu_names, load_gpu, sheet_labelled

    capability = str(facts.get("compute_capability"))
    sheets = [(name, load_gpu(name)) for name in gpu_names()]
    same = [(name, sheet) for name, sheet in sheets if "{}.{}".format(*sheet.compute_capability) == capability]
    if not same:
        return None
    own = sheet_labelled(str(facts.get("name", "")))
    if own is not None and own.name in dict(same):
        return own.name
    wanted, memory = _letters(str(facts.get("name", ""))), float(facts.get("memory_bytes") or 0)

    def likeness(name: str, sheet: Any) -> tuple[float, float]:
        ratio = difflib.SequenceMatcher(None, wanted, _letters(sheet.label)).ratio()
        return round(ratio, 2), -abs(sheet.memory_bytes - memory)

    return max(same, key=lambda pair: likeness(*pair))[0]


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("nvidia", "").replace("geforce", ""))


class SimulatedPrior:
    """Simulates on the first call, as a search of its own under the same budget, into the same store."""

    def __init__(self, question: Question, card: str, store: Store, run_trial: Run) -> None:
        self._question = question.on(f"sim:{card}")
        self._store, self._run_trial = store, run_trial
        self._told: Mapping[str, Forecast] | None = None

    def __call__(self) -> Mapping[str, Forecast]:
        if self._told is None:
            self._told = forecasts(self._question, self._simulate())
        return self._told

    def _simulate(self) -> list[Record]:
        from paretune.harness.search.open import open_ledger
        from paretune.harness.storage import open_storage
        from paretune.harness.study import Study

        spec = self._question.spec
        effort = spec.effort.model_copy(update={"max_trials": _NUM_SIMULATED, "workers": _WORKERS, "patience": None})
        search = spec.search.model_copy(update={"sampler": "residual"})
        asked = dataclasses.replace(self._question, spec=spec.model_copy(update={"effort": effort, "search": search}))
        ledger = open_ledger(asked, open_storage(None))
        study = Study(question=asked, store=self._store, ledger=ledger, run_trial=self._run_trial)
        return list(study.run().records)


def forecasts(question: Question, records: list[Record]) -> dict[str, Forecast]:
    """A forecast for every plan: simulated figures where there are some, elsewhere what they imply."""
    texts = question.encoding.plans
    rows = question.encoding.features.rows
    index = {text: row for row, text in enumerate(texts)}
    usable = [r for r in records if r.is_complete and r.plan in index and r.median_latency_s and need_of(r)]
    if not usable:
        return {}
    seen = [index[record.plan] for record in usable]
    latency = _extended(rows, seen, [float(record.median_latency_s or math.nan) for record in usable])
    needs = [need_of(record) for record in usable]
    sizes = _extended(rows, seen, [float(need.total_bytes) if need else math.nan for need in needs])
    return {text: Forecast(latency_s=latency[row], need_bytes=sizes[row]) for text, row in index.items()}


def _extended(rows: Any, seen: list[int], values: list[float]) -> list[float]:
    logs = np.log(np.array(values))
    middle = float(np.median(logs))
    mean, _ = Surrogate(rows).predict(seen, logs - middle)
    full = mean + middle
    full[seen] = logs
    return [float(value) for value in np.exp(full)]
