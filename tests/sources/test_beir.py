from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Corpus
from pipeline.sources.beir import Beir
from pipeline.stages.corpus import corpus_task


def write_beir(folder: Path, *, compressed: bool = False) -> Path:
    (folder / "qrels").mkdir(parents=True)
    texts = {
        "corpus": [{"_id": "d2", "title": "T", "text": "x  y"}, {"_id": "d1", "text": "only text"}, {"_id": ""}],
        "queries": [
            {"_id": "q9", "text": "later"},
            {"_id": "q1", "text": " first "},
            {"_id": "q5", "text": "unjudged"},
        ],
    }
    for name, records in texts.items():
        data = "".join(json.dumps(r) + "\n" for r in records).encode()
        if compressed:
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{name}.jsonl").write_bytes(data)
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq9\td1\t1\nq1\td2\t2\nq1\td1\t0\nq1\tgone\t1\n"
    )
    return folder


@pytest.mark.parametrize("compressed", [False, True])
def test_documents_queries_and_judgements(tmp_path: Path, compressed: bool) -> None:
    release = Beir(write_beir(tmp_path / "beir", compressed=compressed))
    artifact = Runner(tmp_path, Resources(2**30, 1)).make(corpus_task("b", release))
    corpus = Corpus(artifact)
    assert corpus.ids(np.arange(2)) == ["d1", "d2"]
    assert corpus.take(np.arange(2), ["title", "abstract"]).to_pylist() == [
        {"title": "", "abstract": "only text"},
        {"title": "T", "abstract": "x y"},
    ]
    assert corpus.query_texts.to_pylist() == [
        {"query_id": "q1", "text": "first"},
        {"query_id": "q9", "text": "later"},
    ]
    assert [tuple(r.values()) for r in corpus.judgements.to_pylist()] == [(0, 0, 0), (0, 1, 2), (1, 0, 1)]
    counts = artifact.manifest.counts
    assert counts["dropped"] == {"no_paper_id": 1}
    assert (counts["queries"], counts["judgements"], counts["judgements_of_nothing"]) == (2, 3, 1)


def test_what_is_missing_or_malformed_is_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path)
    with pytest.raises(InputError, match="no judgements of split 'tset'.*Did you mean 'test'"):
        Beir(folder, "tset").identity()
    (folder / "qrels" / "test.tsv").write_text("q1 d1 high\n")
    with pytest.raises(InputError, match=r"test.tsv:1 is not a judgement"):
        Beir(folder).queries()
    (folder / "qrels" / "test.tsv").write_text("q7\td1\t1\n")
    with pytest.raises(InputError, match="lacks 1 judged queries, first 'q7'"):
        Beir(folder).queries()
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(InputError, match="holds no BEIR corpus"):
        Beir(folder).parts()


@pytest.mark.parametrize("names", [("corpus.tsv", "queries.tsv"), ("collection.tsv.gz", "queries.dev.tsv")])
@pytest.mark.parametrize("qrels", ["qrels/dev.tsv", "qrels.dev.txt"])
def test_trec_kin_of_a_beir_folder(tmp_path: Path, names: tuple[str, str], qrels: str) -> None:
    texts = {
        names[0]: "d1\tfirst  text\nd2\ta title\tand text\nbroken\nd3\t\xff\n",
        names[1]: "q1\tasked\nq2\tunjudged\n",
    }
    for name, text in texts.items():
        data = text.encode("latin-1")
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / qrels).parent.mkdir(exist_ok=True)
    (tmp_path / qrels).write_text("q1 0 d2 2\nq1 Q0 d1 -1\n")
    release = Beir(tmp_path, "dev")
    batch = next(release.read(release.parts()[0]))
    found = [(row["paper_id"], row["title"], row["abstract"]) for row in batch.papers.to_pylist()]
    assert found == [("d1", "", "first text"), ("d2", "a title", "and text")]
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
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": 5}\n')
    with pytest.raises(InputError, match=r"queries.jsonl:1 is not a query \(wrong_type"):
        Beir(folder).queries()
