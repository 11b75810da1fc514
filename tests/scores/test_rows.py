"""What one setting of pool or system, changed alone, does to the rows, the caption and the records."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.exchange.export import as_csv
from pipeline.measure.design import Draws
from pipeline.scores.caption import folder_names
from pipeline.scores.choose import choose, load
from pipeline.scores.compare import compare
from pipeline.scores.comparison import difference_table
from pipeline.scores.frames import load_runs
from pipeline.scores.page.report import Report, page_of
from pipeline.scores.store import scores_of, stored
from pipeline.scores.summary import exported, summarise, summarise_samples
from tests.builders import make_corpus
from tests.scores import published as made
from tests.scores.cases import tables_of
from tests.scores.published import ENCODER

BM25 = {"k1": 0.9, "b": 0.4}
DENSE = {"search": "exact", "metric": "l2", "encoder": ENCODER}
IVF = {"factory": "IVF4,Flat", "options": "nprobe=2", "gpu": False}


class Case(NamedTuple):
    """Two scores that differ in one setting, and what a user sees of it.

    Attributes:
        system: name of both.
        base: settings of both.
        pool: settings of the second pool.
        changed: settings of the second ranking.
        effect: in words, for the documentation.
        titles: a part of the title of each table.
        rows: labels of all rows.
        said: what the notes say.
        columns: of the CSV file, in which the two differ.
    """

    system: str
    base: Mapping[str, Any]
    pool: Mapping[str, Any]
    changed: Mapping[str, Any]
    effect: str
    titles: tuple[str, ...]
    rows: tuple[str, ...]
    said: str
    columns: str


def of_pool(effect: str, title: str, said: str, columns: str = "", /, **pool: Any) -> Case:
    return Case("bm25", BM25, pool, {}, effect, ("seed 13", title), ("bm25", "bm25"), said, columns)


def of_system(rows: str, said: str, columns: str, base: Mapping[str, Any] = BM25, /, **changed: Any) -> Case:
    labels = tuple(rows.split(" | "))
    effect = "another row" if len(labels) == 2 else "the newest, with a note"
    name = labels[0].split(" (")[0]
    return Case(name, base, {}, changed, effect, ("seed 13",), labels, said, columns + " settings")


CASES = {
    "seed": of_pool("another table", "seed 99", "drawn with seed 99", "seed", seed=99),
    "queries": of_pool("another table", ", 4 queries,", "", "queries_asked", queries=4),
    "positives": of_pool(
        "another table", ", positives prefiltered", "positives prefiltered", "positives_from", positives="prefiltered"
    ),
    "min citations": of_pool(
        "another table", ", min citations 5", "min citations 5", "min_citations",
        prefilter=PrefilterConfig(min_citations=5),
    ),
    "exclude": of_pool(
        "another table", ", without ids.txt (abcdef)", "", "exclude exclude_sha256",
        exclude=(("ids.txt", "abcdef" * 8),),
    ),
    "size": Case("bm25", BM25, {"candidates": 7}, {}, "another column", ("seed",), ("bm25",), "7 in 1", "size"),
    "sample": Case("bm25", BM25, {"sample": 2}, {}, "mean over samples", ("seed",), ("bm25",), "2 samples", "sample"),
    "depth": of_system(
        "bm25 (depth 500) | bm25 (depth 10)", "top 10 (bm25 (depth 10)) and the top 500", "depth", depth=10
    ),
    "k1": of_system("x (k1 0.9) | x (k1 1.2)", "k1=1.2, b=0.4", "k1", k1=1.2),
    "tuned k1": of_system("bm25", "Of several tunings the newest: bm25.", "", k1=1.2)._replace(system="bm25:tuned"),
    "fused part": of_system(
        "rrf(a,b) (k1 0.9) | rrf(a,b) (k1 1.2)", "", "", {"parts": {"a": BM25}}, parts={"a": {**BM25, "k1": 1.2}}
    ),
    "precision": of_system(
        "x (precision bfloat16) | x (precision float32)", "precision bfloat16", "precision",
        DENSE, encoder={**ENCODER, "compute": "bfloat16"},
    ),
    "revision": of_system(
        f"x (revision {'a' * 12}) | x (revision {'b' * 12})", f"revision {'b' * 12}", "revision",
        DENSE, encoder={**ENCODER, "revision": "b" * 40},
    ),
    "engine": of_system("x (engine exact) | x (engine faiss:IVF4,Flat:nprobe=2)", "", "engine", DENSE, search=IVF),
}  # fmt: skip


def publish(root: Path, case: Case) -> pl.DataFrame:
    """Publish both scores of a case, and return them."""
    of = made.corpus(root)
    first = made.pool(root, of)
    second = made.pool(root, of, **case.pool) if case.pool else first
    origins = [{"tuning": made.tuning(root, number)} if ":tuned" in case.system else {} for number in (1, 2)]
    made.score(root, of, first, case.system, inputs=origins[0], **case.base)
    made.score(root, of, second, case.system, inputs=origins[1], **{**case.base, **case.changed})
    return load(root)


@pytest.mark.parametrize("name", CASES)
def test_a_setting_changed_alone_is_seen(tmp_path: Path, name: str) -> None:
    case, draws = CASES[name], Draws(resamples=10)
    scores = publish(tmp_path, case)
    tables = tables_of(scores, summarise(scores, draws=draws))
    assert len(tables) == len(case.titles)
    for part in case.titles:
        assert any(part in table.title for table in tables), [table.title for table in tables]
    labels = [line.label for table in tables for line in table.lines]
    assert sorted(labels) == sorted(case.rows)
    assert case.said in " ".join(note for table in tables for note in table.notes)
    rows = exported(pl.concat([summarise(scores, draws=draws), summarise_samples(scores, load_runs(scores), draws)]))
    lines = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [list(line) for line in lines] == [rows.columns] * len(rows)
    for column in case.columns.split():
        newest = "newest" in case.effect
        for shown in (rows.rows(named=True), lines):
            assert (len({str(row[column]) for row in shown}) > 1) != newest, column


@pytest.mark.parametrize("same", ["measures", "inputs"])
def test_what_decides_nothing_is_the_same_row(tmp_path: Path, same: str) -> None:
    of = made.corpus(tmp_path)
    pool = made.pool(tmp_path, of)
    made.score(tmp_path, of, pool, "bm25", measures="map,recall@2", **BM25)
    made.score(tmp_path, of, pool, "bm25", measures="ndcg,map" if same == "measures" else "map,recall@2", **BM25)
    (run,) = stored(tmp_path).rows(named=True)
    assert run["measures"] == (["map", "ndcg", "recall@2"] if same == "measures" else ["map", "recall@2"])
    assert len(run["scores"]) == (2 if same == "measures" else 1)


def test_pools_of_two_corpora_are_two_tables(tmp_path: Path) -> None:
    for name, papers in (("one", 8), ("other", 9)):
        of = made.corpus(tmp_path, name, papers)
        made.score(tmp_path, of, made.pool(tmp_path, of), "bm25")
    runs = choose(stored(tmp_path), tmp_path)
    assert runs["kind"].n_unique() == 2
    assert sorted(name.split("-")[0] for name in runs["corpus"]) == ["one", "other"]
    assert summarise(scores_of(runs))["table"].unique().to_list() == [1, 2]


def test_a_pool_of_all_papers_beside_one_as_large_has_its_own_table(tmp_path: Path) -> None:
    of = made.corpus(tmp_path)
    for size in (8, "all"):
        made.score(tmp_path, of, made.pool(tmp_path, of, size=size), "bm25")
    assert choose(stored(tmp_path), tmp_path)["kind"].n_unique() == 2


def test_a_collection_is_named_and_told_without_the_rules_of_citation_pools(tmp_path: Path) -> None:
    cited = [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")]
    of = make_corpus(tmp_path, 8, cited, name="scifact", query_texts={name: f"question {name}" for name in "abc"})
    given = made.pool(tmp_path, of, queries_are="texts", year=None, queries="all", size="all", drop_identical_id=False)
    for system in ("bm25", "lsa"):
        made.score(tmp_path, of, given, system)
    runs, draws = choose(stored(tmp_path), tmp_path), Draws(resamples=50)
    scores = scores_of(runs)
    summary = summarise(scores, draws=draws)
    (table,) = tables_of(scores, summary)
    assert table.title == "Retrieval on scifact (top 500)"
    assert "Collection: 8 documents, 3 queries, 4 positives." in table.notes
    told = " ".join(table.notes)
    assert not [rule for rule in ("drawn", "sample ", "year", "nested", "citation", "abstract") if rule in told]
    page = page_of(Report(runs, scores, summary, ["map"], draws))
    assert page.about == "2 systems, scifact, 3 queries, pools of 8 candidates."
    differences = compare(scores, "bm25", "lsa", draws=draws)
    assert difference_table(differences, runs).title == "lsa minus bm25 (scifact 8, 3 queries)"
    assert list(folder_names(tmp_path, runs, {}, []).values()) == ["scifact_scores"]
