from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.corpus.reader import Corpus
from pipeline.sources.beir import Beir
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from tests.corpus.oracle import drawable, first_drop, papers_of, positives_of, same_title
from tests.releases import random_s2orc, write_lines, write_s2orc

RECORDS = random_s2orc(1200, seed=11)
PAPERS = papers_of(RECORDS)
IDS = list(PAPERS)

Make = Callable[..., Pool]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    root = tmp_path_factory.mktemp("pools")
    release = write_s2orc(root / "release", RECORDS, parts=2)
    return Runner(root, Resources(2**30, 1)).make(corpus_task("c", S2orc2020(release)))


@pytest.fixture
def make(corpus: Artifact, tmp_path: Path) -> Make:
    def build(*, exclude: tuple[Path, ...] = (), **config: Any) -> Pool:
        task = pool_task(corpus, PoolConfig(**{"queries": 20, "size": 250, **config}), exclude)
        return Pool(Runner(tmp_path, Resources(2**30, 1)).make(task), Corpus(corpus))

    return build


def candidates_of(pool: Pool) -> set[str]:
    ids = pool.corpus.ids(pool.candidates)
    assert ids == sorted(set(ids))
    return set(ids)


@pytest.mark.parametrize("field", [None, "Physics"])
def test_all_queries_and_all_candidates_are_what_plain_python_says(make: Make, field: str | None) -> None:
    pool = make(field=field, size="all", queries="all")
    of_year = [i for i, p in PAPERS.items() if first_drop(p) is None and p["year"] == 2019]
    eligible = [i for i in of_year if field is None or field in PAPERS[i]["fields"]]
    positives = {i: positives_of(i, PAPERS) for i in eligible if positives_of(i, PAPERS)}
    queries, cited = list(positives), set().union(*positives.values())
    assert pool.query_ids() == queries
    candidates = drawable(PAPERS, 2019, field) | cited
    assert candidates_of(pool) == candidates
    qrels = [(queries[r["query"]], IDS[r["row"]]) for r in pool.qrels.to_pylist()]
    assert qrels == [(q, p) for q in queries for p in sorted(positives[q])]
    removed = {(queries[q], IDS[row]) for q in range(len(queries)) for row in pool.excluded(q)}
    assert removed == {(q, c) for q in queries for c in candidates if q == c or same_title(PAPERS[q], PAPERS[c])}
    counts = pool.artifact.manifest.counts
    expected = {
        "queries": len(queries),
        "queries_without_positive": len(eligible) - len(queries),
        "positives": len(qrels),
        "positives_after_query_year": sum((PAPERS[p]["year"] or 0) > 2019 for _, p in qrels),
        "candidates": len(candidates),
    }
    assert {name: counts[name] for name in expected} == expected
    lacking = [sum(not PAPERS[i]["abstract"] for i in ids) for ids in (cited, candidates - cited)]
    assert [counts["marks"][kind]["without_abstract"] for kind in ("positives", "negatives")] == lacking
    assert counts["excluded_self"] + counts["excluded_same_title"] == len(removed)
    assert counts["excluded_same_title"] > 0


def test_a_drawn_pool_has_its_size_all_positives_and_only_drawable_others(make: Make) -> None:
    pool = make(size=230)
    positives = set().union(*(positives_of(q, PAPERS) for q in pool.query_ids()))
    candidates = candidates_of(pool)
    assert (len(candidates), len(pool.query_ids())) == (230, 20)
    assert positives <= candidates <= positives | drawable(PAPERS, 2019, None)


def test_samples_share_queries_and_differ_in_candidates(make: Make) -> None:
    one, two = make(sample=1), make(sample=2)
    assert one.query_ids() == two.query_ids() != make(seed=14).query_ids()
    assert candidates_of(one) != candidates_of(two)


@pytest.mark.parametrize("nested", [True, False])
def test_sizes_share_queries_and_nest_only_when_asked(make: Make, nested: bool) -> None:
    small, large = make(size=200, nested=nested), make(size=250, nested=nested)
    assert (candidates_of(small) < candidates_of(large)) == nested
    assert small.query_ids() == large.query_ids()


def test_a_query_without_positive_is_replaced_and_counted(make: Make) -> None:
    every = make(size="all", queries="all")
    pool = make(size="all", queries=len(every.query_rows))
    assert pool.query_ids() == every.query_ids()
    replaced = pool.artifact.manifest.counts["queries_replaced"]
    assert 0 < replaced <= every.artifact.manifest.counts["queries_without_positive"]


def test_excluded_ids_are_no_queries(make: Make, tmp_path: Path) -> None:
    before = make().query_ids()
    listed = tmp_path / "training.txt"
    listed.write_text("\n".join([*before[:5], "not in the corpus", ""]), encoding="utf-8-sig")
    pool = make(exclude=(listed,))
    after = set(pool.query_ids())
    assert not set(before[:5]) & after
    assert set(before[5:]) < after
    assert pool.artifact.manifest.counts["excluded_queries"] == 5
    with pytest.raises(InputError, match="missing.txt cannot be read"):
        make(exclude=(tmp_path / "missing.txt",))


def test_validation_queries_are_in_no_test_set(make: Make) -> None:
    validation = make(split="validation").query_ids()
    assert len(validation) == 20
    assert not set(make().query_ids()) & set(validation)


def test_positives_of_prefiltered_papers_only(make: Make) -> None:
    pool = make(positives="prefiltered", size="all", queries="all")
    assert all(first_drop(PAPERS[IDS[row]]) is None for row in pool.qrels.column("row").to_pylist())


def test_same_titles_can_be_kept(make: Make) -> None:
    pool = make(drop_same_title=False, size="all", queries="all")
    assert pool.artifact.manifest.counts["excluded_same_title"] == 0
    assert pool.exclusions[1].tolist() == np.intersect1d(pool.query_rows, pool.candidates).tolist()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"year": 1850}, r"no paper of 1850 can be a query.*2017 \(\d+\)"),
        ({"queries": 9_999}, r"9999 queries requested, but only \d+ papers of 2019 have a positive.*--queries[= ]\d+"),
        ({"size": 2_000_000}, r"pool of 2M was requested, but only \d+ papers can be.*--size[= ]\d+"),
        ({"size": 10}, r"the \d+ positives alone exceed a pool of 10"),
        ({"field": "Art"}, "no paper of 2019 in Art can be a query"),
        ({"prefilter": PrefilterConfig(min_abstract_chars=9_999)}, r"query: \d+ papers with an abstract under 9999"),
        ({"positives": "all"}, "positives must be"),
        ({"year": None}, "must have a query year"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(make: Make, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**config)


@pytest.mark.parametrize(
    ("judged", "refused"),
    [
        ({"q1": "d1 d2", "q2": "d3"}, False),
        ({"q1": "d1 d2 d3", "q2": "d1 d2 d3"}, True),
        ({"d1": "d2 d3", "d2": "d1 d3"}, True),  # a query is no candidate of its own
    ],
)
def test_a_collection_in_which_every_ranking_is_right_is_refused(
    tmp_path: Path, judged: dict[str, str], refused: bool
) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "title": "T", "text": "x"} for n in (1, 2, 3)])
    write_lines(tmp_path / "queries.jsonl", [{"_id": name, "text": name} for name in judged])
    pairs = [(query, paper) for query, papers in judged.items() for paper in papers.split()]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("".join(f"{query}\t{paper}\t1\n" for query, paper in pairs))
    runner = Runner(tmp_path, Resources(2**30, 1))
    given = runner.make(corpus_task("given", Beir(tmp_path)))
    task = pool_task(given, PoolConfig(queries_are="texts", year=None, size="all", queries="all"))
    with pytest.raises(InsufficientDataError, match="every ranking of given is right") if refused else nullcontext():
        assert runner.make(task).manifest.counts["positives"] == len(pairs)


def test_the_direction_of_citations_is_checked() -> None:
    with pytest.raises(InputError, match="citation_direction"):
        PrefilterConfig(citation_direction="both")  # type: ignore[arg-type]
