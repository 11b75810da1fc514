"""A new user's first hour with the wheel, outside the checkout: ``make demo``, every study as it is, the notebooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pipeline.studies.base import STUDIES
from tests.cli.test_make import make
from tests.wheel import by_wheel
from tests.wheel import installed as installed

pytestmark = [pytest.mark.slow, pytest.mark.java]

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))

NEED_DATA = {
    "scirepeval": "make fetch SOURCE=scirepeval",
    "facets": "git clone ",
    "facet_pools": "INPUT",
}
"""What a study says that needs more than the demo: its one line has the command, or the variable, that gives it."""

ORDER = sorted(STUDIES.keys() - NEED_DATA.keys() - {"neighbours"}, key=lambda name: name == "mdcr_eval")
"""The other studies; ``mdcr_eval`` scores what ``mdcr`` builds. ``neighbours`` tags for a minute: it is planned."""


@pytest.fixture(scope="module")
def demo(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace after ``make demo``."""
    root = tmp_path_factory.mktemp("first-hour") / "demo"
    shutil.copytree(installed.parents[1] / "demo", root)
    return root


@pytest.fixture(scope="module")
def studied(demo: Path, installed: Path) -> Path:
    """Return the workspace after every study that needs no more than it."""
    for name in ORDER:
        folder = demo / by_wheel(installed, demo, "study", f"STUDY={name}").splitlines()[-1]
        assert (folder / "index.html").is_file()
    assert "tags" in by_wheel(installed, demo, "study", "STUDY=neighbours", "DRY_RUN=1")
    return demo


@pytest.mark.parametrize("name", NEED_DATA)
def test_a_study_says_how_to_get_its_data(demo: Path, name: str) -> None:
    result = make(demo, "study", f"STUDY={name}")
    assert result.returncode == 2
    assert NEED_DATA[name] in result.stderr
    assert not (demo / "runs/reports" / name).exists()


def test_python_and_the_published_figures_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def said(*words: str) -> str:
        return subprocess.run(
            [installed / words[0], *words[1:]],
            cwd=tmp_path,
            env=surroundings,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert (
        said("python", "-c", "import mdcr; print(mdcr.evaluate({'q': {'d': 1.0}}, {'q': {'d': 1}})['value'].max())")
        == "1.0\n"
    )
    assert str(REPOSITORY) not in said("python", "-c", "import mdcr, pipeline; print(mdcr.__file__, pipeline.__file__)")
    assert "published" in said("mdcr", "models", "specter")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_after_the_studies(path: Path, studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; it is kept without outputs."""
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03"]
    monkeypatch.setenv("MDCR_ROOT", str(studied))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "pipeline/alias")]))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert sum(bool(cell.outputs) for cell in code) >= len(code) // 2


def test_the_report_has_all_that_was_scored_and_nothing_of_it_can_go(studied: Path, installed: Path) -> None:
    folders = [studied / line for line in by_wheel(installed, studied, "report").splitlines()]
    assert len(folders) >= 4
    assert all((folder / "index.html").is_file() for folder in folders)
    index = (studied / "runs/reports/index.html").read_text()
    assert all(f"{name}/index.html" in index for name in (*(f.name for f in folders), "pool_size", "large_scale"))
    assert json.loads(by_wheel(installed, studied, "gc", "JSON=1"))["unused"] == []


def test_the_second_demo_finds_everything_there(installed: Path, tmp_path: Path) -> None:
    again = tmp_path / "demo"
    shutil.copytree(installed.parents[1] / "demo", again)
    before = {path: path.stat().st_mtime_ns for path in again.rglob("manifest.json")}
    by_wheel(installed, again, "demo")
    assert {path: path.stat().st_mtime_ns for path in again.rglob("manifest.json")} == before
