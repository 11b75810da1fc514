"""A new user's first hour with the wheel, outside the checkout: ``make demo``, every study as it is, the notebooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pipeline.studies.registry import STUDIES
from tests.cli.test_make import make

pytestmark = [pytest.mark.slow, pytest.mark.java]

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))

NEED_DATA = {
    "scirepeval": "make fetch SOURCE=scirepeval",
    "facets": "git clone ",
    "facet_pools": "INPUT",
}
"""What a study says that needs more than the demo: its one line has the command, or the variable, that gives it."""

ORDER = sorted(STUDIES.keys() - NEED_DATA.keys(), key=lambda name: name == "mdcr_eval")
"""The other studies; ``mdcr_eval`` scores what ``mdcr`` builds."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment that has the wheel, and the packages it needs from here."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, REPOSITORY], check=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < 5e6
    venv.create(folder / "venv")
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    program = folder / "venv/bin/python"
    subprocess.run([*pip, "--python", program, "install", "-q", "--no-deps", wheel], check=True)
    return program.parent


@pytest.fixture(scope="module")
def demo(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    result = run(root, installed, "demo")
    assert {"bm25", "bm25:tuned", "lsa", "minilm"} <= {line.split()[0] for line in result.splitlines() if line.strip()}
    return root


def run(root: Path, installed: Path, *words: str) -> str:
    """Run a goal of ``make`` that must succeed with the wheel, and return what it printed."""
    program = f'#!/bin/sh\nunset PYTHONPATH\nexec "{installed}/mdcr" "$@"\n'
    result = make(root, *words, program=program, timeout=900)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def studied(demo: Path, installed: Path) -> Path:
    """Return the workspace after every study that needs no more than it."""
    for name in ORDER:
        folder = demo / run(demo, installed, "study", f"STUDY={name}").splitlines()[-1]
        assert (folder / "index.html").is_file()
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
    """From top to bottom; what the demo and the studies made is all it needs. It is kept without outputs."""
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03"]
    monkeypatch.setenv("MDCR_ROOT", str(studied))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "pipeline/alias")]))
    before = set(studied.rglob("manifest.json"))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert sum(bool(cell.outputs) for cell in code) >= len(code) // 2
    assert set(studied.rglob("manifest.json")) == before


def test_the_report_has_all_that_was_scored_and_nothing_of_it_can_go(studied: Path, installed: Path) -> None:
    folders = [studied / line for line in run(studied, installed, "report").splitlines()]
    assert len(folders) >= 4
    assert all((folder / "index.html").is_file() for folder in folders)
    index = (studied / "runs/reports/index.html").read_text()
    assert all(f"{name}/index.html" in index for name in (*(f.name for f in folders), "pool_size", "large_scale"))
    assert json.loads(run(studied, installed, "gc", "JSON=1"))["unused"] == []


def test_the_second_demo_finds_everything_there(demo: Path, installed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in demo.rglob("manifest.json")}
    run(demo, installed, "demo")
    assert {path: path.stat().st_mtime_ns for path in demo.rglob("manifest.json")} == before
