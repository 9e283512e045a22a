"""The notebook runs from its shipped records to a decision without an error."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from paretune.harness.report.reading import read_records

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "tradeoffs.ipynb"

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:zmq.*", "ignore::DeprecationWarning:jupyter_client.*"
)


def executed():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": NOTEBOOK.parent}}
    ).execute()
    return notebook


def test_notebook_runs_to_a_decision():
    notebook = executed()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 4
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "simulated" in printed and "fits 16.00 GiB" in printed


def test_the_shipped_records_are_readable_and_labelled():
    folder = NOTEBOOK.parents[1] / "results" / "simulated"
    for path in folder.glob("*.jsonl"):
        records, problems = read_records(path)
        assert problems == () and {record.kind.value for record in records} == {"simulated"}
        assert all(record.device.startswith("sim:") for record in records)
