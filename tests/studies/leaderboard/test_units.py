"""Queries of one paper, in whatever facets or classes it asks, are drawn together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.studies.base import find
from pipeline.studies.leaderboard.benchmarks import Recipe, benchmarks
from pipeline.studies.recipe import read_recipe
from tests.cli.run import flags, mdcr
from tests.studies.facets.collection import annotations, edit, write


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two facets with the same query papers, candidates and grades, asked by whole papers."""
    folder, root = tmp_path_factory.mktemp("collection"), tmp_path_factory.mktemp("facets")
    collection = write(folder / "mine")
    judged, random = annotations(collection, "method")["100"], np.random.default_rng(5)
    lists = {str(paper): judged | {"relevance_adju": random.permutation(judged["relevance_adju"]).tolist()}
             for paper in range(100, 104)}  # fmt: skip
    for facet in ("method", "background"):
        edit(collection / f"test-pid2anns-mine-{facet}.json", lists)
    (collection / "evaluation_splits.json").unlink()
    asked = flags('study facets --set systems="" --set facets=["method","background"] --set corpus="mine"')
    whole = ["--set", 'whole="bm25,tfidf,lsa:dimension=8"']
    assert mdcr(root, *asked, *whole, "--input", str(collection)).returncode == 0
    return root


def test_facets_of_one_paper_are_resampled_together(workspace: Path) -> None:
    first, second = benchmarks([workspace], read_recipe(find("leaderboard").default_recipe, Recipe, {}))
    assert first.field != second.field
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.ranked, second.ranked)
    assert np.ptp(first.ranked, axis=1).max() > 0
