"""Let trials that were measured on a card correct its sheet: they see what short probes do not."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paretune.harness.records import Kind, Record
from paretune.harness.simulator.sheets import GpuSheet

__all__ = ["Refinement", "refine"]

_COMPUTING = ("denoise", "forward")
_MOST = 2.0
"""A correction beyond this factor says that something else is wrong; it is refused."""


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """The corrected sheet, the factor on its product efficiency, and from how many trials it comes."""

    sheet: GpuSheet
    factor: float
    num_trials: int


def refine(sheet: GpuSheet, records: Iterable[Record], simulate: Callable[[Record], Record]) -> Refinement:
    """Correct ``product_efficiency`` by the median ratio of simulated to measured time of the denoising phase.

    Only completed, measured trials of plans that move nothing count, since their time is computation. ``simulate``
    predicts the same trial with ``sheet``. Raises ``ValueError`` when no trial can be used or the factor is absurd.
    """
    ratios = []
    for record in records:
        if record.kind is Kind.MEASURED and record.is_complete and record.plan == "resident":
            measured, predicted = _computing_s(record), _computing_s(simulate(record))
            if measured and predicted:
                ratios.append(predicted / measured)
    if not ratios:
        raise ValueError("no completed, measured trial of the plan `resident` among the records. Measure one first.")
    factor = math.exp(statistics.median(map(math.log, ratios)))
    if not 1 / _MOST < factor < _MOST:
        raise ValueError(
            f"trials say the card is {factor:.2f} times as fast as its sheet; check that they are of this card."
        )
    efficiency = min(sheet.product_efficiency * factor, 1.0)
    return Refinement(
        sheet=dataclasses.replace(sheet, product_efficiency=efficiency), factor=factor, num_trials=len(ratios)
    )


def _computing_s(record: Record) -> float | None:
    for name in _COMPUTING:
        phase = record.phases.get(name)
        if phase is not None and phase.duration_s:
            return phase.duration_s
    return record.median_latency_s
