"""Bars by plan for the page: peaks of the phases side by side, or seconds of the stages end to end."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from paretune.harness.report import svg
from paretune.harness.report.stages import stages, stalled_s
from paretune.harness.report.table import Row
from paretune.harness.report.units import GIB_BYTES

__all__ = ["PALETTE", "phases_drawing", "stages_drawing"]

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_STALLED = "stalled"
_BAR, _GAP, _LINE, _LEFT, _WIDTH = 14.0, 9.0, 13.0, 330.0, 440.0
_KEY, _KEYS_IN_A_ROW = 100.0, 5
_MOST_BARS, _MOST_LINES, _LINE_LETTERS = 12, 5, 50


def phases_drawing(rows: Sequence[Row]) -> str | None:
    """Peak allocated GiB by phase for the first plans that have them, ``None`` when none has."""
    shown = [row for row in rows if row.record.phases][:_MOST_BARS]
    names = _names([_peaks(row) for row in shown])
    drawn, top = _key(names), _top(names)
    largest = max((peak for row in shown for peak in _peaks(row).values()), default=0.0) or 1.0
    for row in shown:
        peaks = _peaks(row)
        height, words = _lane(row.plan, len(names) * _BAR)
        drawn += _label(words, top, height)
        for index, name in enumerate(names):
            place = (_LEFT, top + (height - len(names) * _BAR) / 2 + index * _BAR)
            length = peaks.get(name, 0.0) / largest * _WIDTH
            drawn.append(_rect(place, length, PALETTE[index % len(PALETTE)], f"{name}: {peaks.get(name, 0.0):.3g} GiB"))
        drawn.append(_total(max(peaks.values(), default=0.0), largest, "GiB", top + height / 2))
        top += height + _GAP
    return svg.document(drawn, "peak memory by phase", top) if shown else None


def stages_drawing(rows: Sequence[Row]) -> str | None:
    """Seconds by stage, end to end, the stalled part hatched below; ``None`` when no record has durations."""
    shown = [row for row in rows if stages(row)][:_MOST_BARS]
    names = _names([stages(row) for row in shown])
    keys = [*names, _STALLED] if any(stalled_s(row) for row in shown) else names
    drawn, top = _key(keys), _top(keys)
    largest = max((sum(stages(row).values()) for row in shown), default=0.0) or 1.0
    for row in shown:
        parts, start = stages(row), _LEFT
        height, words = _lane(row.plan, 1.5 * _BAR)
        drawn += _label(words, top, height)
        y = top + height / 2 - _BAR * 0.7
        for index, name in enumerate(names):
            length = parts.get(name, 0.0) / largest * _WIDTH
            drawn.append(
                _rect((start, y), length, PALETTE[index % len(PALETTE)], f"{name}: {parts.get(name, 0):.3g} s")
            )
            start += length
        waited = stalled_s(row)
        if waited:
            drawn.append(_hatched((_LEFT, y + _BAR - 1), waited / largest * _WIDTH, f"stalled: {waited:.3g} s"))
        drawn.append(_total(sum(parts.values()), largest, "s", y + _BAR / 2))
        top += height + _GAP
    return svg.document(drawn, "time by stage", top) if shown else None


def _peaks(row: Row) -> dict[str, float]:
    return {name: (p.peak_allocated_bytes or 0) / GIB_BYTES for name, p in row.record.phases.items()}


def _names(parts: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for named in parts for name in named))


def _lane(plan: str, least: float) -> tuple[float, list[str]]:
    """Height of a plan's lane, and the plan in lines that fit beside its bars: broken at its joints, never inside."""
    lines = textwrap.wrap(
        plan.replace(",", ", "), _LINE_LETTERS, max_lines=_MOST_LINES, placeholder=" ...", break_on_hyphens=False
    )
    return max(least, len(lines) * _LINE), [line.replace(", ", ",") for line in lines]


def _label(lines: Sequence[str], top: float, height: float) -> list[str]:
    first = top + (height - len(lines) * _LINE) / 2 + _LINE - 3
    return [svg.text((_LEFT - 8, first + n * _LINE), line, anchor="end") for n, line in enumerate(lines)]


def _rect(place: tuple[float, float], length: float, fill: str, words: str) -> str:
    size = f'x="{place[0]:.1f}" y="{place[1]:.1f}" width="{length:.1f}" height="{_BAR - 2:g}"'
    return f'<rect fill="{fill}" {size}><title>{escape(words)}</title></rect>'


def _hatched(place: tuple[float, float], length: float, words: str) -> str:
    """An outlined bar with slashes; a pattern would need an address, which the page's policy has no use for."""
    (x, y), height = place, _BAR - 5
    slashes = "".join(f"M{x + at:.1f} {y + height:.1f}l3 -{height:g}" for at in range(0, max(0, int(length) - 3), 5))
    size = f'x="{x:.1f}" y="{y:.1f}" width="{length:.1f}" height="{height:g}"'
    return f'<path class="stalled" d="{slashes}"/><rect class="stalled" {size}><title>{escape(words)}</title></rect>'


def _total(value: float, largest: float, unit: str, y: float) -> str:
    return svg.text((_LEFT + value / largest * _WIDTH + 6, y + 4), f"{value:.3g} {unit}")


def _top(names: Sequence[str]) -> float:
    return 12.0 + 18.0 * (1 + (len(names) - 1) // _KEYS_IN_A_ROW)


def _key(names: Sequence[str]) -> list[str]:
    drawn = []
    for index, name in enumerate(names):
        x, y = _LEFT + index % _KEYS_IN_A_ROW * _KEY, 6 + 18 * (index // _KEYS_IN_A_ROW)
        if name == _STALLED:
            drawn.append(_hatched((x, y), 10.0, name))
        else:
            drawn.append(f'<rect fill="{PALETTE[index % len(PALETTE)]}" x="{x:g}" y="{y}" width="10" height="10"/>')
        drawn.append(svg.text((x + 14, y + 9), name))
    return drawn
