"""Draw small figures as inline SVG, every text escaped, so that a page needs neither files nor a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Frame", "document", "line", "text", "ticks"]

WIDTH, HEIGHT = 860.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 20.0, 16.0, 46.0


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Axes from zero to ``largest_x`` and ``largest_y``; maps figures to places in the drawing."""

    largest_x: float
    largest_y: float
    height: float = HEIGHT

    def x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / self.largest_x

    def y(self, value: float) -> float:
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * value / self.largest_y

    def axes(self, x_title: str, y_title: str) -> list[str]:
        """Grid, ticks and titles."""
        bottom, right = self.y(0), self.x(self.largest_x)
        parts = [line((_LEFT, _TOP), (_LEFT, bottom), "axis"), line((_LEFT, bottom), (right, bottom), "axis")]
        for value in ticks(self.largest_x):
            parts.append(text((self.x(value), bottom + 16), f"{value:g}", anchor="middle"))
        for value in ticks(self.largest_y):
            parts.append(line((_LEFT, self.y(value)), (right, self.y(value)), "grid"))
            parts.append(text((_LEFT - 6, self.y(value) + 4), f"{value:g}", anchor="end"))
        parts.append(text(((_LEFT + right) / 2, self.height - 8), x_title, anchor="middle"))
        parts.append(text((4, _TOP - 3), y_title))
        return parts


def document(parts: Iterable[str], label: str, height: float = HEIGHT) -> str:
    """The whole drawing; ``label`` is read out where it cannot be seen."""
    body = "".join(parts)
    name = escape(label)
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{name}">{body}</svg>'


def line(start: tuple[float, float], end: tuple[float, float], css: str) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'


def text(place: tuple[float, float], words: str, anchor: str = "start") -> str:
    """Words at a place; ``anchor`` is SVG's: start, middle or end."""
    return f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def ticks(largest: float, wanted: int = 6) -> Sequence[float]:
    """Round figures from zero up to ``largest``."""
    raw = largest / wanted
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw)
    return [round(step * n, 12) for n in range(int(largest / step + 1e-9) + 1)]
