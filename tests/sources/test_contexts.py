from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.schema import NO_YEAR
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import QuerySet
from pipeline.sources.contexts import read_contexts
from pipeline.sources.options import Options
from pipeline.sources.registry import open_release
from tests.releases import write_lines
from tests.sources.test_hostile import Build

TEXT = "First we cite [1] and [2], as Smith et al. did. Nothing here. Then {{cite:b}} says so."
SPANS: list[tuple[int, str | None]] = [(14, "a"), (22, "b"), (67, "b"), (70, None)]
ENTRIES: dict[str, Any] = {
    "a": {"link": "11", "ids": {"open_alex_id": "https://openalex.org/W11", "doi": "10.1/A"}},
    "b": {"link": "12", "ids": {"open_alex_id": "https://openalex.org/W12", "doi": "10.1/B"}},
    "c": {"link": None, "ids": {}},
}
SPAN_LISTS = [{"start": start, "end": start + 3, "ref_id": ref} for start, ref in SPANS]
FULL = {
    "paper_id": "0704.0001",
    "body_text": [{"text": TEXT, "cite_spans": SPAN_LISTS}, {"text": None, "cite_spans": None}],
    "bib_entries": ENTRIES,
}
BIBREF = [{"start": start, "attributes": {"ref_id": ref}} for start, ref in SPANS]
ENTRY = [
    {"start": 0, "attributes": {"id": "a", "matched_paper_id": 11}},
    {"start": 0, "attributes": {"id": "b", "matched_paper_id": 12}},
    {"start": 0, "attributes": {"id": "c"}},
]
CONTENT = {
    "text": TEXT,
    "annotations": {"bibref": json.dumps([*BIBREF, {"start": 0}]), "bibentry": json.dumps(ENTRY)},
}
BODY = {"text": TEXT, "annotations": {"bib_ref": BIBREF}}
SENTENCES = ["First we cite [1] and [2], as Smith et al. did.", "Then says so."]


def contexts(folder: Path, *records: Any, **names: str) -> QuerySet:
    every = {name: name for name in ("citing", "cited", "context", "query_id")} | names
    return read_contexts(write_lines(folder / "contexts.jsonl", records), Options(max_text=1_000), every)


@pytest.mark.parametrize(
    ("record", "names", "ids", "year"),
    [
        (FULL, {}, ["W11", "W12"], None),
        (FULL | {"_source_hash": "x"}, {}, ["W11", "W12"], 2007),
        (FULL | {"_source_hash": "x", "paper_id": "hep-th/9901001"}, {}, ["W11", "W12"], 1999),
        (FULL, {"cited": "doi"}, ["10.1/A", "10.1/B"], None),
        (FULL | {"bib_entries": {"a": {"link": "11"}, "b": {"link": "12"}}}, {}, ["11", "12"], None),
        ({"corpusid": 5, "content": CONTENT}, {}, ["11", "12"], None),
        ({"corpusid": 5, "body": BODY, "bibliography": {"annotations": {"bib_entry": ENTRY}}}, {}, ["11", "12"], None),
    ],
)
def test_sentences_of_full_text_that_cite(
    tmp_path: Path, record: dict[str, Any], names: dict[str, str], ids: list[str], year: int | None
) -> None:
    found = contexts(tmp_path, record, {"paper_id": "x", "body_text": []}, **names)
    citing = str(record.get("paper_id", 5))
    first, second = f"{citing}:0", f"{citing}:1"
    assert found.texts == dict(zip([first, second], SENTENCES, strict=True))
    assert list(found.judgements) == [(first, ids[0], 1), (first, ids[1], 1), (second, ids[1], 1)]
    assert found.origins == dict.fromkeys([first, second], (citing, year))
    assert found.noted == {"no_context": 1}


def test_contexts_of_s2ag_and_ours_in_one_file(tmp_path: Path) -> None:
    edge = {"citationid": 9, "citingcorpusid": 1, "citedcorpusid": 2}
    found = contexts(
        tmp_path,
        edge | {"contexts": ["One.", None, "Two."]},
        edge | {"contexts": None},
        edge | {"citationid": None, "citedcorpusid": None, "contexts": ["Three."]},
        {"context": "Four.", "cited": ["2", None], "citing": "1", "year": "in 2019", "query_id": "mine"},
        {"context": "Five.", "cited": 2, "year": None, "id": 7},
        {"context": None, "cited": 2},
        {"body_text": "no list"},
        {"citingcorpusid": 1, "citedcorpusid": 2, "contexts": "Six."},
    )
    assert found.texts == {"9:0": "One.", "9:2": "Two.", "mine": "Four.", "7": "Five.", "1:8:0": "Six."}
    assert found.origins["mine"] == ("1", 2019)
    assert found.noted == {"no_context": 4, "no_cited": 1, "null in cited": 1, "body_text not a list": 1}


def test_odd_parts_of_full_text_cost_no_other_context(tmp_path: Path) -> None:
    spans = [{"start": 3, "ref_id": "b"}, {"start": None, "ref_id": "b"}, None, {"ref_id": "b"}]
    text = {"text": "By [1].", "cite_spans": spans}
    entry = {"start": 0, "attributes": {"id": "b", "matched_paper_id": 9}}
    found = contexts(
        tmp_path,
        {
            "paper_id": "x",
            "body_text": [None, "text", {"text": None}, text],
            "bib_entries": {"b": {"link": 9}, "c": None},
        },
        {"paper_id": "y", "body_text": [text], "bib_entries": None},
        {
            "corpusid": 5,
            "body": {"text": "By [1].", "annotations": {"bib_ref": [{"start": "3", "attributes": {"ref_id": "b"}}, 7]}},
            "bibliography": {"annotations": {"bib_entry": [entry, {"start": 1, "attributes": None}]}},
        },
    )
    assert sorted(found.judgements) == [("5:0", "9", 1), ("x:0", "9", 1)]
    noted = {"null in body_text": 1, "body_text not an object": 1, "null in cite_spans": 2, "start not a number": 4}
    assert found.noted == {**noted, "no_context": 1, "bib_ref not an object": 1}


def test_years_and_dois_of_contexts_are_those_of_the_corpus(
    tmp_path: Path, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    papers = [{"paper_id": f"p{n}", "title": "T", "year": 2010 + n, "doi": f"10.1/{n}"} for n in range(3)]
    write_lines(tmp_path / "papers/a.jsonl", papers)
    cited = {"context": "C", "cited": "doi:10.1/2"}
    mine = [cited | {"q": "q0", "citing": "p1"}, cited | {"q": "q1", "citing": "x"}]
    path = write_lines(tmp_path / "contexts.jsonl", mine)
    artifact = build(open_release("jsonl", tmp_path / "papers", {"contexts": str(path), "columns": "query_id=q"}))
    corpus = Corpus(artifact)
    assert corpus.query_texts.column("query_id").to_pylist() == ["q0", "q1"]
    assert corpus.contexts.to_pylist() == [{"year": 2011, "citing": 1}, {"year": NO_YEAR, "citing": -1}]
    assert np.array_equal(corpus.judgements.column("row"), [2, 2])
    assert artifact.manifest.counts["noted"]["context_without_year"] == 1
    assert "no pool has 1 context without a year" in capsys.readouterr().err
