from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.corpus.reader import Corpus
from pipeline.sources.beir import Beir, read_judgements
from tests.cli.run import mdcr
from tests.releases import read, write_lines

DOCUMENTS = [{"_id": "d2", "title": "T", "text": "x  y"}, {"_id": "d1", "text": "only text"}, {"_id": ""}]
QUERIES = [("q9", "later"), ("q1", " first "), ("q5", "unjudged")]
QRELS = [("q9", "d1", 1), ("q1", "d2", 2), ("q1", "d1", 0), ("q1", "gone", 1)]
KEEP = "--keep-identical-id"
DOUBLES = (
    [{"_id": "d2", "title": "T", "text": "x y"}, {"_id": "d1", "text": "other"}],
    [("q1", "first"), ("q9", "another")],
    [("q9", "d1", 1), ("q1", "d2", 0), ("q1", "d2", 2)],
)


def write_beir(folder: Path, more: Any = ([], [], []), *, ending: str = "jsonl") -> Path:
    """Write a folder, with ``more`` documents, queries and judgements after its own."""
    documents, queries, qrels = (own + added for own, added in zip((DOCUMENTS, QUERIES, QRELS), more, strict=True))
    write_lines(folder / f"corpus.{ending}", documents)
    write_lines(folder / f"queries.{ending}", [{"_id": name, "text": text} for name, text in queries])
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_judgements_of_another_collection_are_refused(tmp_path: Path, build: Callable[[Any], Artifact]) -> None:
    folder = write_beir(tmp_path / "beir")
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1-0-120\t1\nq1\td2-0-99\t1\n")
    with pytest.raises(InputError, match="0 of 2 judged documents are in the corpus: judged is 'd1-0-120'.*'d1'"):
        build(Beir(folder))


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("doubled", [False, True])
def test_documents_queries_and_judgements(
    tmp_path: Path, build: Callable[[Any], Artifact], ending: str, doubled: bool
) -> None:
    """Of doubles the first is kept, and the others are counted."""
    artifact = build(Beir(write_beir(tmp_path / "beir", *[DOUBLES] * doubled, ending=ending)))
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    papers = corpus.take(np.arange(len(corpus)), ["paper_id", "title", "abstract"])
    assert [tuple(row.values()) for row in papers.to_pylist()] == [("d1", "", "only text"), ("d2", "T", "x y")]
    assert [tuple(row.values()) for row in corpus.query_texts.to_pylist()] == [("q1", "first"), ("q9", "later")]
    assert [tuple(row.values()) for row in corpus.judgements.to_pylist()] == [(0, 0, 0), (0, 1, 2), (1, 0, 1)]
    assert (counts["queries"], counts["judgements"], counts["judgements_of_nothing"]) == (2, 3, 1)
    dropped, noted, examples = {"no_paper_id": 1}, {"query_not_judged": 1}, ["no_paper_id"]
    if doubled:
        dropped |= {"duplicate_id": 1, "duplicate_id_other_text": 1}
        noted |= {"judgement_repeated": 2, "judgement_repeated_other_grade": 1}
        noted |= {"query_repeated": 1, "query_repeated_other_text": 1}
        examples = [f"query_repeated_other_text: queries.{ending}:5: q9", f"duplicate_id: corpus.{ending}: d1"]
        examples.append("judgement_repeated_other_grade: test.tsv:7: q1 d2")
    assert (counts["dropped"], counts["noted"]) == (dropped, noted)
    assert all(example in "\n".join(counts["examples"]) for example in examples)


@pytest.mark.parametrize("grade", ["--1", "70000", "-40000", "1" * 5_000, "²", "1.5", "1e3", "", "0x1", "1 "])
@pytest.mark.parametrize("form", ["q1\td1\t{}\n", "q1 0 d1 {}\n"])
def test_a_grade_is_a_small_integer(tmp_path: Path, grade: str, form: str) -> None:
    folder = write_beir(tmp_path)
    (folder / "qrels" / "test.tsv").write_text(form.replace("q1", "q9").format(1) + form.format(grade))
    if grade == "1 ":
        queries = Beir(folder).queries()
        assert queries is not None
        assert list(queries.judgements) == [("q9", "d1", 1), ("q1", "d1", 1)]
    else:
        with pytest.raises(InputError, match=r"test\.tsv:2 is not a judgement"):
            Beir(folder).queries()


def test_columns_of_trec_have_any_white_space_between_them_and_those_of_beir_a_tab(tmp_path: Path) -> None:
    for name, text, expected in (
        ("qrels.txt", "\ufeffq 0\td 1\nq\t0\te 2\n q\tQ0  f\t-1 \n", [("q", "d", 1), ("q", "e", 2), ("q", "f", -1)]),
        ("test.tsv", "a b\td c\t1\n#q\td\t2\n", [("a b", "d c", 1), ("#q", "d", 2)]),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert [(*pair, grade) for _, pair, grade in read_judgements(tmp_path / name)] == expected


@pytest.mark.parametrize("names", [("corpus.tsv", "queries.tsv"), ("collection.tsv.gz", "queries.dev.tsv")])
@pytest.mark.parametrize("qrels", ["qrels/dev.tsv", "qrels.dev.txt"])
def test_trec_kin_of_a_beir_folder(tmp_path: Path, names: tuple[str, str], qrels: str) -> None:
    texts = ("d1\tfirst  text\nd2\ta title\tand text\nbroken\nd3\t\xff\n", "q1\tasked\nq2\tunjudged\n")
    for name, text in zip(names, texts, strict=True):
        data = text.encode("latin-1")
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / qrels).parent.mkdir(exist_ok=True)
    (tmp_path / qrels).write_text("q1 0 d2 2\nq1 Q0 d1 -1\n")
    release = Beir(tmp_path, judged="dev")
    batch = next(release.read(release.parts()[0]))
    papers = [(row["paper_id"], row["title"], row["abstract"]) for row in batch.papers.to_pylist()]
    assert papers == [("d1", "", "first text"), ("d2", "a title", "and text")]
    assert batch.dropped == {"bad_columns": 1, "bad_utf8": 1}
    queries = release.queries()
    assert queries is not None
    assert queries.texts == {"q1": "asked"}
    assert queries.judgements == [("q1", "d2", 2), ("q1", "d1", -1)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels/test.csv", "query-id,corpus-id,score\nq1,d1,1\n"),
        ("qrels.test.jsonl", '{"query_id": "q1", "doc_id": "d1", "score": 1.0}\n'),
        ("qrels/test.trec", "# ours\nq1 0 d1 1\n"),
    ],
)
def test_judgements_of_any_ending(tmp_path: Path, name: str, content: str) -> None:
    folder = write_beir(tmp_path)
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "test.all.tsv")
    (folder / name).write_text(content)
    queries = Beir(folder).queries()
    assert queries is not None
    assert list(queries.judgements) == [("q1", "d1", 1)]


def test_queries_without_a_text_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_beir(tmp_path)
    write_lines(folder / "queries.jsonl", [{"_id": "q1", "text": None}, {"_id": "q9", "text": "later"}])
    queries = Beir(folder).queries()
    assert queries is not None
    assert queries.noted["judged_query_empty"] == 1
    assert "without a text: 1 judged query of" in capsys.readouterr().err
    write_lines(folder / "queries.jsonl", [{"_id": name, "text": ""} for name in ("q1", "q9")])
    with pytest.raises(InputError, match="has no text of 2 judged queries"):
        Beir(folder).queries()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("doc_id", "title", "abstract"), "ids and texts are doc_id, abstract"),
        (("id", "heading", "contents"), "ids and texts are id, contents"),
        (("_id", "title", "metadata"), "corpus.jsonl has titles alone"),
        (("_id", "title", "passage"), "has text or contents .*; the first has _id, passage, title"),
        (("name", "title", "text"), "has _id or id .*; the first has name, text, title"),
    ],
)
def test_keys_of_other_tools_are_read_and_said_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: tuple[str, ...], said: str
) -> None:
    folder = write_beir(tmp_path)
    plain = Beir(folder).identity()
    write_lines(folder / "corpus.jsonl", [dict(zip(keys, (name, "T", ["a", "b"]), strict=True)) for name in "xy"])
    assert ("keys" in Beir(folder).identity()) == (keys[0] in ("doc_id", "id"))
    assert "keys" not in plain
    if "first has" in said:
        with pytest.raises(InputError, match=said):
            read(Beir(folder))
    else:
        rows, _ = read(Beir(folder))
        assert [row["abstract"] for row in rows] == ["" if keys[2] == "metadata" else "a b"] * 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(("name", "options", "excluded"), [("cisi", "", 0), ("Quora", "", 2), ("quora", KEEP, 0)])
def test_equal_ids_exclude_only_where_the_protocol_says_so(
    tmp_path: Path, name: str, options: str, excluded: int
) -> None:
    """Queries d1 and d2 are other things than the documents of these ids; d2 is relevant to the query d2."""
    more = ([], [("d1", "a"), ("d2", "b")], [("d1", "d2", 1), ("d2", "d2", 1)])
    folder = write_beir(tmp_path / name, more)
    made = mdcr(tmp_path, "corpus", "--source", "beir", "--input", str(folder), "--corpus", "c")
    assert made.returncode == 0, made.stderr
    built = mdcr(tmp_path, "pool", "--corpus", "c", *options.split())
    line = "left out: 2 candidates with the id of their query, 1 of them positives; --keep-identical-id keeps them"
    assert (line in built.stderr) == bool(excluded), built.stderr
    (manifest,) = (tmp_path / "corpora" / "pools").glob("*/manifest.json")
    assert json.loads(manifest.read_bytes())["counts"]["excluded_self"] == excluded
