"""``paretune compare``: two studies, or one file at two commits, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paretune.harness.regression.compare import compare
from paretune.harness.regression.document import document
from paretune.harness.regression.findings import exit_status
from paretune.harness.regression.side_by_side import side_by_side
from paretune.harness.regression.sources import records_of
from paretune.harness.regression.summary import text_report

__all__ = ["command"]


def command(
    base: Annotated[str, typer.Argument(help="A study folder, a .jsonl file, or COMMIT:PATH in git.")],
    head: Annotated[str, typer.Argument(help="The other side, in the same forms.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every finding as JSON there.")] = None,
) -> None:
    """Compare figure by figure. Stored times are shown, not judged; exits as `check` does."""
    before, after = records_of(base), records_of(head)
    findings = compare(before, after)
    print(side_by_side(before, after))
    print(text_report(findings), end="")
    if json_file is not None:
        json_file.write_text(document(findings), encoding="utf-8")
    raise typer.Exit(exit_status(findings))
