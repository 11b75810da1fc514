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
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Corpus
from pipeline.encode.aspire import split_sentences
from pipeline.encode.kinds import Sentences
from pipeline.sources.csfcube import Csfcube
from tests.encode.stub import Stub
from tests.studies.facets.collection import QUERIES, annotations, document, edit, write

Build = Callable[[Any], Artifact]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "in")


def change(folder: Path, query: str, **lists: object) -> None:
    """Set lists of a query of the facet method; None removes one."""
    judged = annotations(folder, "method")
    merged = {**judged.get(query, {}), **lists}
    judged[query] = {name: value for name, value in merged.items() if value is not None}
    edit(folder / "test-pid2anns-mine-method.json", judged)


def documents(folder: Path) -> str:
    return gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).decode()


def test_papers_queries_and_judgements(folder: Path, build: Build) -> None:
    judged = annotations(folder, "method")["100"]
    grades, cands = judged["relevance_adju"], judged["cands"]
    change(folder, "100", cands=["100", "999", *cands[2:]], relevance_adju=[3, 2, -1, *grades[3:]])
    change(folder, "5", cands=["6"], relevance_adju=[1])
    lines = documents(folder).replace('"method_label"', '"other_label"', 6)
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    artifact = build(Csfcube(folder))
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    queries = {row["query_id"]: row["text"] for row in corpus.query_texts.to_pylist()}
    assert sorted(queries) == sorted(f"{paper}_{facet}" for facet, papers in QUERIES.items() for paper in papers)
    assert queries["100_method"] == document("100")["sents"][1]
    assert queries["103_background"] == document("103")["sents"][0]  # an objective
    (row,) = corpus.rows_of(["100"])
    assert corpus.take([row], ["abstract"]).to_pylist() == [{"abstract": " ".join(document("100")["sents"])}]
    assert sorted(corpus.ids(corpus.outgoing.of(row))) == sorted(cands[:3])
    assert {name: count for name, count in counts["noted"].items() if not name.startswith("references")} == {
        "candidate_not_judged": 1,
        "judgement_of_the_query_itself": 1,
        "paper_without_sentences": 1,
        "query_without_sentences_of_its_facet": 1,
    }
    assert (counts["judgements"], counts["judgements_of_nothing"]) == (7 * 20 - 3, 1)
    assert corpus.exclusions.num_rows == 7  # each query's own paper


def test_the_authors_names_give_the_same_papers(folder: Path) -> None:
    (batch,) = Csfcube(folder).read("docs.jsonl.gz")
    lines = documents(folder)
    for ours, theirs in (("corpusid", "paper_id"), ("sents", "abstract"), ("labels", "pred_labels")):
        lines = lines.replace(f'"{ours}"', f'"{theirs}"')
    (folder / "abstracts-csfcube-preds.jsonl").write_text(lines)
    (again,) = Csfcube(folder).read("abstracts-csfcube-preds.jsonl")
    assert again.papers.equals(batch.papers)


def test_sentences_stay_as_given(folder: Path, build: Build) -> None:
    """Those that the splitting rule would join or split; texts have spaces between them wherever no encoder splits."""
    papers = {str(paper["corpusid"]): paper for paper in map(json.loads, documents(folder).splitlines())}
    given = {"0": ["We use  trees, i.e.", "forests. And more", " ", "of them"], "1": ["One. And only"]}
    for paper, sents in given.items():
        papers[paper] |= {"sents": sents, "labels": ["method_label"] * len(sents)}
    papers["100"]["sents"][1] = "We w1 w2. They w3."
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers.values())).encode()))
    corpus = Corpus(build(Csfcube(folder, max_text=60)))
    rows = np.sort(corpus.rows_of(["0", "1", "29", "100"]))
    texts = dict(zip(corpus.ids(rows), (text for block in corpus.texts(rows) for text in block), strict=True))
    assert split_sentences(texts["0"].abstract) == ["We use trees, i.e.", "forests. And more", "of them"]
    assert split_sentences(texts["1"].abstract) == ["One. And only"]
    assert split_sentences(texts["29"].abstract) == []
    assert texts["0"].abstract == "We use trees, i.e. forests. And more of them"
    shown = corpus.take(rows, ["paper_id", "abstract"]).to_pylist()
    assert {row["paper_id"]: row["abstract"] for row in shown} == {name: text.abstract for name, text in texts.items()}
    lengths = [len(texts[paper].abstract) for paper in corpus.ids(rows)]
    assert corpus.attributes["abstract_chars"][rows].tolist() == lengths
    place = corpus.query_texts.column("query_id").to_pylist().index("100_method")
    assert corpus.query_texts.column("text")[place].as_py() == "We w1 w2. They w3."
    (query,) = corpus.ad_hoc(np.array([place]))
    assert split_sentences(query.title) == ["We w1 w2. They w3."]
    encoder = Sentences(encoder=Stub(dimension=4)).load(None, Resources())
    assert [len(encoder.encode([text], role)) for text, role in ((texts["0"], "paper"), (query, "query"))] == [3, 1]


def test_queries_that_are_not_judged_yet(folder: Path) -> None:
    for path in folder.glob("*anns*"):
        path.unlink()
    with pytest.raises(InputError, match=r"has neither \*pid2anns\*-FACET.json nor queries.tsv"):
        Csfcube(folder).queries()
    (folder / "queries.tsv").write_text("100\tmethod\n101\tresult\n")
    queries = Csfcube(folder).queries()
    assert (queries.query_ids, queries.judgements) == (["100_method", "101_result"], [])
    (folder / "queries.tsv").write_text("100\tmethods\n")
    with pytest.raises(InputError, match=r"queries.tsv:1 must be one of .*, got 'methods'. Did you mean 'method'"):
        Csfcube(folder).queries()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: change(f, "999", cands=["1"], relevance_adju=[1]), r"query 999 \(method\) must be a paper of"),
        (lambda f: change(f, "100", relevance_adju=None), "query 100 of .* has no relevance_adju"),
        (lambda f: change(f, "100", relevance_ann1=[1]), "relevance_ann1 of query 100 of .* 20 grades, got 1"),
        (lambda f: change(f, "100", relevance_adju=[4] * 20), "query 100 of .* must be -1 .* to 3, got 4"),
        (lambda f: edit(f / "test-pid2anns-mine-method.json", [1]), "method.json must be an annotation file"),
        (lambda f: edit(f / "test-pid2anns-mine-aim.json", {}), "aim.json must be one of background, .* got 'aim'"),
        (lambda f: (f / "cited_pairs.tsv").write_text("1\t2\n3\n"), "cited_pairs.tsv:2 must be citing .* got 1 col"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, build: Build, spoil: Callable[[Path], object], message: str) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=message):
        build(Csfcube(folder))


def test_bad_papers_are_counted(tmp_path: Path) -> None:
    lines = ['{"corpusid": 1, "sents": ["A."], "labels": []}', '{"sents": []}', "{", '{"corpusid": 2}']
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    (batch,) = Csfcube(tmp_path).read("docs.jsonl")
    assert batch.dropped == {"labels_not_of_sentences": 1, "no_paper_id": 1, "bad_json": 1}
    assert batch.papers.column("paper_id").to_pylist() == ["2"]
