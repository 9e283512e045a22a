"""The figure of memory over one call stacks the kinds, names the phases, and is not drawn of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paretune.harness.cli import explain
from paretune.harness.report.plots import save, timeline_plot
from paretune.harness.usage import UsageError

GIB = 1 << 30
ROWS = [
    [0.5, 3 * GIB, "encode", {"weight": 2 * GIB, "activation": GIB}],
    [1.0, 6 * GIB, "denoise", {"weight": 2 * GIB, "activation": 3 * GIB, "workspace": GIB}],
    [2.0, 2 * GIB, "denoise", {"weight": 2 * GIB}],
    [2.5, 4 * GIB, "decode", {"weight": 2 * GIB, "activation": 2 * GIB}],
]


def test_kinds_are_stacked_to_the_live_bytes_and_phases_named(tmp_path: Path) -> None:
    figure = timeline_plot(ROWS, "resident on sim:h100: simulated.")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["weight", "activation", "workspace"]
    assert [text.get_text().strip() for text in axes.texts] == ["encode", "denoise", "decode"]
    assert [text.xy[0] for text in axes.texts] == [0.0, 0.5, 2.0]
    top = max(float(path.vertices[:, 1].max()) for stack in axes.collections for path in stack.get_paths())
    assert top == 6.0 and "GiB" in axes.get_ylabel() and "simulated" in figure.get_suptitle()
    assert save(figure, tmp_path / "deep" / "memory.svg").stat().st_size > 5000


def test_a_call_without_a_timeline_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to plot"):
        timeline_plot(ROWS[:1], "")


@pytest.mark.parametrize(
    ("option", "says"), [({"timeline": Path("a.txt")}, "png, svg, pdf"), ({"snapshot": Path("a.json")}, "pickle")]
)
def test_files_of_other_kinds_are_refused_before_anything_runs(option: dict[str, Path], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        explain.command("flux.1-dev-tiny", device="sim:h100", **option)
