"""The site: it builds without a warning, its links lead somewhere, and it fetches nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import pipeline
from pipeline.cli.parsers import parsers
from tests.cli.run import flags, mdcr

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
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
    api, commands = ((site / f"reference/{name}.html").read_text() for name in ("api", "commands"))
    assert all(f"mdcr.{name}" in api for name in pipeline.__all__ if name != "__version__")
    assert ":class:" not in api
    assert ":func:" not in api
    for name, command in parsers().items():
        assert f"mdcr {name}" in commands
        assert all(f"<code>{option}</code>" in commands for option in command.options.keys() - {"--help", "--api-key"})


@pytest.mark.parametrize("tool", ["docker", "podman", "apptainer"])
def test_make_image_takes_the_tool_that_is_there(tmp_path: Path, tool: str) -> None:
    """A program in the place of the tool tells what it was given; its files are those of the checkout."""
    for name in ("sh", "make"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    command = [tmp_path / "make", "-f", ROOT / "Makefile", "--no-print-directory", "image", "FAISS=gpu"]
    image = partial(subprocess.run, command, env={"PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True)
    without = image()
    assert without.returncode == 2
    assert "make image needs Docker with a running daemon, Podman or Apptainer" in without.stderr.splitlines()[0]
    (tmp_path / tool).write_text('#!/bin/sh\n[ "$1" = info ] || echo "$@"\n')
    (tmp_path / tool).chmod(0o755)
    ended = image()
    assert ended.returncode == 0, ended.stderr
    words = ended.stdout.split()
    assert words[0] == "build"
    assert words[words.index("--build-arg") + 1] == "FAISS=gpu"
    recipe = (ROOT / ("apptainer.def" if tool == "apptainer" else "Dockerfile")).read_text()
    copied = re.findall(r"^(?:COPY| {3}) (.*) (?:\./|pipeline|/opt/mdcr/)$", recipe, re.M)
    assert {*" ".join(copied).split()} == {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "pipeline"}
