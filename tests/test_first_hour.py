"""A new user's first hour: the wheel outside the checkout, ``make demo``, studies, tutorials and notebooks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from functools import cache
from glob import glob
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from docs import figures
from pipeline.studies.base import STUDIES
from tests.cli.run import elsewhere, flags, mdcr, mdcr_json, one_line_error
from tests.cli.test_make import make
from tests.cluster.slurm_host import SlurmHost

pytestmark = [pytest.mark.slow, pytest.mark.java]

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TUTORIALS = [f"tutorials/{page}" for page in ("encoder", "corpus", "paper")]
HOW_TO = ["clusters", "interchange", "audit", "leaderboard", "judging", "encoders", "shared-task", "study", "papers"]
STUDIED = ["mdcr", "neighbours", "experiments", "python"]
PAGES = [ROOT / f"docs/{page}.md" for page in ("index", *TUTORIALS, *HOW_TO, *STUDIED)]
"""Pages that are followed, each from top to bottom."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Without the code of the checkout."""

NEED_DATA = {
    "scirepeval": "hf download allenai/",
    "multi_format": "hf download allenai/",
    "facets": "git clone ",
    "audit": "mdcr audit RESULTS/",
    "clean": "--set=training=FILE",
    "strangers": "Build the corpus from s2orc2020",
}
"""What a study says that needs more than the demo: its one line has the command, or the option, that gives it."""

LATER = ("mdcr_eval", "leaderboard")
"""Studies that read what others made."""

ORDER = sorted(STUDIES.keys() - NEED_DATA.keys() - {"neighbours"}, key=lambda name: (name in LATER, name))
"""The other studies. ``neighbours`` tags for a minute: it is planned."""

BLOCK = re.compile(
    r'(?:<!-- needs: ([^\n]*) -->\n)?^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)
"""A block of code of a page: what it needs that is not here, language, name of its file, text."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment that has the wheel, and the packages it needs from here."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT], check=True)
    (built,) = folder.glob("*.whl")
    assert built.stat().st_size < 5e6
    venv.create(folder / "venv")
    programs = folder / "venv/bin"
    install = [*pip, "--python", programs / "python", "install", "-q", "--no-deps", "--ignore-installed", built]
    subprocess.run(install, check=True)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return programs


@pytest.fixture(scope="module")
def demo(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace after ``make demo``; tests add to it, one after the other, as a reader does."""
    root = tmp_path_factory.mktemp("first-hour") / "demo"
    root.mkdir()
    made = make(root, "demo", program=f'#!/bin/sh\nunset PYTHONPATH\nexec "{wheel}/mdcr" "$@"\n', timeout=900)
    assert made.returncode == 0, made.stderr
    systems = {line.split()[0] for line in made.stdout.splitlines() if line.strip()}
    assert {"bm25", "bm25:k1=0.9,b=0.4", "lsa", "mini128", "rrf(bm25,mini128)"} <= systems
    assert "Warning" not in made.stderr
    shutil.copytree(root, root.with_name("fresh"))
    return root


@pytest.fixture(scope="module")
def studied(demo: Path, wheel: Path) -> Path:
    """Return the workspace after every study that needs no more than it."""
    commands = [*(["study", name] for name in ORDER), ["study", "neighbours", "--dry-run"]]
    ended = elsewhere(commands, demo, ENVIRONMENT, wheel / "python")
    assert [result.returncode for result in ended] == [0] * len(commands), [result.stderr for result in ended]
    assert "tags" in ended[-1].stdout
    assert all((demo / f"runs/reports/{name}/index.html").is_file() for name in ORDER)
    return demo


def test_python_and_the_published_figures_are_in_the_wheel(wheel: Path, tmp_path: Path) -> None:
    code = "import mdcr, pipeline; print(mdcr.__file__, pipeline.__file__)"
    code += "; print(mdcr.evaluate({'q': {'d': 1.0}}, {'q': {'d': 1}})['value'].max())"
    code += "; from pipeline.data import DATA; print(any((DATA / 'reference').glob('*.csv')))"
    command = [wheel / "python", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, *printed = done.stdout.splitlines()
    assert str(ROOT) not in where
    assert printed == ["1.0", "True"]


@pytest.mark.parametrize("name", NEED_DATA)
def test_a_study_says_how_to_get_its_data(demo: Path, name: str) -> None:
    assert NEED_DATA[name] in one_line_error(mdcr(demo, "study", name))
    assert not (demo / "runs/reports" / name).exists()


def test_the_figures_of_the_demo_are_those_of_the_pages(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the pages runs once, in this process."""

    @cache
    def printed(command: str, root: Path) -> str:
        program, *words = shlex.split(command)
        done = mdcr(root, *words, env={"COLUMNS": "100"})
        assert (program, done.returncode) == ("mdcr", 0), done.stderr
        return done.stdout

    monkeypatch.setattr(figures, "run", printed)
    before = {path: path.stat().st_mtime_ns for path in demo.rglob("manifest.json")}
    assert not [line for page in (ROOT / "README.md", PAGES[0]) for line in figures.check(page, demo)]
    assert {path: path.stat().st_mtime_ns for path in demo.rglob("manifest.json")} == before, "a second demo made more"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_after_the_studies(
    path: Path, studied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From top to bottom, in a shell of IPython in this process; it is kept without outputs, and shows its plots."""
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]
    monkeypatch.setenv("MDCR_ROOT", str(studied))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    shell = InteractiveShell()
    ended = [shell.run_cell("".join(cell["source"])) for cell in code]
    for cell in ended:
        cell.raise_error()
    results = [cell.result for cell in ended if cell.result is not None]
    assert len(results) >= len(code) // 2
    pictures = [shown for result in results if (shown := shell.display_formatter.format(result)[0].get("image/png"))]
    assert len(pictures) == "".join("".join(cell["source"]) for cell in code).count("mdcr.plot.")
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)


def test_the_report_has_all_that_was_scored_and_nothing_of_it_can_go(studied: Path) -> None:
    folders = [Path(folder) for folder in mdcr_json(studied, "report", "--format", "page")["reports"]]
    assert len(folders) >= 4
    assert all((folder / "index.html").is_file() for folder in folders)
    index = (studied / "runs/reports/index.html").read_text()
    assert all(f"{name}/index.html" in index for name in (*(f.name for f in folders), "pool_size", "large_scale"))
    assert mdcr_json(studied, "gc")["unused"] == []


def follow(page: Path, workspace: Path, has: str = "") -> None:
    """Do what a page says, from top to bottom, in a workspace; blocks that need what is not there are left out.

    Python and ``mdcr`` run in this process, and other programs by a shell. A block ``text`` has lines that the block
    above it prints.
    """
    printed = ""
    with contextlib.chdir(workspace):
        for needs, language, title, text in BLOCK.findall(page.read_text()):
            if needs and needs != has:
                continue
            if title:
                Path(title).write_text(text)
            elif language == "python":
                exec(compile(text, page, "exec"), {"__name__": "__main__"})  # noqa: S102
            elif language == "sh":
                printed = "".join(shell(line) for line in text.replace("\\\n", " ").splitlines())
            elif language == "text":
                known = {line.rstrip() for line in printed.splitlines()}
                missing = [line for line in text.splitlines() if line not in {*known, "..."}]
                assert not missing, f"{page.name}: not printed: {missing}\n{printed}"


def shell(line: str) -> str:
    """Run a line of a page, with at most one wildcard per word, and return what it prints, unless that is a file."""
    words = [
        path
        for word in shlex.split(line, comments=True)
        for path in (sorted(glob(word)) if "*" in word else []) or [word]
    ]
    target = words.pop() if words[-2:-1] == [">"] else ""
    match words:
        case ["mdcr", *rest]:
            done = mdcr(Path(), *(rest[:-1] if target else rest), env={"COLUMNS": "100"})
            assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
            if target:
                Path(target).write_text(done.stdout)
            return "" if target else done.stderr + done.stdout
        case ["python", path]:
            exec(compile(Path(path).read_text(), path, "exec"), {"__name__": "__main__"})  # noqa: S102
        case _:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            subprocess.run(["bash", "-euo", "pipefail", "-c", line], env=os.environ | {"PATH": path}, check=True)
    return ""


FRESH = ("index", "audit", "judging", "shared-task", "python")
"""Pages whose figures are of a workspace without the tunings and pools of studies."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_works_as_written(page: Path, studied: Path, tmp_path: Path) -> None:
    follow(page, shutil.copytree(studied.with_name("fresh"), tmp_path / "demo") if page.stem in FRESH else studied)


@pytest.mark.slurm
def test_the_page_of_slurm_works_on_one(demo: Path, slurm_host: SlurmHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm_host.config))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the jobs
    follow(ROOT / "docs/clusters.md", demo, has="Slurm")
    choice = flags("--corpus demo --size 1500 --queries 30 --model lsa")
    slurm_host.until(lambda: mdcr(demo, "show", *choice).returncode == 0, "the scores are there", 300)
