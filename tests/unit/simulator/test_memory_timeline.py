"""A timeline is bounded, and joining its stretches loses no maximum and mixes no phases."""

from __future__ import annotations

from paretune.harness.simulator.memory_timeline import FIRST_STRETCH_S, MOST_STRETCHES, MemoryTimeline, Stretch


def test_a_long_timeline_is_bounded_and_keeps_the_maximum_of_every_phase() -> None:
    timeline, now_s = MemoryTimeline(), 0.0
    timeline.start(now_s)
    sizes = [(37 * n) % 1009 for n in range(5000)]
    for n, size in enumerate(sizes):
        now_s += FIRST_STRETCH_S
        if now_s >= timeline.ends_s:
            phase = "encode" if n < 7 else "denoise"
            timeline.add(Stretch(now_s, phase, {"weight": 5, "activation": size}), now_s)
    rows = timeline.rows(0.0)
    assert MOST_STRETCHES // 2 < len(rows) <= MOST_STRETCHES
    assert max(row[1] for row in rows if row[2] == "encode") == 5 + max(sizes[:7])
    assert all(row[1] == 5 + row[3]["activation"] for row in rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_joined_stretches_are_the_higher_of_two() -> None:
    timeline = MemoryTimeline()
    timeline.start(0.0)
    sizes = list(range(MOST_STRETCHES + 1, 0, -1))
    for n, size in enumerate(sizes):
        timeline.add(Stretch(float(n), "denoise", {"activation": size}), float(n))
    assert [stretch.total_bytes for stretch in timeline.stretches] == sizes[::2]
