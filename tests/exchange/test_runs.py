"""Runs of other tools: what is read, counted and refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.export import RANKING_FORMATS, write_ranking
from pipeline.exchange.runs import read_run
from pipeline.measure.inputs import RankedRun
from tests.builders import make_corpus, make_pool
from tests.measure.cases import of_pool, random_case, ranking_table

RESULT = '{"corpus_id": "zz", "score": 1}]}'
IDS = ["10", "9", "A b", "a%20b", "doi:10.1000/é", "q 1", "zz", "~", "日本"]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Nine papers; "out" is no candidate; the queries "10" and "q 1" are excluded from their own rankings."""
    corpus = make_corpus(tmp_path, [{"paper_id": paper_id} for paper_id in [*IDS, "out"]])
    return Pool(make_pool(tmp_path, corpus, ["10", "q 1"], IDS, qrels=[("10", "9", 1)]), Corpus(corpus))


def entries(pool: Pool, table: Any) -> list[tuple[int, str, float, int]]:
    """Return query, document, score and rank of each entry."""
    query, score, rank = (table.column(name).to_pylist() for name in ("query", "score", "rank"))
    return list(zip(query, pool.corpus.ids(table.column("row").to_numpy()), score, rank, strict=True))


def test_lines_in_any_order_are_ranked_in_ours(pool: Pool, tmp_path: Path) -> None:
    lines = ["q%201 percent-encoded A%20b 1 -1 x", "10 Q0 zz 9 1.0 x", "10\tQ0 9 9 2 x", "", "10 Q0 a%20b 1 1 x"]
    lines += ["# a comment", "10 Q0 10 1 3.0 x", "q%201 percent-encoded ~ 1 -0.0 x"]
    (tmp_path / "my.run").write_text("\n".join(lines), encoding="utf-8")
    table, counts = read_run(tmp_path / "my.run", pool, 500)
    assert entries(pool, table) == [
        (0, "9", 2.0, 1), (0, "zz", 1.0, 2), (0, "a%20b", 1.0, 3), (1, "~", 0.0, 1), (1, "A b", -1.0, 2),
    ]  # fmt: skip
    expected = {"read": 6, "unknown_queries": 0, "unknown_documents": 0, "excluded": 1, "beyond_depth": 0, "tied": 2}
    assert counts == expected
    RankedRun.from_table(table, 2)
    cut, counts = read_run(tmp_path / "my.run", pool, 1)
    assert (cut.num_rows, counts["beyond_depth"]) == (2, 3)


def test_entries_tied_in_float32_alone_are_ranked_by_float64(pool: Pool, tmp_path: Path) -> None:
    """As trec_eval 10: by ids 9 would come after zz."""
    scores = {"zz": "1.0", "9": "1.000000000002", "a%20b": "1.000000000001", "~": "0.99999999999"}
    (tmp_path / "my.run").write_text("".join(f"10 Q0 {name} 1 {score} x\n" for name, score in scores.items()))
    table, _ = read_run(tmp_path / "my.run", pool, 500)
    assert [document for _, document, *_ in entries(pool, table)] == ["9", "a%20b", "zz", "~"]
    RankedRun.from_table(table, 2)
    lowest = np.float32(table.column("score").to_numpy()).min()
    assert lowest == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.tsv", "10\tzz\t1\n10\t9\t2\n"),
        ("run.txt", "10 9 0.5\n10 zz 0.9\n"),
        ("run.txt", "query-id corpus-id score\n10 9 0.5\n10 zz 0.9\n"),
        ("run.csv", "qid,docno,rank,score\n10,9,2,0.5\n10,zz,1,0.9\n"),
        ("run.csv", 'qid;docno;note;score\n10;9;"a; b\n\n# c";0,5\n10;zz;;0,9\n'),
        ("run.txt", "10|9|0.5\n10|zz|0.9\n"),
        ("run.jsonl", '{"query_id": "10", "query": "t", "results": [{"corpus_id": 9, "score": 0}, ' + RESULT),
        ("run.json", '[{"qid": 10, "docid": "9", "score": 0.5}, {"qid": 10, "docid": "zz", "score": 1}]'),
        ("run.json", '{"mteb_model_meta": {"model_name": "m"}, "default": {"test": {"10": {"9": 0.5, "zz": 1.0}}}}'),
    ],
)  # fmt: skip
def test_tables_and_files_of_predictions_are_read(pool: Pool, tmp_path: Path, name: str, text: str) -> None:
    """Also ranks without scores (MS MARCO), and those of tevatron, PyTerrier, sentence-transformers and MTEB."""
    (tmp_path / name).write_text(text)
    assert [document for _, document, *_ in entries(pool, read_run(tmp_path / name, pool, 500)[0])] == ["zz", "9"]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("run.tsv", "10\tzz\t2\n10\t9\t1\n10\t~\t3\n", "must tell ranks from scores"),
        ("run.tsv", "qid\tdocno\ttag\n10\tzz\tx\n", "must name a column of scores"),
        ("run.tsv", "10\tzz\t2\n10 Q0 9 1 1 x\n", ":2 must be"),
        ("run.jsonl", '{"query_id": "10", "results": [{"score": 1}]}', "one column for the document"),
        ("run.jsonl", "no", ":1 is not a row"),
        ("run.json", '{"mteb_model_meta": {}, "en": {"test": {}}, "de": {"test": {}}}', "split, got en, test; de"),
        ("run.trec", "10 Q0 q%201 1 1 x\n", "1 match when percent-decoded"),
    ],
)  # fmt: skip
def test_what_such_a_file_must_say(pool: Pool, tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=fault):
        read_run(tmp_path / name, pool, 500)


@pytest.mark.parametrize("output", RANKING_FORMATS)
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_every_format_is_read_back_as_it_was(pool: Pool, tmp_path: Path, output: str, levels: int) -> None:
    run, _ = random_case(levels, queries=2, rows=9, depth=9, positives=2, score_levels=levels)
    ranking = ranking_table(of_pool(pool, run))
    path = tmp_path / f"out.{output}.gz"
    write_ranking(path, ranking, pool, "x", output)
    table, counts = read_run(path, pool, 500)
    assert counts["read"] == ranking.num_rows
    for name in ("query", "row", "rank"):
        assert table.column(name).equals(ranking.column(name))
    if output != "trec":  # there ties of escaped ids are a step apart
        assert table.equals(ranking)


TREC = {
    "10 Q0 9 1 high x": ":2 must be 'query Q0 document rank score tag' or .*, got '10 Q0 9 1 high x'",
    "10 Q0 \xff 1 1 x": ":2 is not a whole row in UTF-8",
    "10 Q0 9 1 \xd9\xa1 x": ":2 must be 'query Q0 document rank score tag'",
    "10 Q0 9 1 nan x": r":2: a score must be a finite float32 number \(bad scores: 1\)",
    "10 Q0 9 1 1e39 x": ":2: a score must be a finite float32 number",
    "11 Q0 9 1 1 x": r"1 of 2 entries name a query that pool-\w+ does not have: '11' \(.*bad.trec:2\)",
    "10 Q0 out 1 1 x": r"1 of 2 entries name a document that pool-\w+ does not have: 'out' \(.*:2\).*--allow-unknown",
    "10 Q0 zz 7 9 x": r"bad.trec:2 repeats .*bad.trec:1: query '10', document 'zz' \(repeated entries: 1\)",
}


@pytest.mark.parametrize("line", TREC)
def test_a_bad_line_is_named(pool: Pool, tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.trec").write_bytes(f"10 Q0 zz 1 0.5 x\n{line}\n".encode("latin-1"))
    with pytest.raises(InputError, match=TREC[line]):
        read_run(tmp_path / "bad.trec", pool, 500)


OTHERS = {
    "[]": "must have an entry, got none",
    '{"10": 1}': "query '10' must be an object",
    '{"10": {"9": "high"}}': "query '10', document '9': the score must be a number, got 'high'",
    '{"10": {"9": NaN}}': "query '10', document '9': a score must be a finite",
    '{"10": {"9": 1, "9": 2}}': "must have each key once, got '9' twice",
    '{"10": {"\\ud800": 1}}': "must be a JSON file",
    '{"10": {"9": 1%s}}' % ("0" * 400): "query '10', document '9': a score must be a finite",
    "[" * 100_000: "must be a JSON file",
}


@pytest.mark.parametrize("text", OTHERS)
def test_bad_json_is_refused(pool: Pool, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=OTHERS[text]):
        read_run(tmp_path / "bad.json", pool, 500)


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        (
            {"q_id": ["10"], "text": ["9"], "score": [1.0]},
            "must have one column for the document, got q_id, text, score",
        ),
        (
            {"qid": ["10", None], "docno": ["9", "zz"], "score": [1.0, 2.0]},
            "row 2: ids must be strings or integers, got None",
        ),
        ({"qid": ["10", "10"], "docno": ["9", "9"], "score": [1.0, 2.0]}, "row 2 repeats .* row 1"),
    ],
)
def test_bad_parquet_is_refused(pool: Pool, tmp_path: Path, columns: dict[str, list[Any]], fault: str) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=fault):
        read_run(tmp_path / "bad.parquet", pool, 500)


def test_integer_ids_of_a_table_are_texts(pool: Pool, tmp_path: Path) -> None:
    pl.DataFrame({"qid": [10], "docno": [9], "score": [3]}).write_parquet(tmp_path / "run.parq")
    assert entries(pool, read_run(tmp_path / "run.parq", pool, 500)[0]) == [(0, "9", 3.0, 1)]


def test_what_is_unknown_is_counted_where_it_is_allowed(pool: Pool, tmp_path: Path) -> None:
    run = {"10": {"9": 2.0, "out": 3.0, "nowhere": 4.0}, "?": {"9": 1.0, "nowhere": 1.0}}
    (tmp_path / "run.json.gz").write_bytes(gzip.compress(json.dumps(run).encode()))
    table, counts = read_run(tmp_path / "run.json.gz", pool, 500, allow_unknown=True)
    assert entries(pool, table) == [(0, "9", 2.0, 1)]
    assert (counts["read"], counts["unknown_queries"], counts["unknown_documents"]) == (5, 2, 2)


def test_files_that_cannot_be_read(pool: Pool, tmp_path: Path) -> None:
    whole = gzip.compress(b"10 Q0 9 1 1 x\n" * 100)
    contents = dict.fromkeys(("no.json.gz", "no.parquet"), b"no") | {"empty.trec": b""}
    contents |= {"cut.trec.gz": whole[:-10], "flipped.json.gz": whole[:15] + b"\xff\xff" + whole[17:]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "folder.trec").mkdir()
    for name in (*contents, "list.json", "folder.trec", "none.run", "run.parquet.gz"):
        with pytest.raises(InputError, match=re.escape(name)):
            read_run(tmp_path / name, pool, 500)


@pytest.mark.parametrize("name", ["run.json.gz", "run.trec.gz", "run.parquet"])
def test_a_run_beyond_the_memory_is_refused_before_it_is_held(pool: Pool, tmp_path: Path, name: str) -> None:
    """A file of a few kilobytes that unpacks to many megabytes."""
    path, entries = tmp_path / name, 200_000
    if name == "run.json.gz":
        path.write_bytes(gzip.compress(b'{"10": {' + b'"9": 1, ' * entries + b'"zz": 1}}'))
    elif name == "run.trec.gz":
        path.write_bytes(gzip.compress(b"10 Q0 9 1 1 x\n" * entries))
    else:
        pl.DataFrame({"qid": ["10"] * entries, "docid": ["9"] * entries, "score": [1.0] * entries}).write_parquet(path)
    with pytest.raises(InputError, match=rf"{name} needs more than 16 MiB of memory.*--memory"):
        read_run(path, pool, 500, memory=2**24)
    with pytest.raises(InputError, match="repeats|name a document|got '9' twice"):
        read_run(path, pool, 500)
