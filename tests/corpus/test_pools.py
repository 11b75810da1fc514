from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.corpus.reader import Corpus
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from tests.corpus.oracle import drawable, first_drop, papers_of, positives_of, same_title
from tests.releases import random_s2orc, write_s2orc

RECORDS = random_s2orc(1200, seed=11)
PAPERS = papers_of(RECORDS)

Make = Callable[..., Pool]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    root = tmp_path_factory.mktemp("pools")
    release = write_s2orc(root / "release", RECORDS, parts=2)
    return Runner(root, Resources(2**30, 1)).make(corpus_task("c", S2orc2020(release)))


@pytest.fixture
def make(corpus: Artifact, tmp_path: Path) -> Make:
    def build(*, exclude: tuple[Path, ...] = (), **config: Any) -> Pool:
        settings = {"queries": 20, "size": 250} | config
        task = pool_task(corpus, PoolConfig(**settings), exclude)
        return Pool(Runner(tmp_path, Resources(2**30, 1)).make(task), Corpus(corpus))

    return build


def query_ids(pool: Pool) -> list[str]:
    return pool.query_ids()


def candidate_ids(pool: Pool) -> list[str]:
    return pool.corpus.ids(pool.candidates)


@pytest.mark.parametrize("field", [None, "Physics"])
def test_all_queries_and_all_candidates_are_what_plain_python_says(make: Make, field: str | None) -> None:
    pool = make(field=field, size="all", queries="all")
    eligible = [
        i
        for i, p in PAPERS.items()
        if first_drop(p) is None and p["year"] == 2019 and (field is None or field in p["fields"])
    ]
    queries = [i for i in eligible if positives_of(i, PAPERS)]
    assert query_ids(pool) == queries
    expected = {i: positives_of(i, PAPERS) for i in queries}
    candidates = drawable(PAPERS, 2019, field).union(*expected.values())
    assert candidate_ids(pool) == sorted(candidates)
    ids = pool.corpus.ids(np.arange(len(pool.corpus)))
    qrels = [(queries[r["query"]], ids[r["row"]]) for r in pool.qrels.to_pylist()]
    assert qrels == [(q, p) for q in queries for p in sorted(expected[q])]
    removed = {(queries[q], ids[row]) for q in range(len(queries)) for row in pool.excluded(q)}
    assert removed == {(q, c) for q in queries for c in candidates if q == c or same_title(PAPERS[q], PAPERS[c])}
    counts = pool.artifact.manifest.counts
    assert counts["queries"] == len(queries)
    assert counts["queries_without_positive"] == len(eligible) - len(queries)
    assert counts["positives"] == len(qrels)
    assert counts["candidates"] == len(candidates)
    cited = set().union(*expected.values())
    lacking = [sum(not PAPERS[i]["abstract"] for i in each) for each in (cited, candidates - cited)]
    assert [counts["marks"][kind]["without_abstract"] for kind in ("positives", "negatives")] == lacking
    assert counts["excluded_self"] + counts["excluded_same_title"] == len(removed)
    assert counts["excluded_same_title"] > 0
    assert counts["positives_after_query_year"] == sum(
        PAPERS[p]["year"] is not None and PAPERS[p]["year"] > 2019 for _, p in qrels
    )


def test_a_drawn_pool_has_its_size_all_positives_and_only_drawable_others(make: Make) -> None:
    pool = make(size=230)
    positives = set().union(*(positives_of(q, PAPERS) for q in query_ids(pool)))
    candidates = candidate_ids(pool)
    assert len(candidates) == len(set(candidates)) == 230
    assert positives <= set(candidates)
    assert set(candidates) - positives <= drawable(PAPERS, 2019, None)
    assert len(query_ids(pool)) == 20


def test_samples_share_queries_and_differ_in_candidates(make: Make) -> None:
    one, two = make(sample=1), make(sample=2)
    assert query_ids(one) == query_ids(two)
    assert candidate_ids(one) != candidate_ids(two)
    assert query_ids(make(seed=14)) != query_ids(one)


def test_sizes_share_queries_and_nest_only_when_asked(make: Make) -> None:
    small, large = (set(candidate_ids(make(size=size, nested=True))) for size in (200, 250))
    assert small < large
    small, large = (set(candidate_ids(make(size=size))) for size in (200, 250))
    assert not small < large
    assert query_ids(make(size=200)) == query_ids(make(size=250))


def test_a_query_without_positive_is_replaced_and_counted(make: Make) -> None:
    every = make(size="all", queries="all")
    pool = make(size="all", queries=len(every.query_rows))
    assert query_ids(pool) == query_ids(every)
    counts = pool.artifact.manifest.counts
    assert counts["queries_replaced"] <= every.artifact.manifest.counts["queries_without_positive"]
    assert counts["queries_replaced"] > 0


def test_excluded_ids_are_no_queries(make: Make, tmp_path: Path) -> None:
    before = make()
    listed = tmp_path / "training.txt"
    listed.write_text("\n".join([*query_ids(before)[:5], "not in the corpus", ""]))
    after = make(exclude=(listed,))
    assert not set(query_ids(before)[:5]) & set(query_ids(after))
    assert set(query_ids(before)[5:]) < set(query_ids(after))
    assert after.artifact.manifest.counts["excluded_queries"] == 5
    with pytest.raises(InputError, match="missing.txt cannot be read"):
        make(exclude=(tmp_path / "missing.txt",))


def test_validation_queries_are_in_no_test_set(make: Make) -> None:
    test = make()
    validation = make(split="validation")
    assert not set(query_ids(test)) & set(query_ids(validation))
    assert len(query_ids(validation)) == 20


def test_positives_of_prefiltered_papers_only(make: Make) -> None:
    pool = make(positives="prefiltered", size="all", queries="all")
    ids = pool.corpus.ids(np.arange(len(pool.corpus)))
    assert all(first_drop(PAPERS[ids[r["row"]]]) is None for r in pool.qrels.to_pylist())


def test_same_titles_can_be_kept(make: Make) -> None:
    pool = make(drop_same_title=False, size="all", queries="all")
    assert pool.artifact.manifest.counts["excluded_same_title"] == 0
    removed = [int(row) for q in range(len(pool.query_rows)) for row in pool.excluded(q)]
    assert removed == sorted(set(pool.query_rows.tolist()) & set(pool.candidates.tolist()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"year": 1850}, r"no paper of 1850 can be a query.*2017 \(\d+ papers\)"),
        ({"queries": 9_999}, r"9999 queries asked for, but only \d+ papers of 2019 have a positive.*--queries[= ]\d+"),
        ({"size": 2_000_000}, r"pool of 2M was asked for, but only \d+ papers exist.*--size[= ]\d+"),
        ({"size": 10}, r"the \d+ positives alone exceed a pool of 10"),
        ({"field": "Art"}, r"no paper of 2019 in Art can be a query"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(make: Make, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**config)


@pytest.mark.parametrize("bad", [{"positives": "all"}, {"split": "train"}, {"year": None}])
def test_settings_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        PoolConfig(**bad)
    with pytest.raises(InputError, match="citation_direction"):
        PrefilterConfig(citation_direction="both")  # type: ignore[arg-type]
