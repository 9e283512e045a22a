"""The search bench: its simulated table is whole, its forecasts are wrong about it, and the default sampler finds the best."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from paretune.harness.bench._landscape import Ground, tabled
from paretune.harness.bench._tables import SPACES
from paretune.harness.bench.search import races
from paretune.harness.components import components_of
from paretune.harness.planner import expand
from paretune.harness.question import surroundings_of
from paretune.harness.space import axes_of


@pytest.fixture(scope="module", params=sorted(SPACES))
def place(request: pytest.FixtureRequest) -> Ground:
    return tabled(request.param)


def test_a_table_holds_every_plan_of_its_space_and_no_other(place: Ground) -> None:
    roles = components_of({"name": place.name}).roles
    plans = expand(axes_of(SPACES[place.name], roles), roles, surroundings_of("sim:rtx-4090")).feasible
    assert set(place.table) == {str(plan) for plan in plans} == set(place.encoding.plans)
    assert set(place.encoding.choices) == {axis.name for axis in axes_of(SPACES[place.name], roles)}


def test_the_truth_stays_and_the_forecast_is_wrong_in_another_way_for_each_seed(place: Ground) -> None:
    one, other = place.draw(0), place.draw(1)
    assert (one.latency_s == other.latency_s).all() and (one.need_bytes == other.need_bytes).all()
    for truth in (one, other):
        told = np.array([truth.forecast[plan].latency_s for plan in place.encoding.plans])
        assert 0.5 < spearmanr(told, truth.latency_s).statistic < 0.99
        assert 0.02 < np.std(np.log(told / truth.latency_s)) < 0.6
    assert one.forecast != other.forecast


def test_the_default_sampler_needs_few_trials_and_random_more(place: Ground) -> None:
    ours, chance = (list(races(name, [place], [0])) for name in ("residual", "random"))
    assert max(finish.within_5 for finish in ours) <= 15
    assert sum(finish.within_5 for finish in ours) * 2 < sum(finish.within_5 for finish in chance)
