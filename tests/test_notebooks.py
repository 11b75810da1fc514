"""The notebooks run from top to bottom on the artifacts of a small ``make demo``, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cli.run import flags, mdcr_json

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    mdcr_json(root, *flags("corpus --source synthetic --corpus demo --papers 3k --seed 13"))
    mdcr_json(root, *flags("eval --corpus demo --year 2019 --size 600,1k --queries 20 --samples 2 --model bm25,lsa"))
    return root


def test_there_are_three() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_kept_without_outputs(path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MDCR_ROOT", str(demo))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert sum(bool(cell.outputs) for cell in code) >= len(code) // 2
