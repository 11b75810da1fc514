from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key
from pipeline.corpus.reader import Corpus
from pipeline.sources.collection import JsonLines, ParquetFiles
from pipeline.sources.registry import open_release
from tests.releases import id_key, read, write_lines

MAP = "paper_id=id, title=headline,abstract=text.body,year=published,fields=topics,references=refs,doi=ids.doi"
RECORDS: list[dict[str, Any]] = [
    {
        "id": 7,
        "headline": " A  title",
        "text": {"body": "An abstract"},
        "published": 2019,
        "topics": ["computer science", "Cooking"],
        "refs": [8, "x/1", 7, 8],
        "ids": {"doi": "10.1/A"},
    },
    {"id": "x/1", "headline": None, "text": None, "published": None, "topics": None, "refs": None, "ids": None},
]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "deep/a.ndjson", "a.parquet"])
def test_a_collection_under_a_map(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        texts = [r | {"id": str(r["id"]), "refs": r["refs"] and list(map(str, r["refs"]))} for r in RECORDS]
        table = pa.Table.from_pylist(texts).append_column("other", pa.array([1, 2]))
        pq.write_table(table, tmp_path / name, row_group_size=1)
        release = ParquetFiles(tmp_path, columns=MAP)
    else:
        release = JsonLines(write_lines(tmp_path / name, RECORDS), columns=MAP)
        if "deep" not in name:
            assert JsonLines(tmp_path, columns=MAP).identity() == release.identity()
    rows, total = read(release)
    assert (rows[0]["paper_id"], rows[0]["title"], rows[0]["abstract"]) == ("7", "A title", "An abstract")
    assert (rows[0]["year"], rows[0]["fields"]) == (2019, 1 << FIELD_BIT["Computer Science"])
    assert (rows[0]["outbound"], rows[0]["doi_key"]) == (sorted([8, id_key("x/1")]), doi_key("10.1/a"))
    assert (rows[1]["paper_id"], rows[1]["title"], rows[1]["year"], rows[1]["outbound"]) == ("x/1", "", NO_YEAR, [])
    assert total.noted == {"unknown_field: Cooking": 1, "references_repeated_or_self": 2}


def test_years_of_every_kind(tmp_path: Path) -> None:
    for value in (1999, "1999-05-01", 1999.0, datetime.date(1999, 5, 1), float("nan"), "", 0):
        pq.write_table(pa.table({"paper_id": ["1"], "year": [value]}), tmp_path / "a.parquet")
        rows, _ = read(ParquetFiles(tmp_path))
        assert rows[0]["year"] == (NO_YEAR if value in ("", 0) or value != value else 1999)


@pytest.mark.parametrize("kind", [JsonLines, ParquetFiles])
def test_a_corpus_without_any_title_is_refused_with_the_records_own_names(
    tmp_path: Path, build: Callable[[Any], Artifact], kind: type[JsonLines]
) -> None:
    records = [{"paper_id": f"p{number}", "headline": "A", "text": {"body": "B"}} for number in range(3)]
    write_lines(tmp_path / "papers" / "a.jsonl", records)
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "papers" / "a.parquet")
    with pytest.raises(InputError, match=r"has a title in 'title'; .* paper_id, headline, text.body.*--columns"):
        build(kind(tmp_path / "papers"))
    assert len(Corpus(build(kind(tmp_path / "papers", columns="title=headline")))) == 3


def test_a_map_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="maps 'titel', which is not a column.*'title'"):
        JsonLines(tmp_path, columns="titel=x")
    with pytest.raises(InputError, match="gives 'title' no name"):
        JsonLines(tmp_path, columns="title")
    write_lines(tmp_path / "a.jsonl", [{"ident": 1, "text": "x"}])
    pq.write_table(pa.table({"ident": ["1"]}), tmp_path / "a.parquet")
    for kind, message in (
        (JsonLines, "no record of .*a.jsonl has an id in 'idnt'.*'ident'; use --columns"),
        (ParquetFiles, "has no column 'idnt'.*'ident'"),
    ):
        with pytest.raises(InputError, match=message):
            read(kind(tmp_path, columns="paper_id=idnt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no parquet files"):
        ParquetFiles(tmp_path / "empty").parts()


def test_a_mapped_column_that_is_never_there_is_told_and_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "a.jsonl", [{"paper_id": 1, "text": "x"}])
    _, total = read(JsonLines(tmp_path, columns="abstract=txt,title=text"))
    assert total.noted == {"column_never_found: txt": 1}
    assert (
        capsys.readouterr().err == f"Warning: no record of {tmp_path / 'a.jsonl'} has a 'txt', which --columns maps\n"
    )


def test_works_of_crossref(tmp_path: Path, build: Callable[[Any], Artifact]) -> None:
    works = [
        {"DOI": "10.1/A", "title": ["One"], "issued": {"date-parts": [[2019, 5, 1]]}},
        {"DOI": "10.1/b", "title": ["Two"], "issued": {"date-parts": [[None]]}, "reference": [{"DOI": "10.1/a"}, {}]},
    ]
    columns = "paper_id=DOI,references=reference.DOI,year=issued.date-parts"
    corpus = Corpus(build(JsonLines(write_lines(tmp_path / "works.jsonl", works), columns=columns)))
    assert corpus.ids(np.arange(2)) == ["10.1/A", "10.1/b"]
    assert corpus.attributes["year"].tolist() == [2019, NO_YEAR]
    assert corpus.outgoing.of(1).tolist() == [0]
    page = tmp_path / "page.json"
    page.write_text(json.dumps({"status": "ok", "message": {"items": works}}))
    with pytest.raises(InputError, match=r"jq -c '.message.items\[\]'"):
        read(JsonLines(page, columns=columns))


def test_an_odd_value_costs_no_paper(tmp_path: Path) -> None:
    records = [
        {"paper_id": 1.0, "title": ["One"], "year": "c2019", "references": [2.0, None, ""], "abstract": float("nan")},
        {"paper_id": " 2 ", "title": 1984, "year": " in press", "references": "1; 3", "n_inbound": "12"},
        {"paper_id": True, "year": 2019},
    ]
    rows, total = read(JsonLines(write_lines(tmp_path / "a.jsonl", records)))
    assert [(row["paper_id"], row["title"], row["year"], row["outbound"]) for row in rows] == [
        ("1", "One", 2019, [2]),
        ("2", "1984", NO_YEAR, [1, 3]),
    ]
    assert (rows[0]["abstract"], rows[1]["n_inbound"]) == ("", 12)
    assert total.dropped == {"wrong_type": 1}
    assert total.noted == {"year not a year": 1, "null in references": 1}
    assert "year not a year: a.jsonl:2: ' in press'" in total.examples


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_path_leads_through_dots_and_lists(tmp_path: Path, kind: str) -> None:
    record = {"paper": {"id": "1"}, "meta.year": 2019, "refs": [{"id": "2"}, {"id": None}], "ids.of": {"doi": "10.1/a"}}
    columns = "paper_id=paper.id,year=meta.year,references=refs.id,doi=ids.of.doi"
    if kind == "jsonl":
        release = JsonLines(write_lines(tmp_path / "a.jsonl", [record]), columns=columns)
    else:
        pq.write_table(pa.Table.from_pylist([record]), tmp_path / "a.parquet")
        release = ParquetFiles(tmp_path, columns=columns)
    row = read(release)[0][0]
    assert (row["paper_id"], row["year"], row["outbound"], row["doi_key"]) == ("1", 2019, [2], doi_key("10.1/a"))


def test_folders_hold_columns_and_hidden_ones_no_data(tmp_path: Path) -> None:
    for place in ("year=2019/v=a%2Fb", "year=2018", "_delta_log", f"year={'__HIVE_DEFAULT_PARTITION__'}"):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(pa.table({"paper_id": [place], "title": ["T"]}), tmp_path / place / "part-0.parquet")
    (tmp_path / "_SUCCESS").touch()
    rows, _ = read(ParquetFiles(tmp_path, columns="abstract=v"))
    years = {row["paper_id"]: (row["year"], row["abstract"]) for row in rows}
    missing = {"year=__HIVE_DEFAULT_PARTITION__": (NO_YEAR, "")}
    assert years == {"year=2019/v=a%2Fb": (2019, "a/b"), "year=2018": (2018, ""), **missing}


def test_files_below_a_folder_with_files_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.jsonl", "deep/b.jsonl", "_hidden/c.jsonl"):
        write_lines(tmp_path / name, [{"paper_id": name}])
    assert JsonLines(tmp_path).parts() == ["a.jsonl"]
    assert f"left out: 1 file in folders below {tmp_path}, first {tmp_path / 'deep/b.jsonl'}" in capsys.readouterr().err


def test_lists_that_are_texts_are_decided_before_parts_are_read_though_they_come_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    references = [None, "", "0;1", "2;0"]
    write_lines(tmp_path / "a.jsonl", [{"paper_id": n, "references": text} for n, text in enumerate(references)])
    release = JsonLines(tmp_path)
    release.parts()
    assert "references: lists with ';'; 4 of 4 are papers here" in capsys.readouterr().err
    assert [row["outbound"] for row in read(release)[0]] == [[], [], [0, 1], [0, 2]]


def test_values_in_boxes_of_r(tmp_path: Path) -> None:
    records = [
        {"paper_id": ["W1"], "title": ["T"], "year": [2019], "references": ["W2"]},
        {"paper_id": ["W2"], "references": "W1"},
    ]
    rows, total = read(JsonLines(write_lines(tmp_path / "a.jsonl", records)))
    assert [(row["paper_id"], row["outbound"]) for row in rows] == [("W1", [id_key("W2")]), ("W2", [id_key("W1")])]
    assert total.noted == total.dropped == {}


def test_an_answer_of_an_api_without_papers_is_refused_by_its_keys(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", [{"error": "Too Many Requests"}])
    for source in ("openalex", "s2orc2020"):
        with pytest.raises(InputError, match="no record of .*a.json has an id: the first has error, and read are"):
            read(open_release(source, tmp_path / "a.json", {}))
    nested = gzip.compress(json.dumps({"response": {"docs": [{"id": 1}]}}).encode())
    (tmp_path / "b.json.gz").write_bytes(nested)
    with pytest.raises(InputError, match=r"gunzip -c b.json.gz \| jq -c '.response.docs\[\]' > lines.jsonl"):
        read(JsonLines(tmp_path / "b.json.gz"))
