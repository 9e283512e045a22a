"""The gate names what changed, closes when it cannot tell, and is silent when nothing changed."""

from __future__ import annotations

import dataclasses
import math

import pytest
from support.records import GIB, GROUPED, OPERATORS, failed, record, study

from paretune.harness.records import Kind, Outcome, Phase
from paretune.harness.regression.compare import compare
from paretune.harness.regression.findings import Status, Verdict, exit_status, verdict_line
from paretune.harness.usage import UsageError


def only(baseline, head, status=None):
    found = [f for f in compare(baseline, head) if f.status is not Status.PASS]
    return [f for f in found if status is None or f.status is status]


def changed(base, **changes):
    return dataclasses.replace(base, **changes)


def measured(**changes):
    return record(kind=Kind.MEASURED, device="cuda", **changes)


def test_equal_records_are_silent():
    assert only(study(), study()) == []
    assert exit_status(compare(study(), study())) == 0
    assert verdict_line(compare(study(), study())).startswith("pass: nothing changed")


def test_one_byte_more_on_the_simulator_is_a_regression_with_its_operator():
    counters = {**record().counters, "operators": {**OPERATORS, "aten::clone": 1}}
    head = changed(record(), peak_allocated_bytes=record().peak_allocated_bytes + 1, counters=counters)
    found = {f.metric: f for f in only([record()], [head])}
    assert set(found) == {"peak_allocated_bytes", "counters.num_operators"}
    assert found["peak_allocated_bytes"].verdict is Verdict.MORE
    assert found["peak_allocated_bytes"].causes == ("aten::clone 0 -> 1",)
    assert "+1 bytes" in found["peak_allocated_bytes"].text
    assert exit_status(compare([record()], [head])) == 1


def explained(operator, module, workspace):
    alive = [
        {"component": "", "kind": "workspace", "bytes": workspace},
        {"component": "vae", "kind": "weight", "bytes": 7},
    ]
    reached = {"operator": operator, "module": module, "total_bytes": workspace + 7, "alive": alive}
    return {"explain": {"sim:0": {"phase": "decode", **reached, "phases": {"decode": reached}}}}


def test_a_peak_names_its_operator_module_and_what_is_alive():
    before = changed(record(), counters=explained("aten.addmm", "transformer.blocks.0", 100))
    after = changed(record(peak_gib=9.0), counters=explained("aten._to_copy", "vae.decoder", 4196))
    causes = next(f for f in only([before], [after]) if f.metric == "peak_allocated_bytes").causes
    assert causes == (
        "peak reached by module transformer.blocks.0 -> vae.decoder",
        "peak reached by operator aten.addmm -> aten._to_copy",
        "alive at the peak, workspace: +4,096 bytes",
    )


def test_a_peak_that_arriving_weights_reach_has_no_module():
    before = changed(record(), counters=explained("", "", 100))
    after = changed(record(peak_gib=9.0), counters=explained("aten.convolution", "vae.decoder", 100))
    causes = next(f for f in only([before], [after]) if f.metric == "peak_allocated_bytes").causes
    assert causes == ("peak reached by module none -> vae.decoder", "peak reached by operator none -> aten.convolution")


def test_a_peak_of_a_phase_is_explained_by_that_phase_alone():
    before = changed(record(), counters=explained("aten.addmm", "m", 1))
    after = changed(before, counters=explained("aten.clone", "m", 1))
    phases = {
        **record().phases,
        "encode": Phase(peak_allocated_bytes=7 * GIB),
        "decode": Phase(peak_allocated_bytes=8 * GIB),
    }
    found = {f.metric: f.causes for f in only([before], [changed(after, phases=phases)], Status.REGRESSION)}
    assert found["phases.encode.peak_allocated_bytes"] == ()
    assert found["phases.decode.peak_allocated_bytes"] == ("peak reached by operator aten.addmm -> aten.clone",)


def test_fewer_bytes_are_an_improvement_and_pass():
    head = changed(record(), peak_allocated_bytes=record().peak_allocated_bytes - 512)
    assert [f.verdict for f in only([record()], [head])] == [Verdict.LESS]
    assert exit_status(compare([record()], [head])) == 0


def test_an_extra_copy_of_a_block_shows_in_the_copies():
    transfers = {**record().transfers, "h2d_bytes": 5 * GIB, "num_copies": 13}
    found = only([record()], [changed(record(), transfers=transfers)], Status.REGRESSION)
    assert {f.metric for f in found} == {"transfers.h2d_bytes", "transfers.num_copies"}


def test_a_peak_of_one_phase_alone_is_caught():
    phases = {**record().phases, "encode": Phase(peak_allocated_bytes=6 * GIB, duration_s=0.6)}
    found = only([record()], [changed(record(), phases=phases)], Status.REGRESSION)
    assert [f.metric for f in found] == ["phases.encode.peak_allocated_bytes"]


def test_simulated_time_is_compared_because_its_clock_is_a_calculation():
    slow = changed(record(), latency_s=(2.2,))
    found = only([record()], [slow], Status.REGRESSION)
    assert [(f.metric, f.verdict) for f in found] == [("latency_s", Verdict.SLOW)]
    assert only([record()], [changed(record(), latency_s=(2.01,))]) == []


def test_stored_time_of_a_real_device_never_gates():
    assert only([measured()], [measured(latency_s=60.0)]) == []


@pytest.mark.parametrize(("factor", "count"), [(1.0099, 0), (1.0101, 1), (0.98, 1)])
def test_measured_memory_has_one_percent(factor, count):
    before = measured()
    after = changed(before, peak_allocated_bytes=int(before.peak_allocated_bytes * factor))
    assert len(only([before], [after])) == count


def test_noisy_figures_of_the_machine_are_noted_and_never_block():
    after = changed(measured(), peak_host_bytes=30 * GIB)
    found = only([measured()], [after])
    assert [(f.metric, f.status) for f in found] == [("peak_host_bytes", Status.NOTE)]
    assert exit_status(compare([measured()], [after])) == 0


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.COMPLETE])
def test_what_used_to_complete_always_blocks(outcome):
    found = compare([record()], [failed("resident", outcome, reason="because")])
    assert [(f.verdict, f.status) for f in found] == [(Verdict.BROKEN, Status.REGRESSION)]


def test_used_to_fit_says_the_sizes():
    said = compare([record()], [failed("resident")])[0].text
    assert said.startswith("used to fit, now out of memory") and "limit 12.00 GiB" in said


def test_an_expected_out_of_memory_passes_and_fitting_again_is_an_improvement():
    assert exit_status(compare([failed("resident")], [failed("resident")])) == 0
    assert [f.verdict for f in only([failed("resident")], [record()])] == [Verdict.FIXED]


def test_one_failure_for_another_blocks():
    assert only([failed("resident")], [failed("resident", Outcome.CRASHED, reason="segfault")], Status.REGRESSION)


def test_a_changed_output_blocks():
    after = changed(record(), counters={**record().counters, "output_hash": "ffff"})
    assert [f.metric for f in only([record()], [after], Status.REGRESSION)] == ["counters.output_hash"]


@pytest.mark.parametrize(
    ("baseline", "head", "word"),
    [
        ([record(), record(GROUPED)], [record()], "was not measured"),
        ([record()], [record(), record(GROUPED)], "no baseline"),
        ([changed(record(), peak_allocated_bytes=0)], [record()], "nothing was measured"),
        ([changed(record(), peak_allocated_bytes=None)], [record()], "no baseline"),
        ([record()], [changed(record(), peak_allocated_bytes=None)], "was not measured"),
        ([changed(record(), latency_s=(math.nan,))], [record()], "nothing was measured"),
        ([changed(record(), latency_s=(0.0,))], [record()], "nothing was measured"),
        ([record(environment={"versions": {"torch": "2.12.1"}})], [record()], "torch 2.12 -> 2.13"),
        ([record(environment={})], [record()], "does not say"),
        ([record(kind=Kind.MEASURED)], [record()], "the baseline is measured"),
        ([], [], None),
    ],
)
def test_what_cannot_be_compared_closes(baseline, head, word):
    findings = compare(baseline, head)
    assert exit_status(findings) == 3
    assert word is None or any(word in f.text for f in findings)


def test_patch_releases_and_builds_are_the_same_version():
    assert only([record(environment={"versions": {"torch": "2.13.1+cpu"}})], [record()]) == []


def test_another_machine_is_foreign_for_measured_figures_only():
    there = {"versions": {"torch": "2.13.0"}, "processor": "other"}
    assert exit_status(compare([measured(environment=there)], [measured()])) == 3
    assert exit_status(compare([record(environment=there)], [record()])) == 0


def test_new_and_vanished_counters_close():
    after = changed(record(), counters={**record().counters, "num_graph_breaks": 2})
    assert exit_status(compare([record()], [after])) == 3
    assert exit_status(compare([after], [record()])) == 3


def test_zero_is_a_figure_for_counts():
    before = changed(record(), counters={"num_graph_breaks": 0})
    after = changed(record(), counters={"num_graph_breaks": 1})
    assert [f.metric for f in only([before], [after])] == ["counters.num_graph_breaks"]


def test_two_records_of_one_plan_are_refused():
    with pytest.raises(UsageError, match="twice"):
        compare([record(), record()], [record()])


def test_other_workload_device_or_cap_is_another_plan():
    for other in (record(device="sim:rtx-4090"), record(device_memory_bytes=GIB), record(workload={"name": "x"})):
        assert len(compare([record()], [other])) == 2


def test_how_the_machine_was_is_not_compared():
    before = measured(counters={"num_allocations": 5, "temperature_c": 40, "sm_clock_mhz": 2500, "throttled": []})
    after = changed(
        before, counters={"num_allocations": 5, "temperature_c": 71, "sm_clock_mhz": 1800, "throttled": ["x"]}
    )
    assert only([before], [after]) == []


def test_no_host_memory_in_a_phase_is_a_figure_of_the_simulator():
    before = changed(record(), phases={"denoise": Phase(peak_allocated_bytes=GIB, peak_host_bytes=0)})
    assert only([before], [before]) == []
    empty = changed(record(), phases={"denoise": Phase(peak_allocated_bytes=0, peak_host_bytes=0)})
    assert exit_status(compare([empty], [empty])) == 3
