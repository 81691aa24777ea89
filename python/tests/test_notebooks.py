"""The notebooks run from the first cell to the last, on the repository's own data."""

from pathlib import Path

import nbclient
import nbformat
import pytest

PYTHON = Path(__file__).parents[1]
NOTEBOOKS = sorted((PYTHON / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PYTHON))
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its results"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(file.parent)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert not any(output.get("name") == "stderr" for output in shown), shown


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
