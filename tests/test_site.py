"""The site: it builds without a warning and fetches nothing; what its first pages tell a reader to type works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.slurm_host import slurm_host as slurm_host
from tests.wheel import installed as installed

ROOT = Path(__file__).parents[1]
START, ENCODER, CORPUS, PAPER, SLURM = (
    ROOT / "docs" / name
    for name in ("index.md", "tutorials/encoder.md", "tutorials/corpus.md", "tutorials/paper.md", "tutorials/slurm.md")
)
NEEDS = {"a network", "S2ORC 2020", "Slurm", "Docker, Podman or Apptainer"}
"""What a comment above a block of a page may say that the block needs."""

BLOCK = re.compile(
    r'(?:<!-- needs: ([^\n]*) -->\n)?^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, with the page of a report of a small corpus as its gallery."""
    workspace, folder = tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("site")
    commands = (
        "corpus --source synthetic --papers 3k --seed 5 --corpus tiny",
        "eval --size 600 --queries 20 --samples 1 --model bm25:k1=0.9,b=0.4",
        "report --format page",
    )
    for command in commands:
        done = mdcr(workspace, *flags(command))
        assert done.returncode == 0, done.stderr
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"MDCR_ROOT": str(workspace), "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_links_of_the_site_lead_somewhere_and_nothing_is_fetched(site: Path) -> None:
    """MkDocs checks links between pages; this, those of everything it made, the gallery and the reference included."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    assert len(pages) > 25
    for path, text in pages.items():
        for link in re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"', text):
            assert not re.match("(?:https?:)?//", "".join(link)) or 'rel="canonical"' in text, (path, link)
        for link in re.findall(r'<a[^>]* href="([^":]+)"', text):
            if path.name == "404.html":
                continue
            place, _, anchor = link.partition("#")
            target = (path.parent / place).resolve() if place not in ("", ".") else path
            assert target.exists(), (path.name, link)
            assert not anchor or f'id="{anchor}"' in (pages.get(target) or target.read_text()), (path.name, link)


def test_the_reference_has_every_name_and_command(site: Path) -> None:
    import pipeline
    from pipeline.cli.arguments import parser

    api, commands = ((site / f"reference/{name}.html").read_text() for name in ("api", "commands"))
    assert all(f"mdcr.{name}" in api for name in pipeline.__all__ if name != "__version__")
    assert ":class:" not in api
    assert ":func:" not in api
    for name, command in parser()[1].items():
        assert f"mdcr {name}" in commands
        assert all(
            f"<code>{option}</code>" in commands for option in command.options if option not in ("--help", "--api-key")
        )


def blocks(page: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the blocks of code of a page: what it needs, language, name of its file, text."""
    for needs, language, title, text in BLOCK.findall(page.read_text()):
        assert not needs or needs in NEEDS, (page, needs)
        assert title or language in ("sh", "python"), (page, language)
        yield needs, language, title, text


def follow(page: Path, workspace: Path, has: str = "") -> None:
    """Do what a page says, from top to bottom, in a workspace; blocks that need what is not there are left out."""
    programs = workspace / "bin"
    programs.mkdir(exist_ok=True)
    for name, words in (("mdcr", "-m pipeline"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    paths = [str(ROOT), str(ROOT / "pipeline/alias"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(paths)}
    for needs, language, title, text in blocks(page):
        if needs and needs != has:
            continue
        if title:
            (workspace / title).write_text(text)
            continue
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page.name}: {text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def demo(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the workspace in which a reader has followed the first page; its demo finds what another test made."""
    workspace = tmp_path_factory.mktemp("reader") / "workspace"
    shutil.copytree(installed.parents[1] / "demo", workspace)
    follow(START, workspace)
    return workspace


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("page", [ENCODER, CORPUS, PAPER, SLURM], ids=lambda page: page.stem)
def test_a_tutorial_works_as_written(page: Path, demo: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(demo, workspace)
    follow(page, workspace)
    assert len(page.read_text().splitlines()) <= 80


@pytest.mark.slow
@pytest.mark.slurm
def test_the_tutorial_of_slurm_works_on_one(
    demo: Path, tmp_path: Path, slurm_host: SlurmHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(demo, workspace)
    monkeypatch.setenv("SLURM_CONF", str(slurm_host.config))
    follow(SLURM, workspace, has="Slurm")
    choice = flags("--corpus demo --size 600 --queries 40 --model lsa")
    slurm_host.until(lambda: mdcr(workspace, "show", *choice).returncode == 0, "the scores are there", 300)


def make_image(programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``make image`` where only some programs are to be found."""
    for name in ("sh", "make"):
        (programs / name).symlink_to(str(shutil.which(name)))
    command = [programs / "make", "-f", ROOT / "Makefile", "--no-print-directory", "image", *words]
    return subprocess.run(command, env={"PATH": str(programs)}, cwd=ROOT, capture_output=True, text=True, check=False)


def test_make_image_says_what_it_needs(tmp_path: Path) -> None:
    """Where neither Docker nor Podman nor Apptainer is, in one line."""
    ended = make_image(tmp_path)
    assert ended.returncode == 2
    assert "make image needs Docker with a running daemon, Podman or Apptainer" in ended.stderr.splitlines()[0]


@pytest.mark.parametrize("tool", ["docker", "podman", "apptainer"])
def test_make_image_takes_the_tool_that_is_there(tmp_path: Path, tool: str) -> None:
    """A program in the place of the tool tells what it was given; its files are those of the checkout."""
    (tmp_path / tool).write_text('#!/bin/sh\n[ "$1" = info ] || echo "$@"\n')
    (tmp_path / tool).chmod(0o755)
    ended = make_image(tmp_path, "FAISS=gpu")
    words = ended.stdout.split()
    assert ended.returncode == 0, ended.stderr
    assert words[0] == "build"
    assert words[words.index("--build-arg") + 1] == "FAISS=gpu"
    recipe = (ROOT / ("apptainer.def" if tool == "apptainer" else "Dockerfile")).read_text()
    copied = re.findall(r"^(?:COPY| {3}) (.*) (?:\./|pipeline|/opt/mdcr/)$", recipe, re.M)
    assert {*" ".join(copied).split()} == {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "pipeline"}
