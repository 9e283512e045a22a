"""Recommendations: never over the budget, reasons for what was rejected, nothing fits is an answer."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.records import GIB, failed, record

from paretune.harness.constraints import constraint_names, is_feasible, need_of, violations
from paretune.harness.pareto import latency_and_need, pareto
from paretune.harness.recommend import VERIFICATION, ladder, recommend
from paretune.harness.records import Kind, Outcome, Phase, Record
from paretune.harness.spec import Budget

BUDGET = Budget(device_memory=12 * GIB)


def at(plan: str, latency_s: float, peak_gib: float, **changes: object) -> Record:
    return record(plan, latency_s=latency_s, peak_gib=peak_gib, phases={}, **changes)


def test_the_fastest_that_fits_is_taken_and_the_sentence_says_so() -> None:
    answer = recommend([at("resident", 2, 24), at("a", 3, 8), at("b", 4, 5)], BUDGET)
    assert answer.chosen is not None and answer.chosen.plan == "a"
    assert answer.status == "predicted"
    assert answer.sentence.startswith("a fits 12.00 GiB with ")
    assert answer.need is not None and sum(t.num_bytes for t in answer.need.terms) == answer.need.total_bytes
    assert {r.record.plan: r.because for r in answer.runners_up}["resident"].startswith("needs ")


def test_exactly_at_the_cap_fits_and_one_byte_more_does_not() -> None:
    one = at("a", 3, 8)
    need = need_of(one)
    assert need is not None
    assert recommend([one], Budget(device_memory=need.total_bytes)).chosen is one
    answer = recommend([one], Budget(device_memory=need.total_bytes - 1))
    assert answer.chosen is None and answer.missing_bytes == 1


def test_nothing_fits_names_the_closest_and_what_is_missing() -> None:
    answer = recommend([at("resident", 2, 24), at("a", 3, 14), failed("b")], BUDGET)
    assert answer.chosen is None and answer.closest is not None and answer.closest.plan == "a"
    assert answer.missing_bytes is not None and answer.missing_bytes > 2 * GIB
    assert "closest is a" in answer.sentence and "missing" in answer.sentence


@pytest.mark.parametrize("records", [[], [failed("a")], [failed("a", Outcome.CRASHED)]])
def test_no_record_that_completed_is_an_answer_too(records: list[Record]) -> None:
    answer = recommend(records, BUDGET)
    assert answer.chosen is None and answer.closest is None and answer.status == "none"


def test_lossy_plans_win_only_when_allowed_and_the_gain_is_told() -> None:
    records = [at("a", 3, 8), at("fp8", 2, 6, is_lossy=True)]
    exact = recommend(records, BUDGET)
    assert exact.chosen is not None and exact.chosen.plan == "a"
    assert any("lossy" in sentence and "1.50x" in sentence for sentence in exact.advice)
    lossy = recommend(records, BUDGET, allow_lossy=True)
    assert lossy.chosen is not None and lossy.chosen.plan == "fp8"


def test_a_faster_plan_that_ran_out_is_listed_with_its_outcome() -> None:
    answer = recommend([at("a", 3, 8), failed("b")], BUDGET)
    assert any("oom" in entry.because for entry in answer.runners_up)


def test_more_memory_buys_time() -> None:
    answer = recommend([at("resident", 1, 24), at("a", 3, 8)], BUDGET)
    assert any("more memory buys 3.00x" in sentence for sentence in answer.advice)


def test_kinds_never_mix() -> None:
    simulated, measured = at("a", 1, 4), at("b", 3, 8, kind=Kind.MEASURED, device="cuda")
    answer = recommend([simulated, measured], BUDGET)
    assert answer.chosen is measured and answer.num_considered == 1


def test_what_failed_its_verification_is_out_and_the_next_is_tried() -> None:
    records = [at("a", 3, 8), at("b", 4, 5)]
    bad = failed("a", options={"purpose": VERIFICATION}, device_memory_bytes=12 * GIB)
    answer = recommend([*records, bad], BUDGET)
    assert answer.chosen is not None and answer.chosen.plan == "b"
    assert any("failed when it was run again" in entry.because for entry in answer.runners_up)
    good = dataclasses.replace(records[1], options={"purpose": VERIFICATION}, device_memory_bytes=12 * GIB)
    assert recommend([*records, bad, good], BUDGET).status == "verified"


def test_a_verification_under_another_cap_proves_nothing() -> None:
    other = at("a", 3, 8, options={"purpose": VERIFICATION}, device_memory_bytes=16 * GIB)
    assert recommend([at("a", 3, 8), other], BUDGET).status == "predicted"


def test_ties_go_to_the_simpler_plan() -> None:
    answer = recommend([at("x:a + y:b", 2.99, 7), at("x:a", 3.0, 8)], BUDGET)
    assert answer.chosen is not None and answer.chosen.plan == "x:a"


def test_other_limits() -> None:
    budget = Budget(device_memory=12 * GIB, host_memory=8 * GIB)
    answer = recommend([at("a", 3, 8, peak_host_bytes=16 * GIB), at("b", 4, 5, peak_host_bytes=4 * GIB)], budget)
    assert answer.chosen is not None and answer.chosen.plan == "b"
    assert any("host memory" in entry.because for entry in answer.runners_up)
    slow = recommend([at("a", 3, 8), at("b", 4, 5)], Budget(latency_s=3.5), objective="memory")
    assert slow.chosen is not None and slow.chosen.plan == "a"


def test_fidelity_is_a_floor_for_lossy_plans() -> None:
    budget = Budget(fidelity_db=30)
    records = [
        at("a", 1, 8, is_lossy=True, fidelity={"psnr_db": 20.0}),
        at("b", 2, 8, is_lossy=True, fidelity={"psnr_db": 35.0}),
        at("c", 0.5, 8, is_lossy=True, fidelity=None),
        at("d", 3, 8, fidelity=None),
    ]
    answer = recommend(records, budget, allow_lossy=True)
    assert answer.chosen is not None and answer.chosen.plan == "b"


def test_the_ladder_gets_faster_with_memory() -> None:
    records = [at("resident", 1, 24), at("a", 3, 8), at("b", 4, 5)]
    steps = ladder(records, [gib * GIB for gib in (48, 4, 6, 10)])
    plans = [step.chosen.plan if step.chosen else None for step in steps]
    assert plans == [None, "b", "a", "resident"]


def test_margins_say_where_they_come_from() -> None:
    told = need_of(at("a", 3, 8, uncertainty={"peak_allocated_bytes": 0.1}))
    assert told is not None and "10.0%" in told.terms[-1].because
    measured = need_of(at("a", 3, 8, kind=Kind.MEASURED, device="cuda"))
    assert measured is not None and "3 %" in measured.terms[-1].because
    unknown = need_of(at("a", 3, 8, peak_used_bytes=None, peak_reserved_bytes=None))
    assert unknown is not None and any("assumed" in term.because for term in unknown.terms)


def test_peaks_count_over_all_phases() -> None:
    loading = at("a", 3, 2)
    loading = dataclasses.replace(loading, phases={"load": Phase(peak_allocated_bytes=20 * GIB)})
    assert recommend([loading], BUDGET).chosen is None


def test_out_of_memory_needs_more_than_it_had() -> None:
    need = need_of(failed("a"))
    assert need is not None and need.is_lower_bound and need.total_bytes >= 12 * GIB * 1.05
    assert need_of(failed("a", oom={})) is None


SOME = st.builds(
    at,
    st.sampled_from(["a", "b", "c", "d + e"]),
    st.floats(0.1, 100),
    st.floats(0.1, 90),
    is_lossy=st.booleans(),
    kind=st.sampled_from([Kind.SIMULATED, Kind.MEASURED]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(SOME, st.builds(failed, st.sampled_from("abc"))), max_size=8), st.integers(1, 100))
def test_never_over_the_cap(records: list[Record], gib: int) -> None:
    budget = Budget(device_memory=gib * GIB)
    answer = recommend(records, budget)
    if answer.chosen is not None:
        need = need_of(answer.chosen)
        assert need is not None and need.total_bytes <= gib * GIB
        assert not answer.chosen.is_lossy and answer.chosen.is_complete


@settings(max_examples=60, deadline=None)
@given(st.lists(SOME, max_size=12))
def test_the_front_holds_exactly_what_nothing_dominates(records: list[Record]) -> None:
    front = pareto(records)
    figures = [latency_and_need(r) for r in records]
    for one, own in zip(records, figures):
        assert own is not None
        beaten = any(f is not None and f != own and f[0] <= own[0] and f[1] <= own[1] for f in figures)
        assert beaten != any(r is one for r in front)


@given(st.builds(Budget, device_memory=st.sampled_from([None, GIB]), latency_s=st.sampled_from([None, 1.0])))
def test_every_record_has_every_constraint(budget: Budget) -> None:
    for each in (at("a", 3, 8), failed("a"), failed("b", Outcome.CRASHED), failed("c", Outcome.TIMEOUT, oom={})):
        found = violations(each, budget)
        assert tuple(found) == constraint_names(budget)
        assert all(math.isfinite(value) for value in found.values())
        assert not (is_feasible(each, budget) and not each.is_complete)


def test_what_never_ran_is_neither_recommended_nor_in_the_way_of_what_ran() -> None:
    ran, never = at("resident", 2.0, 8.0), at("resident", 1.0, 1.0, kind=Kind.INFERRED)
    answer = recommend([ran, never, at("model_offload", 0.5, 1.0, kind=Kind.INFERRED)], Budget())
    assert answer.chosen is ran
    assert [entry.because for entry in answer.runners_up] == ["never ran; what is said of it follows from other plans"]
