"""Find the sampler behind a name: ours over the list of plans, or one of Optuna's over the parameters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from paretune.harness.search.encoding import Encoding
from paretune.harness.search.residual import Prior
from paretune.harness.spec import SAMPLERS, Search

__all__ = ["sampler_for"]


def sampler_for(
    search: Search,
    encoding: Encoding,
    *,
    prior: Prior | None = None,
    caps: Sequence[int] = (),
    allow_lossy: bool = False,
) -> Any:
    """The Optuna sampler that ``search.sampler`` names. Raises ``ValueError`` for a name that does not exist."""
    from paretune.harness.search.listed import Coordinate, InOrder, RandomPlans
    from paretune.harness.search.residual import Residual

    name, seed = search.sampler, search.seed
    if name == "residual":
        known = prior if search.prior else None
        return Residual(encoding, prior=known, caps=caps, explore=search.explore, allow_lossy=allow_lossy, seed=seed)
    listed = {"grid": InOrder, "random": RandomPlans, "coordinate": Coordinate}
    if name in listed:
        return listed[name](encoding, seed=seed)
    return _optunas(name, seed)


def _optunas(name: str, seed: int) -> Any:
    import optuna

    makers = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
    }
    if name not in makers:
        raise ValueError(f"sampler {name!r} does not exist. Choose one of: {', '.join(SAMPLERS)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makers[name]()
