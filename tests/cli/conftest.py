from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr_json


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with the corpus ``tiny`` of 3,000 papers, built once a process: not to be changed."""
    root = tmp_path_factory.mktemp("tiny")
    counts = mdcr_json(root, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))["counts"]
    assert counts["read"] == 3000 == counts["kept"]
    return root


@pytest.fixture(scope="module")
def root(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of ``tiny`` that the tests of a module add to."""
    return shutil.copytree(tiny, tmp_path_factory.mktemp("workspace") / "root")


@pytest.fixture
def own(tiny: Path, tmp_path: Path) -> Path:
    """Return a copy of ``tiny`` that one test may damage."""
    return shutil.copytree(tiny, tmp_path / "own")
