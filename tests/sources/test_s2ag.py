from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key, normalise
from pipeline.sources.base import PaperBatch
from pipeline.sources.s2ag import S2ag
from pipeline.sources.tables import Abstracts, Citations
from tests.releases import gathered, s2ag_abstract, s2ag_citation, s2ag_paper, write_lines, write_s2ag
from tests.shared import real


def read(release: S2ag, dataset: str) -> list[Any]:
    return [b for part in release.parts() if part.startswith(dataset) for b in release.read_table(part)]


def papers(release: S2ag) -> tuple[list[dict[str, Any]], PaperBatch]:
    return gathered(read(release, "papers"))


def fields_of(row: dict[str, Any]) -> set[str]:
    return {name for name, bit in FIELD_BIT.items() if row["fields"] >> bit & 1}


def release(folder: Path, *records: dict[str, Any] | bytes, **settings: Any) -> S2ag:
    return S2ag(write_s2ag(folder, papers=records, abstracts=[], citations=[]), **settings)


def test_titles_years_dois_and_ids(tmp_path: Path) -> None:
    rows, total = papers(
        release(
            tmp_path,
            s2ag_paper(7, title=" Two\u00a0 words ", year=1999, externalids={"DOI": "10.1/AbC", "MAG": "5"}),
            s2ag_paper("8", title=None, year=None, externalids=None),
            s2ag_paper(0, year=2999),
        )
    )
    assert [row["paper_id"] for row in rows] == ["7", "8", "0"]
    assert [row["title"] for row in rows] == ["Two words", "", "Title of 0"]
    assert [row["year"] for row in rows] == [1999, NO_YEAR, NO_YEAR]
    assert [row["doi_key"] for row in rows] == [doi_key("10.1/abc"), 0, 0]
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
    listed = [
        {"category": "Computer science", "source": "s2-fos-model"},
        {"category": "Law", "source": "s2-fos-model"},
        {"category": "Art", "source": "external"},
        {"category": "Physics", "source": None},
        {"category": None, "source": source},
    ]
    rows, total = papers(release(tmp_path, s2ag_paper(1, s2fieldsofstudy=listed), fields_from=source))
    assert fields_of(rows[0]) == fields
    assert total.noted == unknown


def test_abstracts_and_citations(tmp_path: Path) -> None:
    folder = write_s2ag(
        tmp_path,
        papers=[],
        abstracts=[s2ag_abstract(1, " Text  of one "), s2ag_abstract("2", " \t"), s2ag_abstract(3, None)],
        citations=[s2ag_citation("1", 2), s2ag_citation(None, "2"), s2ag_citation("1", None), s2ag_citation("x", "1")],
    )
    (abstracts,) = read(S2ag(folder), "abstracts")
    assert isinstance(abstracts, Abstracts)
    assert (abstracts.keys.tolist(), abstracts.texts.to_pylist()) == ([1], ["Text of one"])
    assert (abstracts.read, abstracts.dropped) == (3, {"withheld": 2})
    (citations,) = read(S2ag(folder), "citations")
    assert isinstance(citations, Citations)
    assert citations.cited.tolist() == [2, 1]
    assert (citations.read, citations.dropped) == (4, {"null_citing_id": 1, "null_cited_id": 1})


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no S2AG papers"):
        S2ag(tmp_path).parts()
    write_lines(tmp_path / "papers-sample.jsonl.gz", [s2ag_paper(1)])
    write_lines(tmp_path / "abstracts-sample.jsonl", [s2ag_abstract(1, "x")])
    with pytest.raises(InputError, match="holds no S2AG citations"):
        S2ag(tmp_path).identity()
    path = write_lines(tmp_path / "citations-sample.jsonl.gz", [s2ag_citation(n, n + 1) for n in range(5_000)])
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(CorruptError, match=r"citations-sample\.jsonl\.gz breaks off"):
        read(S2ag(tmp_path), "citations")
    assert sum(len(b.citing) for b in read(S2ag(tmp_path, allow_truncated=True), "citations")) > 1_000
    with pytest.raises(InputError, match="no fields of study from 'mag'.*external"):
        S2ag(tmp_path, fields_from="mag")
    assert S2ag(tmp_path).identity() != S2ag(tmp_path, fields_from="any").identity()


@pytest.mark.realdata
@pytest.mark.parametrize("source", ["s2-fos-model", "external", "any"])
def test_every_field_of_the_official_samples(source: str) -> None:
    folder = real("s2ag-sample")
    raw = {
        name: list(map(json.loads, gzip.decompress((folder / f"{name}-sample.jsonl.gz").read_bytes()).splitlines()))
        for name in ("papers", "abstracts", "citations")
    }
    sample = S2ag(folder, source)
    assert [part.partition(":")[0] for part in sample.parts()] == ["papers", "abstracts", "citations"]
    rows, total = papers(sample)
    assert (total.read, total.dropped) == (100, {})
    unknown: Counter[str] = Counter()
    for row, record in zip(rows, raw["papers"], strict=True):
        listed = {each["category"] for each in record["s2fieldsofstudy"] or () if source in (each["source"], "any")}
        unknown.update(
            each["category"]
            for each in record["s2fieldsofstudy"] or ()
            if source in (each["source"], "any") and each["category"] not in MAG_FIELDS
        )
        assert row["paper_id"] == str(record["corpusid"])
        assert row["title"] == normalise(record["title"])
        assert row["year"] == (record["year"] or NO_YEAR)
        assert fields_of(row) == listed & set(MAG_FIELDS)
        doi = record["externalids"]["DOI"]
        assert row["doi_key"] == (doi_key(doi) if doi else 0)
        assert (row["abstract"], row["outbound"], row["n_inbound"]) == ("", [], 0)
    assert total.noted == {f"unknown_field: {name}": count for name, count in unknown.items()}
    (abstracts,) = read(sample, "abstracts")
    assert abstracts.keys.tolist() == [record["corpusid"] for record in raw["abstracts"]]
    assert abstracts.texts.to_pylist() == [normalise(record["abstract"]) for record in raw["abstracts"]]
    (citations,) = read(sample, "citations")
    edges = [(r["citingcorpusid"], r["citedcorpusid"]) for r in raw["citations"]]
    known = [(int(a), int(b)) for a, b in edges if a is not None and b is not None]
    assert list(zip(citations.citing.tolist(), citations.cited.tolist(), strict=True)) == known
    assert citations.dropped == {"null_cited_id": len(edges) - len(known)} == {"null_cited_id": 23}
