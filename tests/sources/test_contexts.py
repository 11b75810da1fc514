from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import QuerySet
from pipeline.sources.contexts import read_contexts
from pipeline.sources.options import Options
from pipeline.sources.registry import open_release
from tests.releases import write_lines
from tests.sources.test_hostile import Build

TEXT = "First we cite [1] and [2], as Smith et al. did. Nothing here. Then {{cite:b}} says so."
SPANS = [{"start": start, "ref_id": ref} for start, ref in ((14, "a"), (22, "b"), (67, "b"), (70, None))]
LINKS: dict[str, Any] = {
    "a": {"link": "11", "ids": {"open_alex_id": "https://openalex.org/W11", "doi": "10.1/A"}},
    "b": {"link": "12", "ids": {"open_alex_id": "https://openalex.org/W12", "doi": "10.1/B"}},
}
FULL = {"paper_id": "5", "body_text": [{"text": TEXT, "cite_spans": SPANS}], "bib_entries": LINKS}
REFS = [{"start": span["start"], "attributes": {"ref_id": span["ref_id"]}} for span in SPANS]
ENTRY = [{"start": 0, "attributes": {"id": ref, "matched_paper_id": paper}} for ref, paper in (("a", 11), ("b", 12))]
CONTENT = {"text": TEXT, "annotations": {"bibref": json.dumps(REFS), "bibentry": json.dumps(ENTRY)}}
BODY = {"text": TEXT, "annotations": {"bib_ref": REFS}}


def contexts(folder: Path, *records: Any, **names: str) -> QuerySet:
    every = {name: name for name in ("citing", "cited", "context", "query_id")} | names
    return read_contexts(write_lines(folder / "contexts.jsonl", records), Options(max_text=1_000), every)


@pytest.mark.parametrize(
    ("record", "kind", "ids"),
    [
        (FULL, "open_alex_id", ["W11", "W12"]),
        (FULL, "doi", ["10.1/A", "10.1/B"]),
        (FULL, "mag_id", ["11", "12"]),
        ({"corpusid": 5, "content": CONTENT}, "", ["11", "12"]),
        ({"corpusid": 5, "body": BODY, "bibliography": {"annotations": {"bib_entry": ENTRY}}}, "", ["11", "12"]),
    ],
)
def test_a_script_makes_contexts_of_full_text(
    tmp_path: Path, record: dict[str, Any], kind: str, ids: list[str]
) -> None:
    with pytest.raises(InputError, match="must hold a context.*docs/full_text_contexts.py"):
        contexts(tmp_path, record)
    path = write_lines(tmp_path / "full.jsonl.gz", [record])
    script = Path(__file__).parents[2] / "docs/full_text_contexts.py"
    made = subprocess.run([sys.executable, script, path, kind], capture_output=True, text=True, check=True)
    found = contexts(tmp_path, *map(json.loads, made.stdout.splitlines()))
    first, second = "First we cite [1] and [2], as Smith et al. did.", "Then says so."
    assert found.texts == {"5:1": first, "5:2": second}
    assert list(found.judgements) == [("5:1", ids[0], 1), ("5:1", ids[1], 1), ("5:2", ids[1], 1)]


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
        {"citingcorpusid": 1, "citedcorpusid": 2, "contexts": "Six."},
    )
    assert found.texts == {"9:0": "One.", "9:2": "Two.", "mine": "Four.", "7": "Five.", "1:7:0": "Six."}
    assert found.origins["mine"] == ("1", 2019)
    assert found.noted == {"no_context": 3, "no_cited": 1, "null in cited": 1}


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
