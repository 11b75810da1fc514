"""S2AG: its three datasets are read, and a release is fetched from a server that misbehaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key
from pipeline.sources.s2ag import S2ag
from tests.releases import gathered, s2ag_abstract, s2ag_citation, s2ag_paper, write_lines, write_s2ag

PAPERS = "20260917_1_papers.gz"


def read(release: S2ag, dataset: str) -> list[Any]:
    return [b for part in release.parts() if part.startswith(dataset) for b in release.read(part)]


def release(folder: Path, *records: dict[str, Any] | bytes, **settings: Any) -> S2ag:
    return S2ag(write_s2ag(folder, papers=records, abstracts=[], citations=[]), **settings)


def mask(names: set[str]) -> int:
    return sum(1 << FIELD_BIT[name] for name in names)


def test_titles_years_dois_and_ids(tmp_path: Path) -> None:
    papers = [
        s2ag_paper(7, title=" Two\u00a0 words ", year=1999, externalids={"DOI": "10.1/AbC", "MAG": "5"}),
        s2ag_paper("8", title=None, year=None, externalids=None),
        s2ag_paper(0, year=2999),
    ]
    rows, total = gathered(read(release(tmp_path, *papers), "papers"))
    assert [tuple(row[name] for name in ("paper_id", "title", "year", "doi_key")) for row in rows] == [
        ("7", "Two words", 1999, doi_key("10.1/abc")),
        ("8", "", NO_YEAR, 0),
        ("0", "Title of 0", NO_YEAR, 0),
    ]
    assert total.noted == {"impossible_year": 1}


@pytest.mark.parametrize(
    ("source", "fields", "unknown"),
    [
        ("s2-fos-model", {"Computer Science"}, {"unknown_field: Law": 1}),
        ("external", {"Art"}, {}),
        ("any", {"Computer Science", "Art", "Physics"}, {"unknown_field: Law": 1}),
    ],
)
def test_fields_of_the_named_source_alone_count(
    tmp_path: Path, source: str, fields: set[str], unknown: dict[str, int]
) -> None:
    pairs = [("Computer science", "s2-fos-model"), ("Law", "s2-fos-model"), ("Art", "external"), ("Physics", None)]
    listed = [{"category": category, "source": of} for category, of in [*pairs, (None, source)]]
    paper = s2ag_paper(1, s2fieldsofstudy=listed)
    rows, total = gathered(read(release(tmp_path, paper, fields_from=source), "papers"))
    assert rows[0]["fields"] == mask(fields)
    assert total.noted == unknown


def test_abstracts_and_citations(tmp_path: Path) -> None:
    folder = write_s2ag(
        tmp_path,
        papers=[],
        abstracts=[s2ag_abstract(1, " Text  of one "), s2ag_abstract("2", " \t"), s2ag_abstract(3, None)],
        citations=[s2ag_citation("1", 2), s2ag_citation(None, "2"), s2ag_citation("1", None), s2ag_citation("x", "1")],
    )
    (abstracts,) = read(S2ag(folder), "abstracts")
    assert [column.tolist() for column in abstracts.columns.values()] == [[1], ["Text of one"]]
    assert (abstracts.read, abstracts.dropped) == (3, {"withheld": 2})
    (citations,) = read(S2ag(folder), "citations")
    assert (citations.kind, citations.columns["cited"].tolist()) == ("citations", [2, 1])
    assert (citations.read, citations.dropped) == (4, {"null_citing_id": 1, "null_cited_id": 1})


def test_citations_with_other_keys_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_s2ag(tmp_path, papers=[], abstracts=[], citations=[{"citing": 1, "cited": 2}])
    with pytest.raises(
        InputError, match="has a citing and a cited paper: the first has citing, cited, and read are cit"
    ):
        read(S2ag(folder), "citations")


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no S2AG papers"):
        S2ag(tmp_path).parts()
    write_lines(tmp_path / "papers-sample.jsonl.gz", [s2ag_paper(1)])
    write_lines(tmp_path / "abstracts-sample.jsonl", [s2ag_abstract(1, "x")])
    with pytest.raises(InputError, match="holds no S2AG citations"):
        S2ag(tmp_path).identity()
    path = write_lines(tmp_path / "citations-sample.jsonl.gz", [s2ag_citation(n, n + 1) for n in range(5_000)])
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(CorruptError, match=r"citations-sample\.jsonl\.gz is a truncated gzip file"):
        read(S2ag(tmp_path), "citations")
    with pytest.raises(InputError, match="no fields of study from 'mag'.*external"):
        S2ag(tmp_path, fields_from="mag")
    assert S2ag(tmp_path).identity() != S2ag(tmp_path, fields_from="any").identity()


def test_two_releases_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in ("papers/20230331_0_a.jsonl", "papers/20230331_1_a.jsonl", "abstracts/0.jsonl", "citations/0.jsonl"):
        write_lines(tmp_path / name, [s2ag_paper(1)])
    assert len(S2ag(tmp_path).parts()) == 4
    write_lines(tmp_path / "papers/2023-04-07-0.jsonl", [s2ag_paper(1)])
    with pytest.raises(InputError, match=r"files of 2 releases \(2023-03-31, 2023-04-07\)"):
        S2ag(tmp_path).parts()
