"""The trade-off of one setting is read from plans that differ in it alone."""

from __future__ import annotations

import math

from support.records import GIB, failed, record

from paretune.harness.report.settings import settings_of
from paretune.harness.report.techniques import techniques
from paretune.harness.report.techniques_table import techniques_markdown, techniques_text

TILED = "vae:vae_tiling(tile_size=256)"


def plans():
    return [
        record(latency_s=2.0, peak_gib=8.0),
        record("model_offload", latency_s=4.0, peak_gib=5.0),
        record(TILED, latency_s=2.2, peak_gib=7.0),
        record(f"model_offload + {TILED}", latency_s=4.4, peak_gib=2.0),
    ]


def test_each_setting_is_compared_with_the_same_plan_without_it():
    found = {technique.setting: technique for technique in techniques(plans())}
    assert found[TILED].num_comparisons == 2
    assert math.isclose(found[TILED].relative_latency, 1.1)
    assert found[TILED].saved_bytes == 2 * GIB
    assert found["model_offload"].saved_bytes == 4 * GIB
    assert found["model_offload"].relative_latency == 2.0


def test_a_rescued_plan_counts_although_it_has_no_ratio():
    found = techniques([failed("resident"), record("model_offload")])
    assert [(t.rescued, t.num_comparisons, t.relative_latency) for t in found] == [(1, 0, None)]


def test_a_setting_that_was_never_seen_alone_is_left_out():
    assert techniques([record("a:x + b:y")]) == ()


def test_lossy_and_its_worst_fidelity_are_told():
    lossy = record("t:cast", is_lossy=True, fidelity={"is_exact": False, "psnr_db": 31.0})
    assert [(t.is_lossy, t.fidelity_db) for t in techniques([record(), lossy])] == [(True, 31.0)]


def test_drawn_with_units():
    assert "saved GiB" in techniques_text(techniques(plans()))
    assert techniques_markdown(techniques(plans())).count("\n") == 4


def test_settings_are_read_without_the_registry():
    found = settings_of('transformer:gone(level=leaf,names=["a,b","c+d"]) + other')
    assert [(s.component, s.strategy) for s in found] == [("transformer", "gone"), (None, "other")]
    assert found[0].arguments == {"level": "leaf", "names": '["a,b","c+d"]'}
    assert settings_of("resident") == ()
