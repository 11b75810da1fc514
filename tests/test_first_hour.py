"""A new user's first hour, in one workspace: ``make demo``, every study as it is, the notebooks, ``make report``."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pipeline.studies.registry import STUDIES
from tests.cli.run import mdcr, one_line_error
from tests.cli.test_make import make

pytestmark = [pytest.mark.slow, pytest.mark.java]

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

NEED_DATA = {
    "neighbours": "CORPUS",
    "scirepeval": "make fetch SOURCE=scirepeval",
    "mdcr": "make corpus SOURCE=s2orc2020 CORPUS=s2orc INPUT=FOLDER. On a corpus of yours: CORPUS=NAME",
    "mdcr_eval": "curl --create-dirs",
    "mdcr_checks": "make corpus SOURCE=s2orc2020",
    "facets": "git clone ",
    "facet_pools": "INPUT",
}
"""What a study says that needs more than the demo: its one line has the command, or the variable, that gives it."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    result = make(root, "demo", timeout=600)
    assert result.returncode == 0, result.stderr
    assert {"bm25", "lsa"} <= {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
    return root


@pytest.fixture(scope="module")
def studied(demo: Path) -> Path:
    """Return the workspace after every study that needs no more than it."""
    for name in STUDIES.keys() - NEED_DATA.keys():
        result = make(demo, "study", f"STUDY={name}", timeout=600)
        assert result.returncode == 0, result.stderr
        assert f"runs/reports/{name}" in result.stdout
        assert (demo / "runs/reports" / name / "index.html").is_file()
    return demo


@pytest.mark.parametrize("name", NEED_DATA)
def test_a_study_says_how_to_get_its_data(demo: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ``make``, but in this process: loading the libraries takes longest."""
    monkeypatch.chdir(demo)
    variables = {"MDCR_MAKE": "STUDY", "MDCR_MAKE_STUDY": name, "MDCR_GOALS": "study"}
    assert NEED_DATA[name] in one_line_error(mdcr(Path(), "--from-make", "study", env=variables))
    assert not (demo / "runs/reports" / name).exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_after_the_studies(path: Path, studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; what ``make demo`` made is all it needs. It is kept without outputs."""
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03"]
    monkeypatch.setenv("MDCR_ROOT", str(studied))
    before = set(studied.rglob("manifest.json"))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert sum(bool(cell.outputs) for cell in code) >= len(code) // 2
    assert set(studied.rglob("manifest.json")) == before


def test_the_report_has_all_that_was_scored_and_nothing_of_it_can_go(studied: Path) -> None:
    result = make(studied, "report", timeout=600)
    assert result.returncode == 0, result.stderr
    folders = [studied / line for line in result.stdout.splitlines()]
    assert len(folders) >= 4
    assert all((folder / "index.html").is_file() for folder in folders)
    index = (studied / "runs/reports/index.html").read_text()
    assert all(f"{name}/index.html" in index for name in (*(f.name for f in folders), "pool_size", "large_scale"))

    assert json.loads(make(studied, "gc", "JSON=1").stdout)["unused"] == []
