"""``mdcr show corpus``: the counts of a corpus, as data and as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pipeline.corpus.reader import Corpus
from pipeline.scores.profile import profile, profile_tables
from pipeline.scores.render import render_table
from tests.builders import make_corpus

LONG = "An abstract of more than thirty characters."
PAPERS: list[dict[str, Any]] = [
    {"paper_id": "1", "title": "A title", "abstract": LONG, "year": 1987, "fields": ["Physics"], "n_outbound": 4},
    {"paper_id": "2", "title": "Another", "abstract": "", "year": 1987, "fields": ["Physics", "Art"]},
    {"paper_id": "3", "title": "Editorial", "abstract": "short", "year": 2019, "fields": [], "n_outbound": 2},
    {"paper_id": "4", "title": "Editorial", "abstract": LONG, "year": 2019, "fields": ["Art"], "n_inbound": 9},
    {"paper_id": "5", "title": "", "abstract": LONG, "year": None, "fields": []},
]
CITATIONS = [("1", "2"), ("1", "3"), ("3", "4"), ("1", "4")]


def text_of(found: dict[str, Any]) -> str:
    return "\n".join(map(render_table, profile_tables(found)))


def test_counts_are_what_the_papers_say(tmp_path: Path) -> None:
    found = profile(Corpus(make_corpus(tmp_path, PAPERS, CITATIONS)), "tiny")
    assert (found["corpus"], found["source"], found["papers"], found["prefiltered"]) == ("tiny", "test", 5, 1)
    assert found["prefilter"]["dropped_no_year"] == 1
    assert [found[f"with_{name}"] for name in ("title", "abstract", "doi")] == [4, 4, 0]
    assert found["years"] == [
        {"year": 1987, "papers": 2, "with_abstract": 1, "prefiltered": 1},
        {"year": 2019, "papers": 2, "with_abstract": 2, "prefiltered": 0},
        {"year": None, "papers": 1, "with_abstract": 1, "prefiltered": 0},
    ]
    fields = {row["field"]: (row["papers"], row["with_abstract"], row["prefiltered"]) for row in found["fields"]}
    assert [fields[name] for name in ("Physics", "Art", None)] == [(2, 1, 1), (2, 1, 0), (2, 2, 0)]
    assert sum(papers for papers, _, _ in fields.values()) == 6
    assert found["references"] == {"listed": 6, "in_corpus": 4}
    json.dumps(found)
    text = text_of({**found, "dropped": {"bad_json": 3}, "noted": {"unknown_field: Law": 4_000}})
    for line in (
        r"with an abstract +4 +80.0%",
        r"references in the corpus +4 +66.7%",
        r"1987 +2 +50% +1",
        r"none +1 +100% +0",
        r"Physics +2 +50% +1",
        r"bad json +3",
        r"unknown field: Law +4,000",
    ):
        assert re.search(line, text), line


def test_an_empty_corpus_has_a_profile(tmp_path: Path) -> None:
    assert "papers" in text_of(profile(Corpus(make_corpus(tmp_path, [])), "none"))


def test_a_collection_with_queries_of_its_own_is_not_prefiltered(tmp_path: Path) -> None:
    papers = [{"paper_id": str(number), "title": "A title", "abstract": LONG, "year": None} for number in range(3)]
    given = make_corpus(tmp_path, papers, query_texts={"q1": "a question"}, judgements=[("q1", "1", 1)])
    whole = profile(Corpus(given), "given")
    assert (whole["papers"], whole["prefiltered"], whole["prefilter"]) == (3, None, {})
    assert whole["years"] == [{"year": None, "papers": 3, "with_abstract": 3}]
    assert not {"prefilter", "dropped"} & {*text_of(whole).split()}
