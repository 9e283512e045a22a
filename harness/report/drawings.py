"""The figures of the page with two axes: the front with plans under the pointer, and memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from paretune.harness.report import svg
from paretune.harness.report.table import Row
from paretune.harness.report.units import GIB_BYTES, gib_text, ratio, seconds

__all__ = ["pareto_drawing", "timeline_drawing"]


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
