"""The figures of the page: the front with plans under the pointer, peaks by phase, time by stage, memory over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from paretune.harness.records import RUN_PHASES_EXCLUDE
from paretune.harness.report import svg
from paretune.harness.report.table import Row
from paretune.harness.report.units import GIB_BYTES, gib_text, ratio, seconds

__all__ = ["PALETTE", "pareto_drawing", "phases_drawing", "stages_drawing", "timeline_drawing"]

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_BAR, _GAP, _LEFT, _WIDTH = 14.0, 5.0, 300.0, 470.0
_MOST_BARS = 12


def pareto_drawing(rows: Sequence[Row], budgets_bytes: Sequence[int] = ()) -> str | None:
    """Every complete plan as a mark that says its plan; ``None`` when none has both figures."""
    points = [row for row in rows if row.latency_s is not None and row.needed_bytes is not None]
    if not points:
        return None
    largest = max(row.needed_bytes or 0 for row in points), max(row.latency_s or 0.0 for row in points)
    frame = svg.Frame(largest_x=largest[0] / GIB_BYTES * 1.08 or 1.0, largest_y=largest[1] * 1.08 or 1.0)
    parts = frame.axes("device memory needed, GiB", "latency, s")
    parts += [_budget(frame, size) for size in budgets_bytes if size / GIB_BYTES <= frame.largest_x]
    front = sorted((row for row in points if row.is_on_front), key=lambda row: row.needed_bytes or 0)
    if len(front) > 1:
        parts.append(_steps([(_x(row), row.latency_s or 0.0) for row in front], frame, "front"))
    parts += [_point(row, frame) for row in points]
    return svg.document(parts, "latency against device memory")


def phases_drawing(rows: Sequence[Row]) -> str | None:
    """Peak allocated bytes by phase for the first plans that have them, ``None`` when none has."""
    shown = [row for row in rows if row.record.phases][:_MOST_BARS]
    bars = [(row.plan, _peaks(row)) for row in shown]
    return _bars(bars, "GiB", "peak memory by phase", is_stacked=False)


def stages_drawing(rows: Sequence[Row]) -> str | None:
    """Seconds by stage, stacked, with the stalled part hatched; ``None`` when no record has durations."""
    shown = [row for row in rows if _stages(row)][:_MOST_BARS]
    return _bars([(row.plan, _stages(row)) for row in shown], "s", "time by stage", is_stacked=True)


def timeline_drawing(samples: Sequence[Sequence[float]], plan: str) -> str | None:
    """Live bytes over seconds, from rows that begin with second and bytes; ``None`` for fewer than two."""
    if len(samples) < 2:
        return None
    start = samples[0][0]
    points = [(at - start, size / GIB_BYTES) for at, size, *_ in samples]
    largest_x, largest_y = points[-1][0] or 1.0, max(size for _, size in points) * 1.08 or 1.0
    frame = svg.Frame(largest_x=largest_x, largest_y=largest_y, height=240.0)
    parts = [*frame.axes("seconds", "GiB"), _steps(points, frame, "timeline")]
    return svg.document(parts, f"memory over time of {plan}", 240.0)


def _x(row: Row) -> float:
    return (row.needed_bytes or 0) / GIB_BYTES


def _budget(frame: svg.Frame, size_bytes: int) -> str:
    place = frame.x(size_bytes / GIB_BYTES)
    label = svg.text((place - 4, 24), f"budget {gib_text(size_bytes)}", anchor="end")
    return svg.line((place, frame.y(frame.largest_y)), (place, frame.y(0)), "budget") + label


def _point(row: Row, frame: svg.Frame) -> str:
    x, y = frame.x(_x(row)), frame.y(row.latency_s or 0.0)
    compared = f", {ratio(row.relative_latency)} the reference" if row.relative_latency is not None else ""
    words = f"{row.plan}: {seconds(row.latency_s or 0.0)}{compared}, needs {gib_text(row.needed_bytes or 0)}"
    css = "point lossy" if row.is_lossy else "point"
    mark = (
        f'<circle class="{css}" tabindex="0" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{escape(words)}</title></circle>'
    )
    if row.is_reference:
        mark = f'<rect class="reference" x="{x - 9:.1f}" y="{y - 9:.1f}" width="18" height="18"/>{mark}'
    return mark


def _steps(points: Sequence[tuple[float, float]], frame: svg.Frame, css: str) -> str:
    places = [f"M{frame.x(points[0][0]):.1f} {frame.y(points[0][1]):.1f}"]
    places += [f"H{frame.x(x):.1f}V{frame.y(y):.1f}" for x, y in points[1:]]
    return f'<path class="{css}" d="{"".join(places)}"/>'


def _peaks(row: Row) -> dict[str, float]:
    return {name: (p.peak_allocated_bytes or 0) / GIB_BYTES for name, p in row.record.phases.items()}


def _stages(row: Row) -> dict[str, float]:
    phases = row.record.phases.items()
    return {n: p.duration_s for n, p in phases if n not in RUN_PHASES_EXCLUDE and p.duration_s is not None}


def _bars(bars: Sequence[tuple[str, Mapping[str, float]]], unit: str, label: str, *, is_stacked: bool) -> str | None:
    if not bars:
        return None
    names = list(dict.fromkeys(name for _, parts in bars for name in parts))
    totals = [sum(parts.values()) if is_stacked else max(parts.values(), default=0.0) for _, parts in bars]
    largest, lanes = max(totals) or 1.0, 1 if is_stacked else len(names)
    drawn, top = _key(names), 26.0
    for plan, parts in bars:
        short = plan if len(plan) <= 46 else f"{plan[:43]}..."
        drawn.append(svg.text((_LEFT - 8, top + lanes * _BAR / 2 + 4), short, anchor="end"))
        start = 0.0
        for index, name in enumerate(names):
            length = parts.get(name, 0.0) / largest * _WIDTH
            y = top if is_stacked else top + index * _BAR
            words = escape(f"{name}: {parts.get(name, 0.0):.3g} {unit}")
            colour = PALETTE[index % len(PALETTE)]
            place = f'x="{_LEFT + start:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR - 2:g}"'
            drawn.append(f'<rect fill="{colour}" {place}><title>{words}</title></rect>')
            start += length if is_stacked else 0.0
        end = _LEFT + (start if is_stacked else max(parts.values(), default=0.0) / largest * _WIDTH)
        total = sum(parts.values()) if is_stacked else max(parts.values(), default=0.0)
        drawn.append(svg.text((end + 6, top + lanes * _BAR / 2 + 4), f"{total:.3g} {unit}"))
        top += lanes * _BAR + _GAP
    return svg.document(drawn, label, top + 4)


def _key(names: Sequence[str]) -> list[str]:
    drawn = []
    for index, name in enumerate(names):
        x = _LEFT + index * 90.0
        drawn.append(f'<rect fill="{PALETTE[index % len(PALETTE)]}" x="{x:g}" y="6" width="10" height="10"/>')
        drawn.append(svg.text((x + 14, 15), name))
    return drawn
