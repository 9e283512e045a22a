"""What the default sampler is made of: features, the learnt error, blame for crashes; and how few trials it needs."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from support.toy_space import GIB, TOYS, made_up, question

from paretune.harness.search.blame import survival
from paretune.harness.search.encoding import Encoding
from paretune.harness.search.features import counted, features_of
from paretune.harness.search.residual import Forecast, Residual
from paretune.harness.search.surrogate import Surrogate
from paretune.strategies import Plan


def parsed(*texts: str) -> list[Plan]:
    return [Plan.parse(text, TOYS) for text in texts]


def test_neighbouring_values_are_neighbours() -> None:
    rows = features_of(parsed(*[f"transformer:keep(blocks={n})" for n in (0, 4, 8, 12)])).rows
    near, far = np.sum((rows[0] - rows[1]) ** 2), np.sum((rows[0] - rows[3]) ** 2)
    assert 0 < near < far


def test_what_counts() -> None:
    assert counted(3) == 3 and counted("6GiB") == 6 * GIB
    assert counted(True) is None and counted("leaf") is None and counted(None) is None


def test_main_effects_are_found_and_added_up() -> None:
    rows = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=float)
    mean, deviation = Surrogate(rows, main_effects_only=True).predict([0, 1, 2], np.array([0.0, 0.5, -0.3]))
    assert mean[3] == pytest.approx(0.2, abs=0.1)
    assert deviation[3] > deviation[0]


def test_nothing_seen_knows_nothing() -> None:
    mean, deviation = Surrogate(np.eye(3)).predict([], np.array([]))
    assert not mean.any() and (deviation > 0.5).all()


def test_blame_falls_on_what_no_working_plan_contains() -> None:
    rows = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=float)
    alive = survival(rows, worked=[0, 1, 2], crashed=[3])
    assert alive[3] < 0.1 and (alive[[0, 1, 2, 4]] > 0.9).all()
    single = survival(rows, worked=[0, 1, 2], crashed=[5])
    assert single[4] < 0.5 and single[3] > 0.9


def test_encoding_is_a_bijection_over_the_feasible_plans() -> None:
    encoding: Encoding = question().encoding
    for plan in encoding.plans:
        params = encoding.params(plan)
        assert set(params) == set(encoding.choices)
        assert all(value in encoding.choices[name] for name, value in params.items())
        assert encoding.plan(params) == plan
    assert encoding.plan(dict.fromkeys(encoding.choices, "gone")) is None


def test_listed_plans_beside_axes_have_a_choice_of_their_own() -> None:
    space = {"strategies": {"vae": {"tile": {"size": 256}}}, "plans": ["transformer:cast", "vae:tile(size=256)"]}
    encoding = question(space=space).encoding
    assert encoding.choices["plan"] == ("-", "transformer:cast")
    for plan in encoding.plans:
        assert encoding.plan(encoding.params(plan)) == plan


@pytest.mark.parametrize("error", [0.0, 0.3])
def test_few_trials_find_the_best_plan_under_a_cap(error: float) -> None:
    needed = [trials_needed(seed, error=error) for seed in range(5)]
    assert statistics.median(needed) <= 15
    assert max(needed) <= 30


def trials_needed(seed: int, *, error: float) -> int:
    """Trials of the sampler itself, without a study around it, until the best plan under 12 GiB is found."""
    from paretune.harness.search.history import Seen

    encoding, rng, cap = question().encoding, np.random.default_rng(seed), 12 * GIB
    truth = {text: made_up(Plan.parse(text)) for text in encoding.plans}
    forecast = {
        text: Forecast(
            latency_s=s * np.exp(rng.normal(0, error)), need_bytes=g * GIB * np.exp(rng.normal(-0.03, error / 4))
        )
        for text, (_, s, g) in truth.items()
    }
    sampler = Residual(encoding, prior=lambda: forecast, caps=[cap], allow_lossy=True, seed=seed)
    best = min(s for _, s, g in truth.values() if g * GIB <= cap)
    seen: dict[str, Seen] = {}
    while len(seen) < 60:
        plan = sampler.propose([p for p in encoding.plans if p not in seen], seen) if seen else "resident"
        _, seconds, gib = truth[plan]
        excess = float(np.log(gib * GIB / cap))
        seen[plan] = Seen(plan=plan, outcome="complete", latency_s=seconds, need_bytes=gib * GIB, excess=excess)
        if gib * GIB <= cap and seconds <= best * 1.0001:
            break
    return len(seen)


def test_proposals_keep_to_what_may_be_recommended_except_now_and_then() -> None:
    encoding = question().encoding
    sampler = Residual(encoding, caps=[12 * GIB], seed=0)
    chosen, remaining = [], list(encoding.plans)
    for _ in range(24):
        plan = sampler.propose(remaining, {})
        remaining.remove(plan)
        chosen.append("cast" in plan)
    assert 1 <= sum(chosen) <= 6
