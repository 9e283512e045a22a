"""What a table holds: order, reference, front, relative figures, reasons, and what it refuses."""

from __future__ import annotations

import math

import pytest
from support.records import GIB, GROUPED, failed, record, study

from paretune.harness import report
from paretune.harness.recommend import VERIFICATION
from paretune.harness.records import Kind, Outcome, Peaks, Phase
from paretune.harness.spec import Budget


def test_reference_on_top_then_feasible_by_time_then_over_budget_then_failures():
    made = report.rows(study(), budget="6GiB")
    assert [row.plan for row in made] == [
        "resident",
        GROUPED,
        "model_offload",
        "transformer:layerwise_casting(storage_dtype=float8_e4m3fn)",
        "vae:vae_tiling",
        "group_offload + model_offload",
    ]
    assert [row.is_feasible for row in made] == [False, True, True, False, False, False]


def test_front_holds_only_feasible_undominated_plans():
    front = [row.plan for row in report.rows(study()) if row.is_on_front]
    assert front == ["resident", "transformer:layerwise_casting(storage_dtype=float8_e4m3fn)", GROUPED]
    tied = [record("a:x", latency_s=3.0, peak_gib=2.0), record("b:x", latency_s=3.0, peak_gib=2.0)]
    assert all(row.is_on_front for row in report.rows(tied))


def test_figures_relative_to_the_reference_are_unrounded():
    row = report.rows([record(latency_s=3.0, peak_gib=7.0), record(GROUPED, latency_s=1.0, peak_gib=2.0)])[1]
    assert row.relative_latency == 1.0 / 3.0
    assert row.relative_memory == 2.0 / 7.0
    assert row.saved_bytes == 5 * GIB


def test_no_reference_means_no_relative_figures_not_zero():
    row = report.rows([record(GROUPED)])[0]
    assert (row.relative_latency, row.saved_bytes, row.relative_memory) == (None, None, None)
    gone = report.rows([failed("resident"), record(GROUPED)])
    assert gone[0].is_reference and gone[1].relative_latency is None


def test_exactly_at_the_cap_fits_and_one_byte_over_does_not():
    needed = report.rows([record()])[0].needed_bytes
    assert report.rows([record()], budget=needed)[0].is_feasible
    over = report.rows([record()], budget=needed - 1)[0]
    assert not over.is_feasible and over.margin_bytes == -1 and "device memory" in over.reason


def test_unknown_memory_never_fits_a_cap():
    blank = {"peak_allocated_bytes": None, "peak_reserved_bytes": None, "peak_used_bytes": None, "phases": {}}
    row = report.rows([record(**blank)], budget="80GiB")[0]
    assert not row.is_feasible and "not known" in row.reason


@pytest.mark.parametrize(
    ("budget", "word"),
    [
        (Budget(host_memory="1GiB"), "host memory"),
        (Budget(pinned="1GiB"), "pinned memory is not known"),
        (Budget(latency_s=1.0), "takes 2.00 s"),
        (Budget(fidelity_db=40.0), "38.2 dB"),
    ],
)
def test_every_cap_of_the_budget_counts(budget, word):
    lossy = record(is_lossy=True, fidelity={"is_exact": False, "psnr_db": 38.2})
    row = report.rows([lossy], budget=budget)[0]
    assert not row.is_feasible and word in row.reason


def test_an_exact_plan_passes_any_floor_on_fidelity():
    assert report.rows([record(is_lossy=True)], budget=Budget(fidelity_db=99.0))[0].is_feasible


def test_out_of_memory_says_its_sizes_and_phase():
    row = report.rows([failed("resident")])[0]
    assert row.reason == (
        "out of device memory at denoise: 11.00 GiB allocated, 2.00 GiB more asked for, limit 12.00 GiB"
    )


def test_mixed_kinds_are_refused_unless_asked_for_and_then_marked():
    mixed = [record(), record(GROUPED, kind=Kind.MEASURED)]
    with pytest.raises(report.MixedRecords, match="measured and simulated"):
        report.rows(mixed)
    drawn = report.text(report.rows(mixed, is_mixed_allowed=True))
    assert "MIXED" in drawn and "measured" in drawn and drawn.splitlines()[2].startswith("kind ")


def test_mixed_questions_are_refused():
    with pytest.raises(report.MixedRecords, match="2 questions"):
        report.rows([record(), record(device="sim:rtx-4090")])


def test_inferred_rows_stay_with_their_question_and_are_marked():
    inferred = failed("vae:vae_tiling", kind=Kind.INFERRED, oom=None, reason="a plan that needs less ran out of memory")
    groups = report.group([inferred, record(), record(device="sim:rtx-4090")])
    assert [len(members) for members in groups] == [2, 1]
    assert "inferred" in report.text(report.rows(groups[0]))


def test_a_repeated_trial_shows_its_newest_record():
    made = report.rows([record(latency_s=9.0), record(latency_s=1.0)])
    assert [row.latency_s for row in made] == [1.0]


def test_needed_memory_counts_what_lies_outside_the_allocator_and_a_margin():
    row = report.rows([record()])[0]
    assert row.needed_bytes > row.peak_used_bytes > row.peak_reserved_bytes


def test_host_memory_counts_loading():
    phases = {"load": Phase(peak_host_bytes=31 * GIB), "denoise": Phase(peak_host_bytes=GIB)}
    assert report.rows([record(phases=phases)])[0].peak_host_bytes == 31 * GIB


def test_exact_fidelity_is_infinite():
    assert report.rows([record()])[0].fidelity == math.inf


def test_headline_is_the_recommendation_and_what_would_buy_more():
    said = report.headline(report.rows(study(), budget="7GiB"), budget="7GiB")
    assert said.startswith(f"{GROUPED} fits 7.00 GiB") and "output unchanged" in said and "predicted" in said
    assert "Allowing lossy plans buys 1.43x" in said


def test_headline_when_nothing_fits_names_the_closest():
    said = report.headline(report.rows(study(), budget="1GiB"), budget="1GiB")
    assert said.startswith("No plan fits 1.00 GiB") and GROUPED in said


def test_headline_without_any_complete_plan():
    assert "none of 1 plans completed" in report.headline(report.rows([failed("resident")]))
    assert report.headline(()) == "There are no records."


def test_every_outcome_has_a_row():
    made = [failed(f"plan{i}", outcome) for i, outcome in enumerate(Outcome) if outcome is not Outcome.COMPLETE]
    assert len(report.rows(made)) == len(Outcome) - 1
    assert all(row.reason for row in report.rows(made))


def test_peaks_of_zero_are_figures():
    row = report.rows([record(**{**Peaks().__dict__, "peak_allocated_bytes": 0, "phases": {}})])[0]
    assert row.peak_allocated_bytes == 0 and row.needed_bytes is not None


def test_a_verified_plan_is_one_row_and_the_headline_says_verified():
    again = record(GROUPED, options={"purpose": "verification"}, device_memory_bytes=7 * GIB, key="again")
    records = [*study(), again]
    made = report.rows(records, budget="7GiB")
    assert [row.plan for row in made].count(GROUPED) == 1
    assert "verified" in report.headline(made, budget="7GiB", records=records)
    assert [row.plan for row in report.rows([again])] == [GROUPED]


def test_in_a_mixed_table_nothing_is_relative_to_figures_of_another_kind():
    def of(kind, factor):
        return [
            record(plan, latency_s=s * factor, peak_gib=g, kind=kind, key=f"{kind}{plan}")
            for plan, s, g in (("resident", 2.0, 8.0), ("model_offload", 3.0, 4.0))
        ]

    made = report.rows([*of(Kind.MEASURED, 1.0), *of(Kind.SIMULATED, 1.5)], is_mixed_allowed=True)
    assert [row.relative_latency for row in made if row.plan == "resident"] == [1.0, 1.0]
    assert [row.relative_latency for row in made if row.plan == "model_offload"] == [1.5, 1.5]
    assert all(row.is_on_front for row in made)


def test_the_headline_says_how_the_figures_came_about():
    def said(kind):
        return report.headline(report.rows([record(kind=kind, device="cuda")]))

    assert said(Kind.MEASURED).endswith("measured on cuda.")
    assert said(Kind.EMULATED).endswith("measured on cuda with spare memory held back.")
    assert "predicted in simulation of" in said(Kind.SIMULATED)
    assert said(Kind.PUBLISHED) == said(Kind.INFERRED) == "No plan of these was run here, so none is recommended."


def test_a_verification_on_the_same_card_with_less_memory_stands_with_its_plan():
    checked = record(device="sim:rtx-4070,memory=12GiB", key="again", options={"purpose": VERIFICATION})
    other_card = record(device="sim:rtx-4090,memory=12GiB", key="other", options={"purpose": VERIFICATION})
    found = report.group([checked, record(device="sim:rtx-4070,memory=1TiB"), other_card])
    assert [[one.key for one in members] for members in found] == [["key of resident", "again"], ["other"]]
    assert len(report.rows(found[0])) == 1
