"""A small corpus of neighbours, made once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.studies.neighbours.corpus import NeighboursConfig, neighbours_task
from pipeline.studies.neighbours.operators import CLASSES
from tests.builders import make_corpus

PAPERS = [
    {
        "paper_id": "b",
        "title": "Deep models of text",
        "abstract": "We train the deep model. It is good. The end of it.",
    },
    {"paper_id": "a", "title": "A new network", "abstract": "A network is trained in this paper. We show the gains."},
    {"paper_id": "a#0", "title": "Protein folding", "abstract": "The folding of proteins is an old problem."},
    {"paper_id": "fr", "title": "Un modèle", "abstract": "Nous présentons un modèle profond."},
    {"paper_id": "x1", "title": "", "abstract": "The paper has no title."},
    {"paper_id": "x2", "title": "A title", "abstract": ""},
]
ORIGINALS = {"a", "a#0", "b", "fr"}


def made(
    root: Path, papers: int | str = "all", workers: int = 1, classes: tuple[str, ...] = tuple(CLASSES)
) -> Artifact:
    """Make the neighbours of :data:`PAPERS` in a workspace."""
    corpus = make_corpus(root, PAPERS, [("a", "b")], shard_rows=2)
    config = NeighboursConfig(papers, classes)  # type: ignore[arg-type]
    return Runner(root, Resources(workers=workers)).make(neighbours_task(corpus, config))


@pytest.fixture(scope="package")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("neighbours"), Resources(workers=1))


@pytest.fixture(scope="package")
def corpus(runner: Runner) -> Artifact:
    """Return the neighbours of all papers; other tests only read it."""
    return made(runner.root)
