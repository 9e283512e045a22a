"""The page holds what the records say, loads nothing, and lets no recorded text become markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from support.records import GIB, failed, record, study

from paretune.harness.records import Kind, Outcome
from paretune.harness.report.page import page, write_page

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"


class Shape(HTMLParser):
    """Tags in order, and whether each was closed in turn."""

    VOID = frozenset({"meta", "br", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shape(text):
    parser = Shape()
    parser.feed(text)
    assert parser.open == []
    return parser.tags


def test_page_is_well_formed_and_self_contained():
    tags = shape(page(study(), budget="7GiB"))
    loading = {"src", "href", "srcset", "action", "data", "poster"}
    assert not [(tag, attrs) for tag, attrs in tags if loading & attrs.keys()]
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in tags}
    policy = next(attrs["content"] for tag, attrs in tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\(|@import|https?://", page(study()))


def test_recorded_text_never_becomes_markup():
    workload = {"name": HOSTILE}
    crashed = failed(HOSTILE, Outcome.CRASHED, reason=HOSTILE, workload=workload, environment={HOSTILE: HOSTILE})
    records = [crashed, record(f"t:{HOSTILE}", workload=workload, advice=(HOSTILE,))]
    drawn = page(records, title=HOSTILE)
    scripts = [tag for tag, _ in shape(drawn) if tag == "script"]
    assert len(scripts) == 1 and "alert(1)</script>" not in drawn and "<img" not in drawn
    assert "{{ 7 * 7 }}" in drawn.replace("&#39;", "'")


def test_every_plan_outcome_and_answer_is_there():
    drawn = page(study(), budget="7GiB")
    for row in study():
        assert row.plan.replace("&", "&amp;") in drawn
    for word in ("oom", "infeasible", "both would move the same weights", "fits 7.00 GiB", "budget 7.00 GiB", "exact"):
        assert word in drawn


def test_kinds_and_questions_have_sections_of_their_own_with_a_mark():
    records = [*study(), record(kind=Kind.MEASURED), record(device="sim:rtx-4090")]
    drawn = page(records)
    assert drawn.count("<section") == 3
    assert drawn.count('class="kind simulated"') == 2 and drawn.count('class="kind measured"') == 1


def test_one_mark_per_complete_plan_and_a_memory_timeline_where_recorded():
    timed = record(
        "t:x",
        counters={
            "memory_timeline": [[0.0, 0, "encode", {}], [1.0, GIB, "denoise", {}], [2.0, GIB // 2, "decode", {}]]
        },
    )
    drawn = page([*study(), timed])
    assert drawn.count('class="point') == 5
    assert "Memory over time: t:x" in drawn and 'class="timeline"' in drawn


def test_bars_tell_long_plans_apart_and_show_the_stalls():
    plans = [
        f"text_encoder:group_offload(use_stream=true) + transformer:block_residency(num_resident_blocks={n})"
        for n in (1, 2)
    ]
    drawn = page([record(plan) for plan in plans])
    for drawing in re.findall(r'<svg[^>]*aria-label="(?:peak memory by phase|time by stage)".*?</svg>', drawn):
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
        assert sum("num_resident_blocks=1)" in text for text in texts) == 1
        assert not any(text.endswith("...") for text in texts)
    assert drawn.count("<title>stalled: 0.2 s</title>") == 2 and "waited for copies" in drawn
    silent = page([record(transfers=None)])
    assert "stalled:" not in silent and "hatched" not in silent


def test_the_same_advice_stands_once_with_its_plans():
    advised = [record(f"t:s(k={n})", advice=(f"reserved {n} % more: try segments.",)) for n in range(3)]
    drawn = page([*advised, record(advice=("only a remark",))])
    assert drawn.count("try segments.") == 1 and "(3 plans)" in drawn
    assert all(f"reserved {n} % more" in drawn for n in range(3))
    assert drawn.count("only a remark") == 1


@pytest.mark.parametrize("records", [[], [failed("resident")]])
def test_pages_without_figures_are_pages(records):
    shape(page(records))


def test_text_that_has_no_bytes_is_written(tmp_path):
    path = write_page([failed("resident", Outcome.CRASHED, reason="\ud800 \x00")], tmp_path / "a" / "r.html")
    assert path.read_text(encoding="utf-8")
