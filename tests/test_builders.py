"""The corpora and pools tests are built on are what the schema says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from tests.builders import make_corpus, make_pool


def test_corpus_and_pool_are_read_back(tmp_path: Path) -> None:
    papers = [
        {"paper_id": "b", "title": "B", "abstract": "about b", "year": 2019, "fields": ["Physics", "Art"]},
        {"paper_id": "a", "title": "A"},
        {"paper_id": "c", "abstract": "about c", "n_outbound": 9},
    ]
    artifact = make_corpus(tmp_path, papers, [("b", "a"), ("b", "c"), ("c", "a")], shard_rows=2)
    corpus = Corpus(find_corpus(tmp_path, "tiny"))
    assert corpus.artifact.id == artifact.id
    assert corpus.ids([0, 1, 2]) == ["a", "b", "c"]
    assert corpus.shards == 2
    assert [text for block in corpus.texts([0, 1, 2]) for text in block] == [
        Text("A", ""),
        Text("B", "about b"),
        Text("", "about c"),
    ]
    assert corpus.outgoing.of(1).tolist() == [0, 2]
    assert corpus.incoming.of(0).tolist() == [1, 2]
    assert corpus.attributes["n_outbound"].tolist() == [0, 2, 9]
    pool = Pool(make_pool(tmp_path, artifact, ["b", 2], size=3), corpus)
    assert pool.query_rows.tolist() == [1, 2]
    assert pool.candidates.tolist() == [0, 1, 2]
    assert pool.qrels.to_pydict() == {"query": [0, 0, 1], "row": [0, 2, 0], "grade": [1, 1, 1]}
    assert pool.excluded(0).tolist() == [1]
    assert pool.artifact.manifest.config["size"] == 3
    pool.artifact.verify()
    artifact.verify()


def test_query_texts(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 3, query_texts={"q2": "second", "q1": "first"}, judgements=[("q2", "00001", 2)])
    pool = Pool(make_pool(tmp_path, corpus), Corpus(corpus))
    assert not pool.queries_are_papers
    assert list(pool.query_texts()) == [[Text("first", ""), Text("second", "")]]
    assert pool.qrels.to_pylist() == [{"query": 1, "row": 1, "grade": 2}]


def test_empty(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [])
    pool = Pool(make_pool(tmp_path, corpus, []), Corpus(corpus))
    assert len(Corpus(corpus)) == 0
    assert pool.candidates.size == 0
    assert pool.query_rows.size == 0
    assert pool.qrels.num_rows == 0


def test_unknown_paper_is_refused(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 2)
    with pytest.raises(ValueError, match="no paper 'x'"):
        make_pool(tmp_path, corpus, ["x"])
