"""Authors of a corpus: they are read from each release's layout, and classes are those of a plain definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.api import open as open_workspace
from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.authors import CLASSES, Authors
from pipeline.corpus.reader import Corpus
from pipeline.sources.authors import author_rows
from pipeline.stages.corpus import authors_task
from tests.releases import openalex_work, random_s2orc, s2ag_paper, write_lines, write_s2ag, write_s2orc

ADDRESS = "https://openalex.org/"
ADA, BEN, CAT = "Ada B. Lovelace", "Ben Ω. Ng", "Cat"


def s2orc(folder: Path, papers: dict[str, list[str]]) -> None:
    def record(name: str) -> dict[str, Any]:
        *given, last = name.split()
        return {"first": (given or [""])[0], "middle": given[1:], "last": last, "suffix": ""}

    records = random_s2orc(len(papers), 1)
    write_s2orc(
        folder,
        [
            values | {"paper_id": paper, "title": f"T {paper}", "authors": [record(name) for name in names]}
            for values, (paper, names) in zip(records, papers.items(), strict=True)
        ],
        2,
    )


def s2ag(folder: Path, papers: dict[str, list[str]]) -> None:
    records = [
        s2ag_paper(int(paper), authors=[{"authorId": name[0], "name": name} for name in names])
        for paper, names in papers.items()
    ]
    write_s2ag(folder, papers=records, abstracts=[], citations=[])


def openalex(folder: Path, papers: dict[str, list[str]]) -> None:
    people = {
        paper: [{"author": {"id": f"{ADDRESS}A{ord(name[0])}", "display_name": name}} for name in names]
        for paper, names in papers.items()
    }
    works = [openalex_work(int(paper), authorships=authors) for paper, authors in people.items()]
    write_lines(folder / "data/works/updated_date=2023-04-10/part_000.gz", works)


def arxiv(folder: Path, papers: dict[str, list[str]]) -> None:
    records = [
        {
            "id": paper, "title": f"T {paper}", "abstract": "A", "categories": "cs.CL", "versions": [],
            "authors_parsed": [[name.split()[-1], " ".join(name.split()[:-1]), ""] for name in names],
        }
        for paper, names in papers.items()
    ]  # fmt: skip
    write_lines(folder / "arxiv-metadata-oai-snapshot.json", records)


@pytest.mark.parametrize(
    ("source", "write", "has_ids"),
    [("s2orc2020", s2orc, False), ("s2ag", s2ag, True), ("openalex", openalex, True), ("arxiv", arxiv, False)],
)
def test_authors_are_read_from_each_layout(tmp_path: Path, source: str, write: Any, has_ids: bool) -> None:
    papers = {"1": [ADA, BEN], "2": [BEN], "3": [], "4": ["A. Lovelace", CAT], "5": [CAT, CAT]}
    folder = tmp_path / "release"
    folder.mkdir()
    write(folder, papers)
    workspace = open_workspace(tmp_path)
    corpus = workspace.build(source, folder, corpus="c")
    before = (corpus.artifact.id, sorted(path.name for path in corpus.artifact.path.iterdir()))
    (artifact,) = workspace.make([authors_task(corpus.artifact)])
    assert (corpus.artifact.id, sorted(path.name for path in corpus.artifact.path.iterdir())) == before
    authors = Authors(artifact, corpus)
    assert authors.resolutions == ["id"] * has_ids + ["initial", "full"]
    rows = {paper.removeprefix("W"): row for row, paper in enumerate(corpus.ids(np.arange(len(corpus))))}
    for resolution in authors.resolutions:
        of = {paper: {*authors.of_papers(resolution).of(row).tolist()} for paper, row in rows.items()}
        assert [len(of[paper]) for paper in "12345"] == [2, 1, 0, 2, 1]
        assert of["1"] & of["2"] == of["2"]
        assert of["4"] & of["5"] == of["5"]
        assert bool(of["1"] & of["4"]) == (resolution != "full")  # Ada B. Lovelace and A. Lovelace


def test_a_source_without_authors_is_refused(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path)
    corpus = workspace.build("synthetic", papers=500, corpus="c")
    with pytest.raises(InputError, match="the source synthetic has no authors"):
        workspace.make([authors_task(corpus.artifact)])


def test_names_with_accents_commas_and_no_letters() -> None:
    names = ["Gödel, K.", "K. Godel", "Kurt GÖDEL", "...", ""]
    keys = author_rows([("p", [(name, "") for name in names])]).to_pydict()
    assert keys["initial"][0] == keys["initial"][1] == keys["initial"][2] != 0
    assert keys["full"][0] == keys["full"][1] != keys["full"][2]
    assert keys["full"][3:] == [0, 0]
    assert keys["id"] == [0] * 5


def test_classes_are_those_of_their_definition(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    people = np.array(["Ann Ash", "Bob Bay", "Cy Cob", "Di Day", "Ed Elm", "Flo Fig", "Gus Gum", "Hal Hay", "Ida Ivy"])
    papers = {str(n): [str(name) for name in rng.choice(people, rng.integers(0, 3), False)] for n in range(1, 61)}
    s2orc(tmp_path / "release", papers)
    workspace = open_workspace(tmp_path)
    corpus: Corpus = workspace.build("s2orc2020", tmp_path / "release", corpus="c")
    (artifact,) = workspace.make([authors_task(corpus.artifact)])
    rows, year = np.arange(len(corpus)), corpus.attributes["year"]
    owner, cited = np.repeat(rows, len(rows)), np.tile(rows, len(rows))
    found = Authors(artifact, corpus).classes(rows, year, owner, cited, "full")
    of = [{*papers[paper]} for paper in corpus.ids(rows)]
    expected = []
    for query, paper in zip(owner, cited, strict=True):
        earlier = [who for who, when in zip(of, year, strict=True) if when < year[query] and when != NO_YEAR]
        near = set().union(*(who for who in earlier if who & of[query]))
        if not of[query] or not of[paper]:
            expected.append("unknown")
        else:
            is_near = "collaborator" if of[paper] & near else "stranger"
            expected.append("self" if of[query] & of[paper] else is_near)
    assert [CLASSES[place] for place in found] == expected
    assert len({*expected}) == 4
