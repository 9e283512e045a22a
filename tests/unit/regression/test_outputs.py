"""JUnit, step summary, annotations, JSON and text: valid whatever the findings say, and within GitHub's limits."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from support.records import failed, record, study

from paretune.harness.records import Kind, Outcome
from paretune.harness.regression.compare import compare
from paretune.harness.regression.document import document
from paretune.harness.regression.findings import Finding, Status, Verdict, exit_status
from paretune.harness.regression.junit import junit
from paretune.harness.regression.side_by_side import side_by_side
from paretune.harness.regression.summary import MAX_SUMMARY_BYTES, step_summary, text_report, workflow_commands

HOSTILE = "a|b <b>&\x00\x1b[31m 100%\r\n::error::injected ]]> \ud800"


def broken(count=1, text=HOSTILE):
    one = {"verdict": Verdict.BROKEN, "status": Status.REGRESSION, "baseline": "complete", "head": "oom"}
    return [Finding(where=f"plan {n}: x, y", metric="outcome", sentence=text, **one) for n in range(count)]


def test_junit_counts_and_statuses():
    findings = compare([*study(), record("new:plan")], [*study(), record("other:plan")])
    root = ET.fromstring(junit(findings))
    suite = root[0]
    assert suite.get("tests") == str(len(findings))
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "2")
    assert len(suite.findall("testcase")) == len(findings)
    assert len(suite.findall("testcase/skipped")) == 2


def test_junit_of_a_regression_is_a_failure_with_its_text_and_numbers():
    case = ET.fromstring(junit(compare([record()], [failed("resident")])))[0].find("testcase")
    assert "used to fit" in case.find("failure").get("message")
    assert {p.get("name"): p.get("value") for p in case.find("properties")}["head"] == "oom"


def test_junit_survives_what_xml_cannot_say():
    message = ET.fromstring(junit(broken()))[0].find("testcase/failure").get("message")
    assert "::error::injected ]]>" in message and "\x1b" not in message


def test_nothing_compared_is_an_error_everywhere():
    assert ET.fromstring(junit([])).get("errors") == "1"
    assert exit_status([]) == 3
    assert json.loads(document([]))["exit_status"] == 3
    assert text_report([]).startswith("inconclusive")


def test_summary_stays_below_the_limit_and_says_what_is_hidden():
    drawn = step_summary(broken(20_000, "x" * 200))
    assert len(drawn.encode()) <= MAX_SUMMARY_BYTES < 2**20
    shown = drawn.count("\n| regression |")
    assert f"{20_000 - shown} more are in the JSON report" in drawn


def test_summary_counts_bytes_not_characters():
    assert len(step_summary(broken(500, "\u00e9" * 200), max_bytes=20_000).encode()) <= 20_000


def test_summary_escapes_markup():
    drawn = step_summary(broken())
    assert "<b>" not in drawn and len(drawn.splitlines()) == 7


def test_summary_of_a_pass_has_no_table():
    assert "|" not in step_summary(compare(study(), study()))


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (1, 1), (10, 10), (11, 10), (500, 10)])
def test_at_most_ten_annotations_of_a_kind(count, lines):
    commands = workflow_commands(broken(count))
    assert len(commands) == lines
    assert count <= 10 or f"{count - 9} more" in commands[-1]


def test_annotations_cannot_be_injected_into():
    (command,) = workflow_commands(broken())
    assert "\n" not in command and "\r" not in command
    assert command.startswith("::error title=outcome of plan 0%3A x%2C y::") and "100%25" in command


def test_json_is_complete_and_strict():
    body = json.loads(document(compare(study(), study()), detectable=0.09))
    assert body["detectable"] == 0.09 and len(body["findings"]) > 50
    odd = Finding(where="p", metric="m", verdict=Verdict.MISSING, status=Status.NOTE, sentence="s", head=float("nan"))
    assert json.loads(document([odd]))["findings"][0]["head"] == "nan"


def test_text_shows_the_worst_first_and_no_passes():
    drawn = text_report(compare([record(), record("b:y")], [failed("resident", Outcome.CRASHED, reason="why")]))
    lines = drawn.splitlines()
    assert lines[0].startswith("regression: 1 regression, 1 inconclusive in 2 metrics of 2 plans.")
    assert lines[1].strip().startswith("regression") and lines[2].strip().startswith("inconclusive")


def judged(metric, status=Status.PASS, sentence="said", causes=()):
    verdict = Verdict.SAME if status is Status.PASS else Verdict.MORE
    return Finding(where="plan", metric=metric, verdict=verdict, status=status, sentence=sentence, causes=causes)


def test_whoever_asked_about_time_is_told_that_it_is_the_same():
    drawn = text_report([judged("peak_bytes"), judged("processor_time", sentence="processor time SAME: 1.001")])
    assert drawn.splitlines()[1:] == ["  pass         plan: processor time SAME: 1.001"]
    assert "SAME: 1.001" in step_summary([judged("latency", sentence="latency SAME: 1.001")])


def test_reasons_that_repeat_are_told_once():
    rows = [judged(name, Status.REGRESSION, f"{name} more", ("aten.clone 0 -> 1",)) for name in ("a", "b", "c")]
    for drawn in (text_report(rows), step_summary(rows)):
        assert drawn.count("aten.clone") == 1 and drawn.count("for the same reasons") == 2
    assert document(rows).count("aten.clone") == junit(rows).count("aten.clone") == 3


def test_a_terminal_is_given_nothing_to_obey():
    for line in (*text_report(broken())[:-1].split("\n"), *workflow_commands(broken())):
        assert line.isprintable()
    assert "injected" in text_report(broken()) and "injected" in workflow_commands(broken())[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (5_904, 6_520, "5,904 bytes -> 6,520 bytes, +616 bytes (+10.43%)"),
        (390_070_272, 392_167_424, "372.0 MiB -> 374.0 MiB, +2.0 MiB (+0.54%)"),
        (2 << 40, 1 << 40, "2,048.00 GiB -> 1,024.00 GiB, -1,024.00 GiB (-50.00%)"),
    ],
)
def test_sizes_are_drawn_so_that_they_can_be_told_apart(old, new, said):
    findings = compare([record(peak_used_bytes=old)], [record(peak_used_bytes=new)])
    assert [f.sentence for f in findings if f.metric == "peak_used_bytes"] == [f"peak_used_bytes {said}"]


def test_side_by_side_says_the_kind_and_relates_no_two_kinds():
    simulated, measured = record(), record(kind=Kind.MEASURED)
    alike, unlike = side_by_side([simulated], [simulated]), side_by_side([simulated], [measured])
    assert " simulated  toy-dit" in alike and alike.count("1.00x") == 2
    assert " simulated -> measured  toy-dit" in unlike and "x " not in unlike.splitlines()[1]


def test_side_by_side_without_a_common_plan_is_no_empty_table():
    assert side_by_side([record()], [record("model_offload")]) == "2 plans are on one side only.\n"
