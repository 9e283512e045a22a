"""Write everything that records say on one self-contained HTML page that works offline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.harness.records import Record
from paretune.harness.report.sections import section
from paretune.harness.report.table import group
from paretune.harness.report.techniques_table import TITLES
from paretune.harness.spec import Budget

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["page", "write_page"]

_FOLDER = Path(__file__).parent


def page(records: Iterable[Record], *, budget: Budget | int | str | None = None, title: str = "paretune report") -> str:
    """The page: per question the answer, the front, every plan, techniques, ladder, phases, method and environment.

    Records of different kinds or questions get a section each, marked with its kind. All text is escaped; the page
    itself forbids the browser to load anything.
    """
    import jinja2
    from markupsafe import Markup

    listed = list(records)
    loader = jinja2.FileSystemLoader(_FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["breakable"] = _breakable
    sections: list[Mapping[str, Any]] = [asdict(section(members, budget=budget)) for members in group(listed)]
    return environment.get_template("page.html.j2").render(
        title=title,
        num_records=len(listed),
        sections=[_marked(found) for found in sections],
        technique_titles=TITLES,
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((_FOLDER / "page.js").read_text(encoding="utf-8")),
    )


def write_page(
    records: Iterable[Record], path: Path, *, budget: Budget | int | str | None = None, title: str = "paretune report"
) -> Path:
    """Write the page and return where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(records, budget=budget, title=title), encoding="utf-8", errors="replace")
    return path


def _breakable(text: str) -> Markup:
    """Escaped text that a narrow column may break at the joints of a plan, rather than anywhere."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([,(:=])(?=[^\s])", r"\1<wbr>", str(escape(text))))


def _marked(found: Mapping[str, Any]) -> dict[str, Any]:
    """The drawings are markup made here from escaped text; everything else is text."""
    from markupsafe import Markup

    drawn = {name: Markup(found[name]) for name in ("pareto", "phases", "stages") if found[name]}
    timelines = [{**entry, "drawing": Markup(entry["drawing"])} for entry in found["timelines"]]
    return {**found, **drawn, "timelines": timelines}
