"""What all figures share: size, colours that colour-blind readers can tell apart, numbered plans, and saving."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.harness.report.caption import caption
from paretune.harness.report.table import Row
from paretune.harness.usage import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "PLOT_FORMATS",
    "blank",
    "headed",
    "legend_of_plans",
    "numbered",
    "part_of",
    "plain",
    "save",
    "titled",
]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""The palette of Okabe and Ito (2008), distinguishable with every common colour blindness."""

PLOT_FORMATS = ("png", "svg", "pdf")


def blank(height_inches: float = 5.0) -> tuple[Figure, Axes]:
    """An empty figure 9 inches wide with one pair of axes."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(9.0, height_inches), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def titled(figure: Figure, rows: Sequence[Row], title: str) -> None:
    """Title, and below it what was asked and what kind of figures these are."""
    headed(figure, title, caption(rows))


def headed(figure: Figure, title: str, said: str) -> None:
    """The same for figures that are not made of rows; what is said may be as long as it likes."""
    figure.suptitle(plain("\n".join([title, *textwrap.wrap(said, 110)])), fontsize=9)


def numbered(rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Rows with the number by which a figure calls them."""
    return list(enumerate(rows, start=1))


def part_of(num_drawn: int, num_all: int, what: str) -> str:
    """How many of all are drawn, for the title; empty where all are."""
    return f", the first {num_drawn} of {num_all} {what}" if num_drawn < num_all else ""


def legend_of_plans(figure: Figure, rows: Sequence[tuple[int, Row]]) -> None:
    """The numbers and their plans below the axes, where long plans have room."""
    lines = [line for number, row in rows for line in _hanging(f"{number:>2}  {row.plan}")]
    figure.supxlabel("\n".join(map(plain, lines)), fontsize=7, family="monospace", x=0.02, ha="left")


def _hanging(words: str) -> list[str]:
    return textwrap.wrap(words, 118, subsequent_indent="    ")


def plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics, with control characters made visible."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return shown.replace("$", r"\$")


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure in the format its suffix names. Raises ``UsageError`` for other suffixes."""
    target = Path(path)
    if target.suffix.removeprefix(".").lower() not in PLOT_FORMATS:
        raise UsageError(f"{target.name}: figures are saved as {', '.join(PLOT_FORMATS)}. Give the file such a suffix.")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    return target
