"""Every format says the same, says units, and survives hostile text."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.records import GIB, failed, record, study

from paretune.harness import report
from paretune.harness.cli.show import command as show
from paretune.harness.records import Kind, Outcome
from paretune.harness.report.columns import COLUMNS
from paretune.harness.report.draw import FORMATS, draw_table
from paretune.harness.report.units import gib, seconds
from paretune.harness.store import Store
from paretune.harness.usage import UsageError

HOSTILE = "a|b `c` <img src=x onerror=alert(1)> @someone \x1b[31m $x_{1}$ \n new & 100%"


def test_text_is_aligned_and_says_the_kind():
    drawn = report.text(report.rows(study()))
    lines = drawn.splitlines()
    assert "simulated: predictions, nothing was measured" in lines[0]
    assert "needed GiB" in lines[2]
    assert len({line.index("complete") for line in lines if "complete" in line}) == 1


def test_unknown_is_a_dash_never_a_zero():
    drawn = report.text(report.rows([record(), failed("vae:vae_tiling")]))
    assert "0.00" not in drawn.splitlines()[-1]


def test_csv_and_json_hold_raw_values_of_every_column():
    made = report.rows(study())
    lines = list(csv.DictReader(io.StringIO(report.as_csv(made))))
    told = json.loads(report.as_json(made))["rows"]
    assert len(lines) == len(told) == len(study())
    assert {c.name for c in COLUMNS} <= set(lines[0])
    assert int(lines[0]["peak_allocated_bytes"]) == told[0]["peak_allocated_bytes"] == 8 * GIB
    assert told[0]["fidelity"] == "inf"
    assert lines[-1]["latency_s"] == "" and told[-1]["latency_s"] is None


@pytest.mark.parametrize("start", "=+-@\t")
def test_csv_cells_are_no_formulas(start):
    told = report.as_csv(report.rows([failed("resident", Outcome.CRASHED, reason=f"{start}cmd")]))
    assert next(csv.DictReader(io.StringIO(told)))["reason"] == f"'{start}cmd"


def test_markdown_escapes_markup_mentions_and_line_breaks():
    drawn = report.markdown(report.rows([failed("resident", Outcome.CRASHED, reason=HOSTILE)]))
    table = [line for line in drawn.splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert "<img" not in drawn and "@someone" not in drawn
    assert len(table[2].replace("\\|", "").split("|")) == len(table[0].split("|"))


def test_text_shows_control_characters_instead_of_sending_them():
    drawn = report.text(report.rows([failed("resident", Outcome.CRASHED, reason=HOSTILE)]))
    assert "\x1b" not in drawn and "\\x1b[31m" in drawn


def test_latex_escapes():
    drawn = report.as_latex(report.rows([failed("resident", Outcome.CRASHED, reason=HOSTILE)]))
    assert r"\$x\_\{1\}\$" in drawn and r"100\%" in drawn and r"\textless" in drawn


def test_frame_has_a_line_per_plan():
    made = report.frame(study(), budget="7GiB")
    assert len(made) == len(study())
    assert made.loc[made.is_feasible, "latency_s"].min() == 2.1


@pytest.mark.parametrize(
    ("value", "drawn"),
    [
        (0.0000015, "1.50 us"),
        (0.9996, "1000 ms"),
        (1.0, "1.00 s"),
        (12.34, "12.3 s"),
        (123.4, "123 s"),
        (0.5, "500 ms"),
    ],
)
def test_seconds_have_three_digits(value, drawn):
    assert seconds(value) == drawn


@pytest.mark.parametrize(
    ("value", "drawn"), [(GIB, "1.00"), (0, "0.00"), (GIB // 1000, "0.001"), (-GIB, "-1.00"), (-0.0999 * GIB, "-0.10")]
)
def test_gib_is_two_to_the_thirty(value, drawn):
    assert gib(value) == drawn


def of_kind(kind: Kind, device: str = "cuda"):
    plans = (("resident", 2.0), ("model_offload", 3.0))
    return [record(plan, latency_s=s, kind=kind, device=device, key=f"{kind} {plan}") for plan, s in plans]


@pytest.fixture
def several(tmp_path):
    """Records of every kind, of two devices, in one file."""
    store = Store(tmp_path / "all.jsonl")
    for kind in Kind:
        for one in of_kind(kind, "sim:rtx-4070" if kind is Kind.SIMULATED else "cuda"):
            store.append(one)
    return store.path


@pytest.mark.parametrize("techniques", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", [Kind.MEASURED, Kind.EMULATED, Kind.SIMULATED, Kind.PUBLISHED])
def test_every_format_says_where_its_figures_come_from(kind, name, techniques):
    drawn = draw_table(report.rows(of_kind(kind)), format_name=name, techniques=techniques)
    words = {Kind.EMULATED: ("emulated", "measured on a larger card")}.get(kind, (kind.value,))
    assert any(word in drawn for word in words)
    others = {"simulated", "published", "predictions"} - {kind.value} - ({"predictions"} if "sim" in kind else set())
    assert not [word for word in others if word in drawn]


@pytest.mark.parametrize("techniques", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_hostile_plans_are_escaped_in_every_format(name, techniques):
    made = report.rows([record(), record(f"toy({HOSTILE})", latency_s=1.0)])
    drawn = draw_table(made, format_name=name, techniques=techniques)
    plan = "setting" if techniques else "plan"
    if name == "csv":
        assert "<img" in list(csv.DictReader(io.StringIO(drawn)))[1 - techniques][plan]
    else:
        assert "\x1b" not in drawn
    if name == "markdown":
        assert "<img" not in drawn and "@someone" not in drawn
    if name == "latex":
        assert r"\$x\_\{1\}\$" in drawn and "<img" not in drawn
    if name == "json":
        assert "<img" in json.loads(drawn)["rows"][1 - techniques][plan]


@pytest.mark.parametrize("techniques", [False, True])
def test_several_tables_are_one_csv(several, capsys, techniques):
    show(several, format_name="csv", techniques=techniques)
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {line["kind"] for line in lines} >= {"measured", "emulated", "simulated", "published"}
    assert all(None not in line and None not in line.values() for line in lines)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_columns_that_were_asked_for_come_beside_what_a_line_is_about(several, capsys, name):
    show(several, format_name=name, device="sim:rtx-4070", columns="plan,latency_s")
    told = capsys.readouterr().out
    names = next(csv.reader([told.splitlines()[0]])) if name == "csv" else list(json.loads(told)["rows"][0])
    assert names == ["workload", "device", "kind", "plan", "latency_s"]


def test_techniques_are_of_one_kind(several):
    with pytest.raises(UsageError, match="Leave out --mixed"):
        show(several, techniques=True, mixed=True)
