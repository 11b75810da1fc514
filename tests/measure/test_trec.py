"""TREC files: what trec_eval makes of them, and what we read back."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure import trec
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import parse_measures
from tests.builders import make_corpus, make_pool
from tests.measure.cases import random_case, ranking_table

IDS = ["10", "9", "A", "a-1", "doi:10.1000/é", "https://openalex.org/W1", "zz", "\U0001f600", "~", "日本"]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Ten papers with ids of every kind; the first is the query "10" itself, and excluded for it."""
    corpus = make_corpus(tmp_path, [{"paper_id": paper_id} for paper_id in IDS], shard_rows=3)
    qrels = [("10", "9", 1), ("10", "日本", 3), ("A", "zz", 2), ("A", "~", 0), ("\U0001f600", "a-1", 1)]
    return Pool(make_pool(tmp_path, corpus, ["10", "A", "\U0001f600"], qrels=qrels), Corpus(corpus))


def lines_of(pool: Pool, run: list[dict[str, float]], tmp_path: Path) -> Path:
    path = tmp_path / "theirs.run"
    lines = [
        f"{pool.query_ids()[q]} Q0 {doc} 0 {score!r} x" for q, each in enumerate(run) for doc, score in each.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_run_is_written_in_six_columns(pool: Pool, tmp_path: Path) -> None:
    ranking = ranking_table([{1: 0.1, 9: 0.1}, {}, {0: -2.5e-12}])
    trec.write(tmp_path / "out.run", trec.run_lines(ranking, pool, "bm25"))
    assert (tmp_path / "out.run").read_text(encoding="utf-8").splitlines() == [
        "10 Q0 \U0001f600 1 0.1 bm25",
        "10 Q0 9 2 0.1 bm25",
        "\U0001f600 Q0 10 1 -2.5e-12 bm25",
    ]


@pytest.mark.parametrize("score_levels", [1, 3, 10_000])
def test_trec_eval_gives_our_figures(pool: Pool, tmp_path: Path, score_levels: int) -> None:
    """The file is handed over without its order and ranks, as trec_eval ignores both."""
    run, _ = random_case(score_levels, queries=3, rows=10, depth=10, positives=3, score_levels=score_levels)
    run = [{row: score for row, score in each.items() if row != pool.query_rows[q]} for q, each in enumerate(run)]
    run[0] |= {8: 0.1, 7: float(np.nextafter(np.float32(0.1), np.float32(1)))}
    ranking = ranking_table(run)
    trec.write(tmp_path / "out.run", trec.run_lines(ranking, pool, "bm25"))
    trec.write(tmp_path / "out.qrels", trec.qrels_lines(pool))
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for line in reversed((tmp_path / "out.run").read_text(encoding="utf-8").splitlines()):
        query, _, document, _, score, _ = line.split(" ")
        scores[query][document] = float(score)
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (tmp_path / "out.qrels").read_text(encoding="utf-8").splitlines():
        query, _, document, grade = line.split(" ")
        grades[query][document] = int(grade)
    names = ["map", "ndcg", "recip_rank", "P_1", "recall_30"]
    theirs = pytrec_eval.RelevanceEvaluator(dict(grades), set(names)).evaluate(dict(scores))
    ours = evaluate(
        Qrels.from_table(pool.qrels, 3), Run.from_table(ranking, 3), parse_measures("map,ndcg,mrr,p@1,r@30")
    )
    for place, query in enumerate(pool.query_ids()):
        if run[place]:
            assert ours[:, place].tolist() == pytest.approx([theirs[query][name] for name in names], abs=1e-9)
    assert trec.read_run(tmp_path / "out.run", pool)[0].equals(ranking)


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


def test_lines_in_any_order_are_ranked_in_ours(pool: Pool, tmp_path: Path) -> None:
    run = [{"zz": 1.0, "9": 2.0, "A": 1.0 + 1e-12, "10": 3.0}, {}, {"~": -1.0, "a-1": 0.0}]
    ranking, excluded = trec.read_run(lines_of(pool, run, tmp_path), pool)
    ids = pool.corpus.ids(ranking.column("row").to_numpy())
    found = list(zip(ranking.column("query").to_pylist(), ids, ranking.column("rank").to_pylist(), strict=True))
    assert found == [(0, "9", 1), (0, "zz", 2), (0, "A", 3), (2, "a-1", 1), (2, "~", 2)]
    assert excluded == 1
    assert Run.from_table(ranking, 3).depth == 3
    (tmp_path / "empty.run").write_text("")
    assert trec.read_run(tmp_path / "empty.run", pool)[0].num_rows == 0


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("10 Q0 9 1 0.5", "line 2 has 5 columns, not 6"),
        ("11 Q0 9 1 0.5 x", "line 2 names query '11'"),
        ("10 Q0 9 1 high x", "line 2 has 'high' where a number belongs"),
        ("10 Q0 9 1 nan x", "line 2 has no finite score"),
        ("10 Q0 9 1 1e39 x", "line 2 has no finite score"),
        ("10 Q0 nowhere 1 1 x", "1 papers that are not candidates of the pool, such as 'nowhere'"),
        ("A Q0 zz 1 1 x", "line 2 repeats a query and document"),
    ],
)
def test_a_bad_line_is_named(pool: Pool, tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "bad.run").write_text(f"A Q0 zz 1 0.5 x\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=fault):
        trec.read_run(tmp_path / "bad.run", pool)


def test_a_file_that_cannot_be_read(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "latin.run").write_bytes("A Q0 é 1 0.5 x\n".encode("latin-1"))
    for name in ("latin.run", "none.run", ""):
        with pytest.raises(InputError, match="cannot be read"):
            trec.read_run(tmp_path / name, pool)


@pytest.mark.parametrize("paper_id", ["a b", "a\u00a0b", "\t"])
def test_an_id_with_white_space_is_refused(tmp_path: Path, paper_id: str) -> None:
    corpus = make_corpus(tmp_path, [{"paper_id": paper_id}, {"paper_id": "q"}])
    pool = Pool(make_pool(tmp_path, corpus, ["q"], qrels=[("q", paper_id, 1)]), Corpus(corpus))
    row = int(pool.corpus.rows_of([paper_id])[0])
    with pytest.raises(InputError, match="white space"):
        list(trec.run_lines(ranking_table([{row: 1.0}]), pool, "x"))
    with pytest.raises(InputError, match="white space"):
        list(trec.qrels_lines(pool))
    with pytest.raises(InputError, match="run tag 'my run'"):
        list(trec.run_lines(ranking_table([{1 - row: 1.0}]), pool, "my run"))
