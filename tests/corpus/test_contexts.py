"""Citation contexts as queries: from JSON lines to pools by year, field and size."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.api as mdcr_api
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.releases import write_lines

YEARS = [2015 + number % 6 for number in range(120)]


def paper(number: int) -> dict[str, Any]:
    field = "Medicine" if number % 5 < 3 else "Biology"
    cited = [f"p{other:03}" for other in range(number % 7, 120, 11) if other != number]
    text = " ".join(f"w{number * factor % 31}" for factor in range(3, 40))
    return {
        "paper_id": f"p{number:03}", "title": f"Title {number % 110}", "abstract": text, "year": YEARS[number],
        "fields": [field], "references": cited,
    }  # fmt: skip


def context(number: int, **changes: Any) -> dict[str, Any]:
    cited = [f"p{other:03}" for other in range(number % 9, 120, 13)]
    values = {"context": f"as w{number} shows w{number % 31}", "citing": f"p{number:03}", "year": YEARS[number]}
    return {**values, "cited": cited, **changes}


BAD = [
    (context(1, context=" "), "no_context"),
    (context(1, cited=[]), "no_cited"),
    (context(1, year=3019), "impossible_year"),
    (context(1, id="twice"), ""),
    (context(2, id="twice"), "context_repeated"),
    (context(3, context=None), "no_context"),
]


def build(root: Path, papers: list[Any], contexts: list[Any], name: str = "cited") -> Any:
    write_lines(root / "papers" / "papers.jsonl", papers)
    write_lines(root / "contexts.jsonl", contexts)
    options = f"--source jsonl --input {root / 'papers'} --contexts {root / 'contexts.jsonl'} --corpus {name}"
    return mdcr_json(root, "corpus", *options.split())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    contexts = [context(number) for number in range(110)]
    contexts += [context(5, citing="elsewhere", cited="p000"), context(11, cited=["p004", "gone"])]
    papers = [paper(number) for number in range(120)]
    made = build(tmp_path, papers, [*contexts, *(record for record, _ in BAD)])
    assert made["counts"]["noted"] == {reason: 1 for _, reason in BAD if reason} | {"no_context": 2}
    assert (made["counts"]["queries"], made["counts"]["judgements_of_nothing"]) == (113, 1)
    return tmp_path


def test_candidates_are_up_to_the_year_and_the_citing_paper_is_left_out(workspace: Path) -> None:
    opened = mdcr_api.open(workspace)
    pool = opened.pool("cited", year=2017, size=45, queries=5, field="Medicine").pool
    corpus, years = pool.corpus, pool.corpus.attributes["year"]
    assert len(pool.candidates) == 45
    assert years[pool.candidates].max() <= 2017
    assert len(pool.query_rows) == 5
    citing = [name.partition(":")[0] for name in pool.query_ids()]
    numbers = [int(name[1:]) for name in citing]
    assert {YEARS[number] for number in numbers} == {2017}
    assert all(number % 5 < 3 for number in numbers)  # the field is that of the citing paper
    judged = {(query, paper) for query, paper, _ in zip(*pool.qrels.to_pydict().values(), strict=True)}
    for query, number in enumerate(numbers):
        excluded = corpus.ids(pool.excluded(query))
        titles = {f"p{other:03}" for other in range(120) if other % 110 == number % 110}
        assert set(excluded) == titles & set(corpus.ids(pool.candidates))
        cited = {p for p in context(number)["cited"] if p not in titles and YEARS[int(p[1:])] <= 2017}
        assert {corpus.ids(np.array([row]))[0] for of, row in judged if of == query} == cited
    again = opened.pool("cited", year=2017, size=42, queries=5, field="Medicine").pool
    assert again.query_ids() == pool.query_ids()
    held_out = opened.pool("cited", year=2017, size=45, queries=5, field="Medicine", split="validation").pool
    assert not {*held_out.query_ids()} & {*pool.query_ids()}


@pytest.fixture
def uncited(tmp_path: Path) -> Path:
    """Return a workspace with the contexts of papers without references: most of 2017, none of 2019."""
    papers = [{**paper(number), "references": None} for number in range(120)]
    numbers = [number for number in range(110) if number % 6 in (1, 2, 3)]
    contexts = [context(number, id=f"{number}-{again}") for again in range(3) for number in numbers]
    build(tmp_path, papers, [one for one in contexts if one["year"] == 2017 or "-0" in one["id"]], "mine")
    return tmp_path


def test_the_defaults_fit_contexts_of_papers_without_references(uncited: Path) -> None:
    made = mdcr(uncited, "pool", "--validation-queries", "10", "--json")
    assert "no paper of mine has references: --min-citations=0" in made.stderr
    assert "mine is too small for the defaults: --year=2017 --queries" in made.stderr
    assert "other papers per cited paper" in made.stderr
    pool = json.loads(made.stdout)["pools"][0]
    assert (pool["config"]["prefilter"]["min_citations"], pool["config"]["year"]) == (0, 2017)
    assert pool["counts"]["candidates_drawn"] > 0
    tuned = mdcr_json(uncited, "tune", "--validation-queries", "10")["tunings"][0]
    rows = mdcr_json(uncited, "eval", "--validation-queries", "10", "--model", "bm25:tuned")["rows"]
    assert tuned["counts"]["queries"] + tuned["counts"]["queries_without_positive"] == 10
    assert rows[0]["queries"] == pool["counts"]["queries"] == tuned["pool"]["queries"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--year 2017 --size all --queries 5 --min-citations 3", "0 others; left out: 120 papers with fewer than 3"),
        ("--year 2017 --size 200k --queries 5 --min-abstract-chars 1000", "left out: 120 papers with an abs"),
        ("--queries 5 --min-citations 3", "no context of 2019 can be a query. Choose another --year"),
        ("--year 2017 --size 200k --queries 3k", "3k queries requested, but only"),
        ("--year 2017 --size 200k --queries 5", "a pool of 200k was requested, but only"),
        ("--year 2017 --size 5 --queries 30", "positives alone exceed"),
    ],
)
def test_a_pool_of_contexts_that_cannot_be_is_refused_with_the_options_that_work(
    uncited: Path, words: str, said: str
) -> None:
    line = one_line_error(mdcr(uncited, "pool", "--quiet", *words.split()))
    assert said in line
    typed = zip(words.split()[::2], words.split()[1::2], strict=True)
    works = dict(typed) | dict(word.split("=") for word in shlex.split(line.partition("This works: ")[2]))
    made = mdcr_json(uncited, "pool", *(f"{name}={value}" for name, value in works.items()))["pools"][0]
    assert made["counts"]["candidates_drawn"] > 0


def test_what_no_pool_of_contexts_can_be_is_said_at_once(uncited: Path) -> None:
    for words, said in (
        ("--field Biology", "no paper is cited in Biology, since no paper has references. Leave out --field"),
        ("--trained-until 2019", "no context of 2020 can be a query. Give an earlier year"),
    ):
        assert said in one_line_error(mdcr(uncited, "pool", "--quiet", *words.split()))


def test_near_duplicates_of_the_citing_paper_are_neither_positives_nor_ranked(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(30)]
    texts = {"title": "A title of seven words in all", "abstract": " ".join(words)}
    near = {"title": "A title of seven words in all now", "abstract": " ".join([*words[1:], "other"])}
    papers = [
        {**paper(number), **(texts if number == 2 else near if number in (8, 14) else {})} for number in range(120)
    ]
    build(tmp_path, papers, [context(2, cited=["p008", "p001"]), context(2, cited=["p007"], id="more")])
    opened = mdcr_api.open(tmp_path)
    pool = opened.pool("cited", year=2017, size="all", queries="all", drop_near_duplicates=True).pool
    assert len(pool.query_rows) == 2
    for query in range(2):
        assert {"p002", "p008", "p014"} <= {*pool.corpus.ids(pool.excluded(query))}
    assert sorted(pool.corpus.ids(pool.qrels["row"].to_numpy())) == ["p001", "p007"]


def test_a_strict_split_has_nothing_that_an_encoder_has_seen(workspace: Path) -> None:
    opened = mdcr_api.open(workspace)
    settings = {"year": 2020, "size": "all", "queries": "all"}
    pool, loose = (opened.pool("cited", **settings, **more).pool for more in ({"trained_until": 2018}, {}))
    years = pool.corpus.attributes["year"]
    assert years[pool.candidates].min() == 2019 > years[loose.candidates].min()
    removed = pool.artifact.manifest.counts["positives_dropped_trained_on"]
    assert removed > 0
    papers = mdcr_json(workspace, "corpus", "--source", "jsonl", "--input", str(workspace / "papers"))["corpus"]
    citing = opened.pool(papers, **settings, trained_until=2018, min_citations=1).pool
    assert years[citing.candidates].min() == 2019
    assert "after_cutoff" not in citing.artifact.manifest.config
    command = ["pool", "--corpus", "cited", "--year", "2018", "--trained-until", "2018"]
    assert "queries must be later than 2018" in one_line_error(mdcr(workspace, *command))
