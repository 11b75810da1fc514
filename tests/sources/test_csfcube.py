from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Corpus
from pipeline.encode.aspire import split_sentences
from pipeline.encode.sentences import SentencesEncoder
from pipeline.sources.csfcube import Csfcube
from pipeline.stages.corpus import corpus_task
from tests.encode.stub import StubEncoder
from tests.studies.facets.collection import QUERIES, annotations, document, edit, write


def change(folder: Path, query: str, **lists: object) -> None:
    path = folder / "test-pid2anns-mine-method.json"
    judged = json.loads(path.read_text())
    judged.setdefault(query, {})
    judged[query] = {name: value for name, value in {**judged[query], **lists}.items() if value is not None}
    edit(path, judged)


def twice(path: Path) -> None:
    """Give an annotation file query 100 again."""
    path.write_text(path.read_text().rstrip()[:-1] + ', "100": {"cands": [], "relevance_adju": []}}')


def test_papers_queries_and_judgements(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    grades = annotations(folder, "method")["100"]["relevance_adju"]
    cands = annotations(folder, "method")["100"]["cands"]
    change(folder, "100", cands=["100", "999", *cands[2:]], relevance_adju=[3, 2, -1, *grades[3:]])
    change(folder, "5", cands=["6"], relevance_adju=[1])
    release = Csfcube(folder)
    lines = (
        gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).decode().replace('"method_label"', '"other_label"', 6)
    )
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    artifact = Runner(tmp_path, Resources(2**30, 1)).make(corpus_task("mine", release))
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    queries = {row["query_id"]: row["text"] for row in corpus.query_texts.to_pylist()}
    assert sorted(queries) == sorted(f"{paper}_{facet}" for facet, papers in QUERIES.items() for paper in papers)
    assert queries["100_method"] == document("100")["sents"][1]
    assert queries["103_background"] == document("103")["sents"][0]  # an objective
    (row,) = corpus.rows_of(["100"])
    assert corpus.take([row], ["abstract"]).to_pylist() == [{"abstract": " ".join(document("100")["sents"])}]
    assert sorted(corpus.ids(corpus.outgoing.of(row))) == sorted(cands[:3])
    assert {name: counts["noted"][name] for name in sorted(counts["noted"]) if not name.startswith("references")} == {
        "candidate_not_judged": 1,
        "judgement_of_the_query_itself": 1,
        "paper_without_sentences": 1,
        "query_without_sentences_of_its_facet": 1,
    }
    assert (counts["judgements"], counts["judgements_of_nothing"]) == (7 * 20 - 3, 1)
    assert corpus.exclusions.num_rows == 7  # each query's own paper


def test_the_authors_names_give_the_same_papers(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    release = Csfcube(folder)
    (batch,) = release.read("docs.jsonl.gz")
    lines = gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).decode()
    for ours, theirs in (("corpusid", "paper_id"), ("sents", "abstract"), ("labels", "pred_labels")):
        lines = lines.replace(f'"{ours}"', f'"{theirs}"')
    (folder / "docs.jsonl.gz").unlink()
    (folder / "abstracts-csfcube-preds.jsonl").write_text(lines)
    (again,) = release.read("abstracts-csfcube-preds.jsonl")
    assert again.papers.equals(batch.papers)


def test_sentences_stay_as_given(tmp_path: Path) -> None:
    """Those that the splitting rule would join or split; texts have spaces between them wherever no encoder splits."""
    folder = write(tmp_path / "in")
    papers = [json.loads(line) for line in gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).splitlines()]
    of = {str(paper["corpusid"]): paper for paper in papers}
    given = {"0": ["We use  trees, i.e.", "forests. And more", " ", "of them"], "1": ["One. And only"]}
    for paper, sents in given.items():
        of[paper] |= {"sents": sents, "labels": ["method_label"] * len(sents)}
    of["100"]["sents"][1] = "We w1 w2. They w3."
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers)).encode()))
    artifact = Runner(tmp_path, Resources(2**30, 1)).make(corpus_task("mine", Csfcube(folder, max_text=60)))
    corpus = Corpus(artifact)
    rows = np.sort(corpus.rows_of(["0", "1", "29", "100"]))
    texts = dict(zip(corpus.ids(rows), (text for block in corpus.texts(rows) for text in block), strict=True))
    assert split_sentences(texts["0"].abstract) == ["We use trees, i.e.", "forests. And more", "of them"]
    assert split_sentences(texts["1"].abstract) == ["One. And only"]
    assert (split_sentences(texts["29"].abstract), texts["0"].abstract) == (
        [],
        "We use trees, i.e. forests. And more of them",
    )
    shown = corpus.take(rows, ["paper_id", "abstract"]).to_pylist()
    assert {row["paper_id"]: row["abstract"] for row in shown} == {name: text.abstract for name, text in texts.items()}
    assert corpus.attributes["abstract_chars"][rows].tolist() == [
        len(texts[each].abstract) for each in corpus.ids(rows)
    ]
    place = corpus.query_texts.column("query_id").to_pylist().index("100_method")
    assert corpus.query_texts.column("text")[place].as_py() == "We w1 w2. They w3."
    (query,) = corpus.ad_hoc(np.array([place]))
    assert split_sentences(query.title) == ["We w1 w2. They w3."]
    encoder = SentencesEncoder(StubEncoder(4))
    assert [len(encoder.encode([text], role)) for text, role in ((texts["0"], "paper"), (query, "query"))] == [3, 1]


def test_queries_that_are_not_judged_yet(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    for path in folder.glob("*anns*"):
        path.unlink()
    with pytest.raises(InputError, match=r"has neither \*pid2anns\*-FACET.json nor queries.tsv"):
        Csfcube(folder).queries()
    (folder / "queries.tsv").write_text("100\tmethod\n101\tresult\n")
    found = Csfcube(folder).queries()
    assert (found.query_ids, found.judgements) == (["100_method", "101_result"], [])
    (folder / "queries.tsv").write_text("100\tmethods\n")
    with pytest.raises(InputError, match=r"queries.tsv:1 must be one of .*, got 'methods'. Did you mean 'method'"):
        Csfcube(folder).queries()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: change(f, "999", cands=["1"], relevance_adju=[1]), r"query 999 \(method\) must be a paper of"),
        (lambda f: change(f, "100", relevance_adju=None), "query 100 of .* has no relevance_adju"),
        (lambda f: change(f, "100", cands=None), "query 100 of .* has no cands"),
        (lambda f: change(f, "100", cands=["1"] * 20), "query 100 of .* has candidate 1 twice"),
        (lambda f: change(f, "100", relevance_ann1=[1]), "relevance_ann1 of query 100 of .* 20 grades, got 1"),
        (lambda f: change(f, "100", relevance_adju=[4] * 20), "query 100 of .* must be -1 .* to 3, got 4"),
        (lambda f: edit(f / "test-pid2anns-mine-method.json", [1]), "method.json must be an annotation file"),
        (lambda f: twice(f / "test-pid2anns-mine-method.json"), "method.json must have each key once, got '100' twice"),
        (lambda f: edit(f / "test-pid2anns-mine-aim.json", {}), "aim.json must be one of background, .* got 'aim'"),
        (
            lambda f: (f / "cited_pairs.tsv").write_text("1\t2\n3\n"),
            "cited_pairs.tsv:2 must be citing .* got 1 columns",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    folder = write(tmp_path / "in")
    spoil(folder)
    with pytest.raises(InputError, match=message):
        Runner(tmp_path, Resources(2**30, 1)).make(corpus_task("mine", Csfcube(folder)))


def test_bad_papers_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = ['{"corpusid": 1, "sents": ["A."], "labels": []}', '{"sents": []}', "{", '{"corpusid": 2}']
    (folder / "docs.jsonl").write_text("\n".join(lines))
    (batch,) = Csfcube(folder).read("docs.jsonl")
    assert batch.dropped == {"labels_not_of_sentences": 1, "no_paper_id": 1, "bad_json": 1}
    assert batch.papers.column("paper_id").to_pylist() == ["2"]
