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
from pipeline.sources.beir import Beir
from tests.releases import write_lines

DOCUMENTS = [{"_id": "d2", "title": "T", "text": "x  y"}, {"_id": "d1", "text": "only text"}, {"_id": ""}]
QUERIES = [("q9", "later"), ("q1", " first "), ("q5", "unjudged")]


def write_beir(folder: Path, *, ending: str = "jsonl") -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / f"corpus.{ending}", DOCUMENTS)
    write_lines(folder / f"queries.{ending}", [{"_id": name, "text": text} for name, text in QUERIES])
    lines = "query-id\tcorpus-id\tscore\nq9\td1\t1\nq1\td2\t2\nq1\td1\t0\nq1\tgone\t1\n"
    (folder / "qrels" / "test.tsv").write_text(lines)
    return folder


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_documents_queries_and_judgements(tmp_path: Path, build: Callable[[Any], Artifact], ending: str) -> None:
    artifact = build(Beir(write_beir(tmp_path / "beir", ending=ending)))
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    papers = corpus.take(np.arange(len(corpus)), ["paper_id", "title", "abstract"])
    assert [tuple(row.values()) for row in papers.to_pylist()] == [("d1", "", "only text"), ("d2", "T", "x y")]
    assert [tuple(row.values()) for row in corpus.query_texts.to_pylist()] == [("q1", "first"), ("q9", "later")]
    assert [tuple(row.values()) for row in corpus.judgements.to_pylist()] == [(0, 0, 0), (0, 1, 2), (1, 0, 1)]
    assert counts["dropped"] == {"no_paper_id": 1}
    assert (counts["queries"], counts["judgements"], counts["judgements_of_nothing"]) == (2, 3, 1)


def test_what_is_missing_or_malformed_is_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path)
    with pytest.raises(InputError, match="no judgements of split 'tset'.*Did you mean 'test'"):
        Beir(folder, "tset").identity()
    for text, message in (
        ("q1 d1 high\n", r"test.tsv:1 is not a judgement"),
        ("q7\td1\t1\n", "lacks 1 judged queries, first 'q7'"),
    ):
        (folder / "qrels" / "test.tsv").write_text(text)
        with pytest.raises(InputError, match=message):
            Beir(folder).queries()
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(InputError, match="holds no BEIR corpus"):
        Beir(folder).parts()


@pytest.mark.parametrize("names", [("corpus.tsv", "queries.tsv"), ("collection.tsv.gz", "queries.dev.tsv")])
@pytest.mark.parametrize("qrels", ["qrels/dev.tsv", "qrels.dev.txt"])
def test_trec_kin_of_a_beir_folder(tmp_path: Path, names: tuple[str, str], qrels: str) -> None:
    texts = ("d1\tfirst  text\nd2\ta title\tand text\nbroken\nd3\t\xff\n", "q1\tasked\nq2\tunjudged\n")
    for name, text in zip(names, texts, strict=True):
        data = text.encode("latin-1")
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / qrels).parent.mkdir(exist_ok=True)
    (tmp_path / qrels).write_text("q1 0 d2 2\nq1 Q0 d1 -1\n")
    release = Beir(tmp_path, "dev")
    batch = next(release.read(release.parts()[0]))
    papers = [(row["paper_id"], row["title"], row["abstract"]) for row in batch.papers.to_pylist()]
    assert papers == [("d1", "", "first text"), ("d2", "a title", "and text")]
    assert batch.dropped == {"bad_columns": 1, "bad_utf8": 1}
    queries = release.queries()
    assert queries is not None
    assert (queries.query_ids, queries.texts) == (["q1"], ["asked"])
    assert queries.judgements == [("q1", "d2", 2), ("q1", "d1", -1)]


def test_a_document_of_the_wrong_type_is_dropped_and_a_query_refused(tmp_path: Path) -> None:
    folder = write_beir(tmp_path)
    (folder / "corpus.jsonl").write_text('{"_id": 7, "title": 1}\n{"_id": 8, "text": null}\nnull\n')
    batch = next(Beir(folder).read("corpus.jsonl"))
    assert batch.papers.column("paper_id").to_pylist() == ["8"]
    assert batch.dropped == {"wrong_type": 2}
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": 5}) + "\n")
    with pytest.raises(InputError, match=r"queries.jsonl:1 is not a query \(wrong_type"):
        Beir(folder).queries()
