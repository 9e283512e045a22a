"""Records and trials round-trip, identify what they answer, and refuse what they are not."""

import dataclasses
import json

import pytest

from paretune.harness.records import Kind, Outcome, Peaks, Phase, Procedure, Record, Trial

BASE = Record(kind=Kind.SIMULATED, outcome=Outcome.COMPLETE, workload={"name": "x"}, device="cpu", plan="resident")


class Scalar:
    size = 1

    def item(self):
        return 2.5


def test_numbers_json_cannot_say_and_foreign_scalars_survive():
    rich = dataclasses.replace(BASE, fidelity={"psnr_db": float("inf"), "x": float("nan"), "s": Scalar()})
    read = Record.from_json(rich.to_json())
    assert read.fidelity["psnr_db"] == float("inf") and read.fidelity["x"] != read.fidelity["x"]
    assert read.fidelity["s"] == 2.5


@pytest.mark.parametrize("text", ["float:", "float:abc", "float:1.5", "float:Infinity"])
def test_a_text_that_begins_like_such_a_number_stays_a_text(text):
    assert Record.from_json(dataclasses.replace(BASE, facts={"said": text}).to_json()).facts["said"] == text


def test_keys_that_are_one_text_do_not_hide_one_another():
    one, other = ({"name": "toy", "map": {1: first, "1": "cpu"}} for first in ("disk", "cuda"))
    assert Trial(workload=one, device="cpu").key({}) != Trial(workload=other, device="cpu").key({})
    kept = Record.from_json(dataclasses.replace(BASE, facts={1: "a", "1": "b"}).to_json()).facts
    assert sorted(kept.values()) == ["a", "b"]


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": 2}', '{"schema": 1, "surprise": 0}'])
def test_what_is_no_record_of_this_schema_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        Record.from_json(text)


def test_phases_keep_the_order_in_which_they_ran():
    record = dataclasses.replace(BASE, phases={name: Phase() for name in ("load", "prepare", "encode", "denoise")})
    assert list(json.loads(record.to_json())["phases"]) == ["load", "prepare", "encode", "denoise"]


def test_needed_bytes_is_the_drivers_figure_and_covers_preparing():
    record = dataclasses.replace(
        BASE,
        peak_allocated_bytes=5,
        peak_used_bytes=9,
        phases={"prepare": Phase(peak_used_bytes=12), "decode": Phase(peak_used_bytes=9)},
    )
    assert record.needed_bytes == 12
    assert dataclasses.replace(BASE, peak_allocated_bytes=5).needed_bytes == 5
    assert BASE.needed_bytes is None


def test_unknown_peaks_are_never_zero():
    assert Peaks.over([Peaks(), Peaks(pinned_bytes=3)]) == Peaks(pinned_bytes=3)


def test_median_of_even_and_odd_numbers_of_samples():
    assert BASE.median_latency_s is None
    assert dataclasses.replace(BASE, latency_s=(3.0, 1.0, 2.0)).median_latency_s == 2.0
    assert dataclasses.replace(BASE, latency_s=(4.0, 1.0, 2.0, 3.0)).median_latency_s == 2.5


def test_a_key_changes_with_everything_that_changes_the_answer_and_nothing_else():
    trial = Trial(workload={"name": "a", "steps": 4}, device="cpu")
    same = Trial(workload={"steps": 4, "name": "a"}, device="cpu", procedure=Procedure(timeout_s=9), reference="r")
    assert trial.key({"torch": "2"}) == same.key({"torch": "2"})
    others = [
        dataclasses.replace(trial, plan="model_offload"),
        dataclasses.replace(trial, device="sim:h100"),
        dataclasses.replace(trial, device_memory_bytes=1),
        dataclasses.replace(trial, workload={"name": "a", "steps": 5}),
        dataclasses.replace(trial, options={"environment": {"A": "1"}}),
    ]
    keys = {t.key({"torch": "2"}) for t in others} | {trial.key({"torch": "2"}), trial.key({"torch": "3"})}
    assert len(keys) == len(others) + 2
    assert Trial.from_json(trial.to_json()) == trial
