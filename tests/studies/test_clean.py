"""The study ``clean``: planted overlap is found, other texts are not, and its parts are scores of their queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.api import open as open_workspace
from pipeline.corpus.reader import Corpus
from pipeline.data import DATA
from pipeline.studies.clean import held_by, strings
from tests.builders import make_corpus
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

PAPERS = pl.read_parquet(DATA / "demo" / "papers.parquet")
SMALL = "year=2019; size=400; queries=15; samples=1"
COMMAND = [*flags("study clean --corpus tiny --model bm25,lsa --set"), SMALL]


PLANTED = {
    "whole": lambda paper: [paper["title"], paper["abstract"]],
    "retitled": lambda paper: ["Another name", paper["abstract"]],
    "cut": lambda paper: [" ".join(f"{paper['title']} {paper['abstract']}".split()[:128])],
}


def rewritten(path: Path, rows: Sequence[Any]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, list[dict[str, Any]]]:
    """Return a corpus of 2,000 real papers with an abstract, no two with one title, and the papers by row."""
    rows = PAPERS.filter(pl.col("abstract").str.len_chars() > 200).unique("title", maintain_order=True).head(2_000)
    corpus = Corpus(
        make_corpus(tmp_path_factory.mktemp("clean"), rows.select("paper_id", "title", "abstract").to_dicts())
    )
    return corpus, corpus.take(np.arange(len(corpus)), ["paper_id", "title", "abstract"]).to_pylist()


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("share", [0.01, 0.2])
def test_planted_papers_are_found_and_others_are_not(papers: Any, tmp_path: Path, planted: str, share: float) -> None:
    corpus, texts = papers
    drawn = np.random.default_rng(13).random(len(corpus)) < share
    file = rewritten(tmp_path / "seen.jsonl", [PLANTED[planted](texts[row]) for row in np.flatnonzero(drawn)])
    found = held_by(corpus, np.arange(len(corpus)), [file], 0.5)
    seen = found.select(pl.col("title") | (pl.col("share") >= 0.5)).to_series().to_numpy()
    assert seen[drawn].mean() >= 0.99
    assert seen[~drawn].mean() < 0.01


def test_every_layout_is_read(papers: Any, tmp_path: Path) -> None:
    corpus, texts = papers
    frame = pl.DataFrame(texts[:3])
    (tmp_path / "ids.txt").write_text("\n".join(frame["paper_id"]))
    (tmp_path / "titles.tsv").write_text("label\ttitle\n" + "\n".join(f"1\t{title}" for title in frame["title"]))
    frame.write_parquet(tmp_path / "texts.parquet")
    rewritten(tmp_path / "triplets.jsonl", [{"query": texts[0], "pos": texts[1], "neg": texts[2], "score": 5}])
    columns = {"ids.txt": "id", "titles.tsv": "title", "texts.parquet": "title", "triplets.jsonl": "id"}
    for name, column in columns.items():
        found = held_by(corpus, np.arange(10), [str(tmp_path / name)], 0.5)
        assert found[column].to_list() == [True] * 3 + [False] * 7, name


def test_a_year_is_no_id(tmp_path: Path) -> None:
    file = rewritten(tmp_path / "records.jsonl", [{"corpus_id": 12, "year": 2019, "n": 123_456}])
    assert [*strings(Path(file))] == ["12", "123456"]


def test_the_parts_are_the_scores_of_their_queries(root: Path, tmp_path: Path) -> None:
    corpus = open_workspace(root).corpus("tiny")
    ids = corpus.ids(np.arange(0, len(corpus), 2))
    (tmp_path / "seen.txt").write_text("\n".join(ids))
    tables = mdcr_json(root, *COMMAND, "--set", f"training={tmp_path / 'seen.txt'}")["tables"]
    scores = {(row["part"], row["system"]): row for row in tables["clean"]}
    every, kept, seen = (scores[part, "lsa"] for part in ("all", "clean queries", "seen queries"))
    assert every["items"] == kept["items"] + seen["items"] == 15
    total = kept["items"] * kept["value"] + seen["items"] * seen["value"]
    assert every["value"] == pytest.approx(total / 15)
    found = {(row["papers"], row["found by"]): row["seen"] for row in tables["seen"]}
    assert found["queries", "id"] == found["queries", "counted as seen"] == seen["items"]


def test_a_file_that_cannot_be_read_is_named(root: Path, tmp_path: Path) -> None:
    error = one_line_error(mdcr(root, *COMMAND, "--set", f"training={tmp_path / 'none.txt'}"))
    assert "none.txt cannot be read" in error
