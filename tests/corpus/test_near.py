"""Near-duplicates, and the rules of pools that remove papers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.near import are_near, near_pairs
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.stages.pool import pool_task
from pipeline.stages.selection import selection
from tests.builders import make_corpus
from tests.stages.making import make


def copies(root: Path) -> Artifact:
    """Papers of a few words each, so that many titles and abstracts are nearly alike."""
    random = np.random.default_rng(8)
    papers: list[dict[str, Any]] = []
    for n in range(240):
        if n % 3:
            title, abstract = papers[n - n % 3]["title"].split(), papers[n - n % 3]["abstract"].split()
            title[random.integers(len(title))] = "changed"
            abstract = abstract[: random.integers(0, len(abstract))] if n % 2 else abstract
        else:
            title = [f"t{word}" for word in random.integers(0, 90, random.integers(2, 12))]
            abstract = [f"abstract{word}" for word in random.integers(0, 300, 20)]
        year = None if n % 41 == 40 else 2016 + n % 4
        papers.append({"paper_id": f"{n:04d}", "title": " ".join(title), "abstract": " ".join(abstract), "year": year})
    pairs = [*random.integers(0, 240, (1200, 2)), *((n, n - n % 3) for n in range(240) if n % 3)]
    return make_corpus(root, papers, {(f"{a:04d}", f"{b:04d}") for a, b in pairs if a != b}, shard_rows=64)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(copies(tmp_path_factory.mktemp("near")))


def naive(corpus: Corpus) -> set[tuple[int, int]]:
    """Compare every paper with every other."""
    table = corpus.take(np.arange(len(corpus)), ["title", "abstract"])
    titles, abstracts = ([set(text.split()) for text in table.column(n).to_pylist()] for n in ("title", "abstract"))
    return {
        (a, b)
        for a, b in itertools.permutations(range(len(corpus)), 2)
        if len(titles[a] & titles[b]) / len(titles[a] | titles[b]) >= 0.8
        and (
            not abstracts[a]
            or not abstracts[b]
            or len(abstracts[a] & abstracts[b]) / len(abstracts[a] | abstracts[b]) >= 0.5
        )
    }


def test_pairs_are_those_of_comparing_all(corpus: Corpus) -> None:
    expected = naive(corpus)
    candidates = np.arange(10, 240, dtype=np.uint32)
    queries = np.random.default_rng(2).permutation(np.arange(0, 240, 2, dtype=np.uint32))  # as contexts' papers are
    pairs = near_pairs(corpus, queries, candidates)
    assert {(int(queries[query]), int(row)) for query, row in pairs} == {
        (a, b) for a, b in expected if a % 2 == 0 and b >= 10
    }
    every = np.array(list(itertools.permutations(range(60), 2)))
    near = are_near(corpus, every[:, 0], every[:, 1])
    assert set(map(tuple, every[near].tolist())) == {(a, b) for a, b in expected if max(a, b) < 60}
    assert 20 < len(expected) < 400
    assert not len(near_pairs(corpus, queries[:0], candidates))


def test_near_duplicates_are_neither_positives_nor_ranked_and_are_counted(corpus: Corpus) -> None:
    root = corpus.artifact.path.parent.parent
    both = [
        make(root, pool_task(corpus.artifact, PoolConfig(size="all", queries=10, drop_near_duplicates=drop)))
        for drop in (False, True)
    ]
    usual, without = (Pool(artifact, corpus) for artifact in both)
    expected = naive(corpus)
    assert usual.query_rows.tolist() == without.query_rows.tolist()
    candidates = set(without.candidates.tolist())
    for query, row in enumerate(without.query_rows.tolist()):
        near = {b for a, b in expected if a == row}
        assert near & candidates <= set(without.excluded(query).tolist())
    positives = [
        set(zip(*(pool.qrels.column(n).to_pylist() for n in ("query", "row")), strict=True))
        for pool in (usual, without)
    ]
    removed = {(query, row) for query, row in positives[0] if (int(usual.query_rows[query]), row) in expected}
    assert positives[1] == positives[0] - removed
    counts = both[1].manifest.counts
    assert counts["positives_dropped_near_duplicate"] == len(removed) > 0
    assert counts["excluded_near_duplicate"] + len(usual.exclusions[1]) == len(without.exclusions[1])
    assert "drop_near_duplicates" not in both[0].manifest.config


@pytest.mark.parametrize("field", [None, "Art"])
def test_candidates_of_earlier_years_only(tmp_path: Path, field: str | None) -> None:
    same = {"abstract": "x" * 40, "fields": ["Art"]}
    years = [2017, 2018, 2019, None]
    papers = [{"paper_id": f"{n:03d}", "title": f"T {n}", "year": years[n % 4], **same} for n in range(80)]
    edges = {(f"{n:03d}", f"{(n + k) % 80:03d}") for n in range(80) for k in (1, 2, 3, 4)}
    artifact = make_corpus(tmp_path, papers, edges)
    made = make(tmp_path, pool_task(artifact, PoolConfig(field=field, size="all", queries=10, earlier_only=True)))
    pool = Pool(made, Corpus(artifact))
    year = pool.corpus.attributes["year"]
    assert set(year[pool.candidates].tolist()) == {2017, 2018}
    assert set(year[pool.query_rows].tolist()) == {2019}
    assert made.manifest.counts["positives"] == 20
    assert made.manifest.counts["positives_dropped_not_earlier"] == 20
    assert NO_YEAR in year


def test_queries_are_later_than_the_training_data() -> None:
    for given, year in (("2018", 2019), ("2021", 2022), (2030, 2031)):
        (config, *_) = selection(after_cutoff=given).configs(None)
        assert config.year == year
    with pytest.raises(InputError, match="queries must be later than"):
        selection(after_cutoff=2030, year=2030).configs(None)
