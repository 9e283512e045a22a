"""Swapping and killed processes between two looks at the kernel's counts are told; little of it, or no counts, are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from paretune.harness import health, perform
from paretune.harness.records import Trial


def counts(folder: Path, **values: int) -> dict[str, int]:
    file = folder / "vmstat"
    file.write_text("nr_free_pages 7\n" + "".join(f"{name} {value}\n" for name, value in values.items()))
    return health.counters(file)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({"pswpin": 10, "pswpout": 20, "oom_kill": 3}, {}),
        ({"pswpin": 10, "pswpout": 2020, "oom_kill": 3}, {"swapped_pages": 2000}),
        ({"pswpin": 500, "pswpout": 30, "oom_kill": 3}, {"swapped_pages": 500}),
        ({"pswpin": 12, "pswpout": 21, "oom_kill": 5}, {"killed_processes": 2}),
        ({"pswpin": 12, "pswpout": 21}, {}),
    ],
)
def test_what_happened_in_between(tmp_path: Path, after: dict[str, int], found: dict[str, int]) -> None:
    before = counts(tmp_path, pswpin=10, pswpout=20, oom_kill=3)
    assert health.disturbance(before, counts(tmp_path, **after)) == found


def test_a_system_without_counts_says_nothing(tmp_path: Path) -> None:
    assert health.counters(tmp_path / "none") == {}
    assert health.disturbance({}, {"pswpin": 5000, "pswpout": 0, "oom_kill": 9}) == {}


def test_a_trial_keeps_what_its_machine_suffered(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{"pswpin": 0, "pswpout": 0}] + [{"pswpin": 0, "pswpout": 4000}] * 9)
    monkeypatch.setattr(health, "counters", lambda: next(looks))
    trial = Trial(workload={"name": "sd1.5-tiny"}, device="cpu", plan="")
    record = perform.perform(trial, lambda phase: None)
    assert record.counters["swapped_pages"] == 4000
