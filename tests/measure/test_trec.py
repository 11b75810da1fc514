"""TREC files: what trec_eval makes of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.core.text import escape, unescape
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure import trec
from tests.builders import make_corpus, make_pool
from tests.measure.cases import random_case, ranking_table

IDS = ["10", "9", "A", "a-1", "doi:10.1000/é", "https://openalex.org/W1", "zz", "\U0001f600", "~", "日本"]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Ten papers with ids of every kind; the first is the query "10" itself, and excluded for it."""
    corpus = make_corpus(tmp_path, [{"paper_id": paper_id} for paper_id in IDS], shard_rows=3)
    qrels = [("10", "9", 1), ("10", "日本", 3), ("A", "zz", 2), ("A", "~", 0), ("\U0001f600", "a-1", 1)]
    return Pool(make_pool(tmp_path, corpus, ["10", "A", "\U0001f600"], qrels=qrels), Corpus(corpus))


def test_a_run_is_written_in_six_columns(pool: Pool, tmp_path: Path) -> None:
    ranking = ranking_table([{1: 0.1, 9: 0.1}, {}, {0: -2.5e-12}])
    trec.write(tmp_path / "out.run", trec.run_lines(ranking, pool, "bm25"))
    assert (tmp_path / "out.run").read_text(encoding="utf-8").splitlines() == [
        "10 Q0 \U0001f600 1 0.1 bm25",
        "10 Q0 9 2 0.1 bm25",
        "\U0001f600 Q0 10 1 -2.5e-12 bm25",
    ]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_every_float32_is_read_back_as_it_was(scores: list[float]) -> None:
    """Scores are written by this cast, and read by NumPy."""
    written = pa.compute.cast(pa.array(scores, pa.float32()), pa.large_string()).to_pylist()
    assert np.array([np.float32(text) for text in written]).tolist() == scores


def test_block_size_does_not_change_the_file(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    ranking = ranking_table([{1: 0.5, 2: 0.5, 3: 0.1}, {4: 1.0}, {}])
    whole = b"".join(trec.run_lines(ranking, pool, "x"))
    monkeypatch.setattr(trec, "_BLOCK", 1)
    assert len(list(trec.run_lines(ranking, pool, "x"))) == 4
    assert b"".join(trec.run_lines(ranking, pool, "x")) == whole


SPACED = ["a", "a b", "a!b", 'a"b', "a%", "a%20b", "a\u00a0b", "a\u2003", "a\u00e9b", "ab"]


@pytest.mark.parametrize("score_levels", [1, 2, 5])
def test_ties_of_ids_with_white_space_are_ranked_as_ours(tmp_path: Path, score_levels: int) -> None:
    corpus = make_corpus(tmp_path, [{"paper_id": paper_id} for paper_id in SPACED])
    queries = ["a b", "a%20b"]
    qrels = [(query, paper, 1) for query in queries for paper in SPACED[:3]]
    pool = Pool(make_pool(tmp_path, corpus, queries, qrels=qrels, exclusions=[]), Corpus(corpus))
    run, _ = random_case(score_levels, queries=2, rows=10, depth=10, positives=3, score_levels=score_levels)
    ranking = ranking_table(run)
    lines = [line.split(" ") for line in b"".join(trec.run_lines(ranking, pool, "my run")).decode().splitlines()]
    assert {(len(line), line[-1], len(" ".join(line).split())) for line in lines} == {(6, "my%20run", 6)}
    names, ids = pool.query_ids(), pool.corpus.ids(np.arange(10))
    ours = [(names[entry["query"]], ids[entry["row"]]) for entry in ranking.to_pylist()]
    theirs = sorted(lines, key=lambda line: (line[0], np.float32(line[4]), line[2]), reverse=True)
    read = [(unescape(line[0]), unescape(line[2])) for line in theirs]
    assert sorted(read, key=lambda pair: pair[0]) == sorted(ours, key=lambda pair: pair[0])  # a stable sort
    before = np.array(ranking.column("score").to_pylist(), np.float32)
    np.testing.assert_allclose([float(line[4]) for line in lines], before, rtol=1e-5, atol=1e-40)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_every_id_is_one_word_and_read_back(text: str) -> None:
    assert escape(text).split() == [escape(text)]
    assert unescape(escape(text)) == text


def test_topics_and_empty_ids(pool: Pool, tmp_path: Path) -> None:
    assert b"".join(trec.topic_lines(pool)).decode().splitlines()[0] == "10\t"
    corpus = make_corpus(tmp_path / "other", [{"paper_id": ""}, {"paper_id": "q", "title": "T", "abstract": "A"}])
    other = Pool(make_pool(tmp_path / "other", corpus, ["q"], qrels=[("q", "", 1)]), Corpus(corpus))
    assert b"".join(trec.topic_lines(other)) == b"q\tT A\n"
    with pytest.raises(InputError, match="paper id is empty"):
        list(trec.qrels_lines(other))
    with pytest.raises(InputError, match="run tag is empty"):
        list(trec.run_lines(ranking_table([{1: 1.0}]), other, ""))


def test_files_are_compressed_by_name_and_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz", "plain"):
        trec.write(tmp_path / name, [b"one\n", b"two\n"])
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == (tmp_path / "plain").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
