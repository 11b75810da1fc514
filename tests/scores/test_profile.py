from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.corpus.reader import Corpus
from pipeline.scores.profile import QUANTILES, _decades, _distribution, profile, profile_tables
from pipeline.scores.render import render_table
from tests.builders import make_corpus

LONG = "An abstract of more than thirty characters."
PAPERS: list[dict[str, Any]] = [
    {
        "paper_id": "1",
        "title": "One title of some length",
        "abstract": LONG,
        "year": 1987,
        "fields": ["Physics"],
        "n_outbound": 4,
    },
    {"paper_id": "2", "title": "one TITLE of some length!", "abstract": "", "year": 1987, "fields": ["Physics", "Art"]},
    {"paper_id": "3", "title": "Editorial", "abstract": "short", "year": 2019, "fields": [], "n_outbound": 2},
    {"paper_id": "4", "title": "Editorial", "abstract": LONG, "year": 2019, "fields": ["Art"], "n_inbound": 9},
    {"paper_id": "5", "title": "", "abstract": LONG, "year": None, "fields": []},
]
CITATIONS = [("1", "2"), ("1", "3"), ("3", "4"), ("1", "4")]


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    return profile(Corpus(make_corpus(tmp_path, PAPERS, CITATIONS)), "tiny", 2**20)


def test_counts_are_what_the_papers_say(found: dict[str, Any]) -> None:
    assert (found["corpus"], found["source"], found["papers"], found["prefiltered"]) == ("tiny", "test", 5, 1)
    assert found["prefilter"]["dropped_no_year"] == 1
    assert {k: v for k, v in found["text"].items() if isinstance(v, int)} == {
        "title": 4,
        "abstract": 4,
        "abstract_of_30_chars": 3,
    }
    assert found["text"]["abstract_share"] == 0.8
    assert found["text"]["abstract_chars"]["zero"] == 1
    assert found["years"] == [
        {"year": 1987, "papers": 2, "with_abstract": 1, "prefiltered": 1},
        {"year": 2019, "papers": 2, "with_abstract": 2, "prefiltered": 0},
        {"year": None, "papers": 1, "with_abstract": 1, "prefiltered": 0},
    ]
    fields = {row["field"]: (row["papers"], row["with_abstract"], row["prefiltered"]) for row in found["fields"]}
    assert fields["Physics"] == (2, 1, 1)
    assert fields["Art"] == (2, 1, 0)
    assert fields[None] == (2, 2, 0)
    assert sum(papers for papers, _, _ in fields.values()) == 6
    assert found["references"] == {"listed": 6, "in_corpus": 4, "share": 4 / 6}
    degrees = {name: (row["zero"], row["max"], row["mean"]) for name, row in found["degrees"].items()}
    assert degrees == {
        "references listed": (3, 4, 1.2),
        "references in the corpus": (3, 3, 0.8),
        "citations listed": (2, 9, 2.2),
        "citations in the corpus": (2, 2, 0.8),
    }
    assert found["duplicates"] == {
        "with_doi": 0,
        "titles_too_short_to_tell": 2,
        "same_doi": {"groups": 0, "extra_papers": 0},
        "same_title_and_year": {"groups": 1, "extra_papers": 1},
    }
    json.dumps(found)


@pytest.mark.parametrize("nonzero", [False, True])
def test_distributions_are_numpys(nonzero: bool) -> None:
    values = np.random.default_rng(3).geometric(0.02, 5_001) - 1
    row = _distribution([values], among_nonzero=nonzero)
    used = values[values > 0] if nonzero else values
    assert row["mean"] == pytest.approx(used.mean())
    expected = [int(np.quantile(used, q, method="inverted_cdf")) for q in QUANTILES]
    assert list(row["quantiles"].values()) == expected
    assert row["max"] == values.max()
    assert row["histogram"][0] == row["zero"] == np.count_nonzero(values == 0)
    assert row["histogram"][1:] == [
        np.count_nonzero((values >= 2**i) & (values < 2 ** (i + 1))) for i in range(len(row["histogram"]) - 1)
    ]
    assert sum(row["histogram"]) == len(values)


def test_nothing_has_a_distribution_too() -> None:
    assert _distribution([])["mean"] is None
    assert _distribution([np.zeros(3, np.int32)], among_nonzero=True)["quantiles"]["0.5"] is None


def test_earlier_years_are_summed_by_decade() -> None:
    years: list[dict[str, Any]] = [{"year": y, "papers": 1} for y in (1987, 1989, 1990, 2000, 2001, None)]
    assert _decades(years, 2003) == [
        {"year": "1980s", "papers": 2},
        {"year": "1990s", "papers": 1},
        {"year": 2000, "papers": 1},
        {"year": 2001, "papers": 1},
        {"year": None, "papers": 1},
    ]


def text_of(found: dict[str, Any]) -> str:
    return "\n".join(map(render_table, profile_tables(found)))


def test_text_holds_every_figure(found: dict[str, Any]) -> None:
    found = {**found, "dropped": {"bad_json": 3}, "noted": {"unknown_field: Law": 4_000}}
    text = text_of(found)
    for line in (
        r"with an abstract +4 +80.0%",
        r"references in the corpus +4 +66.7%",
        r"same title and year +1\n",
        r"1980s +2 +50% +1",
        r"none +1 +100% +0",
        r"Physics +2 +50% +1",
        r"citations listed +2 +2.2 +0",
        r"bad json +3",
        r"unknown field: Law +4,000",
    ):
        assert re.search(line, text), line
    assert max(map(len, text.splitlines())) <= 110


def test_an_empty_corpus_has_a_profile(tmp_path: Path) -> None:
    text = text_of(profile(Corpus(make_corpus(tmp_path, [])), "none", 2**20))
    assert "papers" in text


def test_a_collection_with_queries_of_its_own_is_not_prefiltered(tmp_path: Path) -> None:
    papers = [{"paper_id": str(number), "title": "A title", "abstract": LONG, "year": None} for number in range(3)]
    given = make_corpus(tmp_path, papers, query_texts={"q1": "a question"}, judgements=[("q1", "1", 1)])
    whole = profile(Corpus(given), "given", 2**20)
    assert (whole["papers"], whole["prefiltered"], whole["prefilter"]) == (3, None, {})
    assert whole["years"] == [{"year": None, "papers": 3, "with_abstract": 3}]
    text = text_of(whole)
    assert "prefilter" not in text
    assert "dropped" not in text
