"""How good the forecasts were: their rank correlation with what was measured, and their bias."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paretune.harness.records import Record
from paretune.harness.search.residual import Forecast

__all__ = ["PriorQuality", "prior_quality"]

_LEAST = 3


@dataclass(frozen=True, kw_only=True)
class PriorQuality:
    """rank_correlation: Spearman's, of forecast and measured latency. bias: typical measured / forecast latency."""

    rank_correlation: float
    bias: float
    num_plans: int

    def __str__(self) -> str:
        return (
            f"forecasts against {self.num_plans} measured plans: rank correlation {self.rank_correlation:.2f}, "
            f"measured {self.bias:.2f}x the forecast"
        )


def prior_quality(forecast: Mapping[str, Forecast], records: Iterable[Record]) -> PriorQuality | None:
    """Compare forecasts with completed records; ``None`` where fewer than three plans have both."""
    from scipy.stats import spearmanr

    pairs = [
        (told.latency_s, record.median_latency_s)
        for record in records
        if record.is_complete and (told := forecast.get(record.plan)) and told.latency_s and record.median_latency_s
    ]
    if len(pairs) < _LEAST or len({one for one, _ in pairs}) < 2 or len({other for _, other in pairs}) < 2:
        return None
    ratios = sorted(math.log(measured / said) for said, measured in pairs if said and measured)
    correlation = float(spearmanr([said for said, _ in pairs], [measured for _, measured in pairs]).statistic)
    return PriorQuality(rank_correlation=correlation, bias=math.exp(ratios[len(ratios) // 2]), num_plans=len(pairs))
