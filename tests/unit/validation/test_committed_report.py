"""The committed validation cannot get worse unseen: its summary stays within what it reached, and the report shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paretune.harness.validation.compare import RowResult
from paretune.harness.validation.report import markdown
from paretune.harness.validation.summary import Report, summarise
from paretune.harness.validation.uncertainty import learn, uncertainty_file

PUBLISHED = Path(__file__).parents[3] / "results" / "published"


@pytest.fixture(scope="module")
def report() -> Report:
    rows = json.loads((PUBLISHED / "results.json").read_text())
    return summarise(RowResult(**row) for row in rows)


def test_the_report_is_what_the_results_say(report: Report) -> None:
    assert (PUBLISHED / "REPORT.md").read_text() == markdown(report)


def test_allocated_peaks_stay_within_their_aim(report: Report) -> None:
    errors = report.by_kind["allocated"]
    assert errors.count >= 20
    assert errors.median <= 0.01


def test_times_stay_as_good_as_they_were(report: Report) -> None:
    assert report.by_kind["time"].median <= 0.12
    assert report.time_ratios is not None
    assert report.time_ratios.median <= 0.10


def test_the_uncertainty_that_predictions_state_comes_from_these_rows(report: Report) -> None:
    assert json.loads(uncertainty_file().read_text()) == learn(report.rows)
