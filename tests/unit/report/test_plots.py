"""Figures are drawn from rows, label what they show, and refuse to be empty."""

from __future__ import annotations

import pytest
from support.records import GIB, GROUPED, failed, record, study

from paretune.harness import report
from paretune.harness.report.draw import PLOTS
from paretune.harness.report.importance import importances
from paretune.harness.report.ladder import rungs
from paretune.harness.report.plots import importance_plot, ladder_plot, pareto_plot, phases_plot, save, stages_plot
from paretune.harness.usage import UsageError


def many():
    sizes = range(10)
    plans = [f"transformer:block_residency(num_resident_blocks={n})" for n in sizes]
    return study() + [record(plan, latency_s=3 - n / 10, peak_gib=2.2 + n / 3) for n, plan in zip(sizes, plans)]


@pytest.mark.parametrize("what", PLOTS)
def test_every_figure_is_written_and_says_simulated(what, tmp_path):
    figure = PLOTS[what](many(), "7GiB")
    path = save(figure, tmp_path / "figures" / f"{what}.svg")
    assert path.stat().st_size > 5000
    assert "simulated" in figure.get_suptitle()


def test_pareto_draws_every_point_the_front_and_the_budgets():
    axes = pareto_plot(report.rows(study()), budgets_bytes=(4 * GIB, 8 * GIB)).axes[0]
    labels = [text.get_text() for text in axes.texts]
    assert {"1", "2", "3", "budget 4 GiB", "budget 8 GiB"} == set(labels)
    assert "GiB (2^30 bytes)" in axes.get_xlabel()


def test_phases_draw_one_bar_per_phase_and_plan():
    complete = [row for row in report.rows(study()) if row.record.phases]
    assert len(phases_plot(report.rows(study())).axes[0].patches) == 4 * len(complete)


def test_phases_name_the_budget():
    texts = phases_plot(report.rows(study()), budgets_bytes=(7 * GIB,)).axes[0].texts
    assert [text.get_text() for text in texts] == ["budget 7 GiB"]


def test_a_long_plan_stands_whole_on_its_rung():
    plan = " + ".join(f"part_{n}:group_offload(level=leaf_level,use_stream=true)" for n in range(4))
    shown = ladder_plot(rungs([record(plan)], ("16GiB",)), title="what was asked " * 20)
    assert " ".join(shown.axes[0].texts[0].get_text().split()).endswith(plan)
    assert max(map(len, shown.get_suptitle().splitlines())) <= 110


def test_stages_leave_out_what_is_not_part_of_a_call():
    axes = stages_plot(report.rows([record()])).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["encode", "denoise", "decode", "stalled"]


@pytest.mark.parametrize("draw", [pareto_plot, phases_plot, stages_plot])
def test_nothing_to_draw_is_an_error(draw):
    with pytest.raises(ValueError, match="nothing to plot"):
        draw(report.rows([failed("resident")]))


def test_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(UsageError, match="png, svg, pdf"):
        save(pareto_plot(report.rows(study())), tmp_path / "figure.gif")


def test_hostile_plan_names_are_drawn_as_they_are(tmp_path):
    save(pareto_plot(report.rows([record("a$b$_{x}^{\\frac{1}{0}}")])), tmp_path / "x.png")


def test_ladder_takes_the_fastest_exact_plan_of_each_size():
    found = {rung.memory_gib: rung.row and rung.row.plan for rung in rungs(study(), ("1GiB", "3GiB", "7GiB", "16GiB"))}
    assert found == {1.0: None, 3.0: GROUPED, 7.0: GROUPED, 16.0: "resident"}
    assert rungs(study(), ("7GiB",), is_lossy_allowed=True)[0].row.is_lossy


def test_importance_finds_the_parameter_that_decides():
    shares = importances(many(), metric="needed_bytes")
    assert abs(sum(shares.values()) - 1) < 1e-6
    only = [record(f"t:s(k={n},z={n % 2})", latency_s=float(n)) for n in range(10)]
    assert next(iter(importances(only))) == "t:s.k"


def test_importance_needs_enough_plans_and_variation():
    with pytest.raises(ValueError, match="at least 8"):
        importances(study())
    with pytest.raises(ValueError, match="varies"):
        importances([record(f"t:s(k={n})", key=str(n)) for n in range(9)])
    with pytest.raises(ValueError, match="nothing to plot"):
        importance_plot({}, metric="latency")
