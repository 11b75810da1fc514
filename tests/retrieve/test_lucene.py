"""BM25 by Lucene, against the formula in plain Python and against hand-made cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.retrieve.java import declare
from pipeline.retrieve.lucene import LuceneIndex, build_index
from tests.retrieve.bm25 import bm25_scores
from tests.retrieve.cases import exclusions, no_exclusions

pytestmark = pytest.mark.java
MEMORY = 1 << 30


def opened(folder: Path, documents: Sequence[str | Text]) -> closing[LuceneIndex]:
    """Index documents as rows 10, 11, ... and open the index."""
    texts = [text if isinstance(text, Text) else Text("", text) for text in documents]
    rows = np.arange(10, 10 + len(texts), dtype=np.uint32)
    folder.mkdir()
    assert build_index(iter([texts[:3], texts[3:]]), rows, folder, 2, MEMORY)["documents"] == len(texts)
    return closing(LuceneIndex(folder, rows, MEMORY))


def search(index: LuceneIndex, *queries: str | Text, excluded: Exclusions | None = None, **how: float) -> Ranking:
    texts = [[text if isinstance(text, Text) else Text(text, "") for text in queries]]
    options: dict[str, Any] = {"k1": 0.9, "b": 0.4, "depth": 100, "threads": 2, **how}
    return index.search(iter(texts), excluded or no_exclusions(len(queries)), **options)


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (0.5, 1.0), (2.1, 0.0), (0.0, 0.5)])
def test_scores_equal_the_formula(tmp_path: Path, k1: float, b: float) -> None:
    rng = np.random.default_rng(7)
    words = np.array([f"w{number}" for number in range(300)])
    lengths = rng.choice([0, 1, 5, 23, 24, 25, 39, 40, 41, 90, 200, 700], 150)
    documents = [" ".join(words[rng.zipf(1.3, length) % 300]) for length in lengths]
    queries = [" ".join(words[rng.zipf(1.3, length) % 300]) for length in (0, 1, 3, 30, 400)]
    with opened(tmp_path / "index", documents) as index:
        ranking = search(index, *queries, depth=1_000, k1=k1, b=b)
    for number, query in enumerate(queries):
        expected = bm25_scores(documents, query, k1, b)
        of_query = ranking.query == number
        assert set((ranking.row[of_query] - 10).tolist()) == set(expected)
        wanted = [expected[row - 10] for row in ranking.row[of_query].tolist()]
        np.testing.assert_allclose(ranking.score[of_query], wanted, rtol=2e-6)
        keys = list(zip(ranking.score[of_query].tolist(), ranking.row[of_query].tolist(), strict=True))
        assert keys == sorted(keys, reverse=True)


def test_ties_at_the_cut_go_to_the_greatest_rows(tmp_path: Path) -> None:
    documents = ["apple pear"] * 1_500 + ["apple apple"] * 2 + ["cherry"] * 40
    excluded = exclusions([[10 + 1_500, 10 + 1_498, 10 + 1_541], []])
    with opened(tmp_path / "index", documents) as index:
        ranking = search(index, "apple", "apple", depth=5, excluded=excluded)
        assert ranking.row[:5].tolist() == [1_511, 1_509, 1_507, 1_506, 1_505]
        assert ranking.row[5:].tolist() == [1_511, 1_510, 1_509, 1_508, 1_507]
        assert len(set(ranking.score[6:].tolist())) == 2
        deeper = search(index, "apple", depth=1_400)
        assert deeper.row[:5].tolist() == ranking.row[5:].tolist()
        assert deeper.row[2:].tolist() == list(range(1_509, 111, -1))


def test_whole_papers_are_queries(tmp_path: Path) -> None:
    """More distinct terms than Lucene lets a query have unless told otherwise, and a term a thousand times."""
    long = " ".join(f"word{number}" for number in range(5_000))
    with opened(tmp_path / "index", [long, "word7 word8", "other"]) as index:
        ranking = search(index, long, "word8 " * 1_000)
    assert ranking.row.tolist() == [10, 11, 11, 10]
    np.testing.assert_allclose(
        ranking.score[2], 1_000 * bm25_scores([long, "word7 word8", "other"], "word8", 0.9, 0.4)[1], rtol=1e-6
    )


WEIRD = [
    "smile 😀 rocket 🚀",
    "עברית العربية \u202eabc\u202c",
    "null\x00byte \x01\x02",
    "replaced \ufffd surrogate \ufffd end",
    "Ångström A\u030angstro\u0308m e\u0301",
    "x" * 70_000,
    "\t\n\r\u2028",
    '{"id": "7", "contents": "json"} <xml> \\u0041 \\',
    "中文 日本語 한국어",
    "C++ a.b.c U.S.A. don't re-use 3.14 α-helix H₂O",
]


def test_weird_text_is_indexed_and_searched(tmp_path: Path) -> None:
    with opened(tmp_path / "index", [Text(text, text) for text in WEIRD]) as index:
        ranking = search(index, *WEIRD)
        for number, text in enumerate(WEIRD):
            best = ranking.row[(ranking.query == number) & (ranking.rank == 1)].tolist()
            assert best == ([] if not text.strip() else [10 + number])
        assert search(index, "surrogate", "byte", "angstrom").row.tolist() == [13, 12]


def test_title_then_abstract(tmp_path: Path) -> None:
    papers = [Text("lemon", ""), Text("", "lemon"), Text("lemon", "lime"), Text("", ""), Text("", " ")]
    with opened(tmp_path / "index", papers) as index:
        ranking = search(index, Text("", "lime"), Text("lemon", "lime"), "plum", depth=9, threads=1)
    assert ranking.row.tolist() == [12, 12, 11, 10]


def test_pyserini_can_open_it(tmp_path: Path) -> None:
    with opened(tmp_path / "index", ["one two", "two three", "three four"]) as index:
        ours = search(index, "three")
    searcher = declare(
        "io/anserini/search/SimpleSearcher",
        "(Ljava/lang/String;)V",
        (("search", "(Ljava/lang/String;I)[Lio/anserini/search/ScoredDoc;"), ("close", "()V")),
    )(str(tmp_path / "index"))
    theirs = searcher.search("three", 10)
    assert sorted(int(hit.docid) for hit in theirs) == sorted(ours.row.tolist())
    np.testing.assert_allclose([hit.score for hit in theirs], ours.score, atol=1e-4)
    searcher.close()


@pytest.mark.parametrize("count", [2, 4])
def test_as_many_texts_as_rows(tmp_path: Path, count: int) -> None:
    rows = np.arange(3, dtype=np.uint32)
    with pytest.raises(InputError, match=f"there are {count} texts for 3 rows"):
        build_index([[Text("a", "b")] * count], rows, tmp_path, 2, MEMORY)


def test_an_error_in_the_texts_ends_the_work(tmp_path: Path) -> None:
    def texts() -> Iterator[list[Text]]:
        yield [Text("a", "b")] * 5
        raise OSError(5, "the disk broke")

    with pytest.raises(OSError, match="the disk broke"):
        build_index(texts(), np.arange(9, dtype=np.uint32), tmp_path, 3, MEMORY)


def test_another_index_under_its_name(tmp_path: Path) -> None:
    with opened(tmp_path / "index", ["kiwi"]):
        pass
    with pytest.raises(CorruptError, match="holds 1 documents in 1 segments, not 2 in one"):
        LuceneIndex(tmp_path / "index", np.arange(2, dtype=np.uint32), MEMORY)
    with pytest.raises(StageError, match=f"Java failed at {tmp_path}"):
        LuceneIndex(tmp_path, np.arange(2, dtype=np.uint32), MEMORY)
