"""Advice is given when its figure asks for it, and not when it is already followed."""

from __future__ import annotations

import dataclasses

import pytest
from support.records import GIB, GROUPED, failed, record

from paretune.harness.advice import advise
from paretune.harness.records import Kind


def measured(**changes):
    return dataclasses.replace(record(), **{"kind": Kind.MEASURED, "latency_s": (1.0,) * 6, **changes})


def said(one):
    return " ".join(advise(one))


def test_a_quiet_record_has_none():
    assert list(advise(measured())) == []
    assert list(advise(failed("resident"))) == []


@pytest.mark.parametrize(
    ("latency_s", "words"),
    [
        ((3.1, 1.0, 1.0), "first timed call took 3.1 times the median: raise procedure.num_warmup above 1."),
        ((1.0, 1.2, 0.8, 1.1), "spread by"),
        ((1.0, 1.0, 1.01, 0.99, 1.0, 1.0, 4.0), "1 of 7 calls lie far outside (number 7)"),
        ((1.0, 1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.2, 1.2), "20% slower while measuring"),
    ],
)
def test_timing(latency_s, words):
    assert words in said(measured(latency_s=latency_s, warmup_s=(2.0,)))


def test_simulated_calls_are_not_judged():
    assert said(dataclasses.replace(record(), latency_s=(3.0, 1.0, 1.0))) == ""


def test_fragmentation_unless_already_set():
    wide = measured(peak_reserved_bytes=12 * GIB)
    assert "expandable_segments" in said(wide)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        assert said(dataclasses.replace(wide, environment={"settings": {name: "expandable_segments:True"}})) == ""


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("group_offload", "use_stream=true"),
        (GROUPED, "try block_residency"),
        ("transformer:block_residency(num_resident_blocks=2)", "keep more blocks resident"),
    ],
)
def test_stalls(plan, words):
    assert words in said(measured(plan=plan, transfers={"stall_share": 0.5}))


def test_what_disturbed_the_device():
    seen = {"foreign_processes": 2, "throttled": ["thermal (software)"]}
    text = said(measured(counters=seen))
    assert "2 other processes" in text and "throttled (thermal (software))" in text


def test_threads_left_to_chance_on_the_cpu():
    free = {"settings": {"A": "1"}, "device": {"num_threads": 2}}
    assert "2 threads" in said(measured(device="cpu", environment=free))
    assert said(measured(device="cpu", environment={"settings": {"OMP_NUM_THREADS": "1"}})) == ""


def test_nearly_full_host_memory():
    limit = {"host_memory_bytes": 15 * GIB}
    assert "93% of what there is" in said(measured(peak_host_bytes=14 * GIB, environment=limit))


def test_a_lossy_plan_that_was_not_compared():
    assert "not compared" in said(measured(is_lossy=True, fidelity=None))
    assert said(measured(is_lossy=True)) == ""


@pytest.mark.parametrize("counters", [{"swapped_pages": 900}, {"killed_processes": 1}])
def test_a_machine_that_ran_short_of_memory_is_not_trusted(counters):
    assert "the machine ran short of memory" in said(measured(counters=counters))
