from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key
from pipeline.corpus.reader import Corpus
from pipeline.sources.openalex import OpenAlex, plain_abstract
from tests.releases import id_key, openalex_work, read, write_lines

ADDRESS = "https://openalex.org/"
PART = "updated_date=2023-04-10/part_000.gz"
JSONL = "data/jsonl/works"


def snapshot(folder: Path, *works: dict[str, Any] | bytes, **settings: Any) -> OpenAlex:
    write_lines(folder / "data/works" / PART, works)
    return OpenAlex(folder, **settings)


def ids(release: OpenAlex) -> list[str]:
    return [row["paper_id"] for row in read(release)[0]]


def mask(names: set[str]) -> int:
    return sum(1 << FIELD_BIT[name] for name in names)


def concept(name: str, score: Any, level: int = 0) -> dict[str, Any]:
    return {"id": f"{ADDRESS}C1", "wikidata": None, "display_name": name, "level": level, "score": score}


def topic(field: int, subfield: int, address: bool = True) -> dict[str, Any]:
    numbers = {"subfield": subfield, "field": field, "domain": 1}
    things = {k: {"id": f"{ADDRESS}{k}s/{n}" if address else n, "display_name": "x"} for k, n in numbers.items()}
    return {"id": f"{ADDRESS}T1", **things}


def test_texts_years_references_and_counts(tmp_path: Path) -> None:
    work = openalex_work(
        7,
        title=None,
        display_name=" The  name ",
        abstract_inverted_index={"Two": [0, 3], "words": [1], " twice ": [7]},
        publication_year=1999,
        referenced_works=[f"{ADDRESS}W{n}" for n in (9, 7, 8, 9)],
        cited_by_count=12,
        doi="https://doi.org/10.1/ABC",
    )
    nothing = openalex_work(8, publication_year=None, referenced_works=None, cited_by_count=None, title=None)
    rows, total = read(snapshot(tmp_path, work, nothing))
    assert (rows[0]["paper_id"], rows[0]["title"], rows[0]["abstract"]) == ("W7", "The name", "Two words Two twice")
    assert (rows[0]["year"], rows[0]["fields"], rows[0]["n_inbound"]) == (1999, 0, 12)
    assert (rows[0]["outbound"], rows[0]["doi_key"]) == (sorted([id_key("W8"), id_key("W9")]), doi_key("10.1/abc"))
    assert (rows[1]["abstract"], rows[1]["year"], rows[1]["n_inbound"]) == ("", NO_YEAR, 0)
    assert total.noted == {"references_repeated_or_self": 2}


def test_retracted_paratext_and_xpac_works_are_dropped_by_reason(tmp_path: Path) -> None:
    flags = [{"is_retracted": True}, {"is_paratext": True, "is_retracted": None}, {"is_xpac": True}]
    works = [openalex_work(n, **flag) for n, flag in enumerate([*flags, {"is_paratext": None}], 1)]
    rows, total = read(snapshot(tmp_path, *works))
    assert [row["paper_id"] for row in rows] == ["W4"]
    assert total.dropped == {"retracted": 1, "paratext": 1, "xpac": 1}
    assert "retracted: part_000.gz:1: W1" in total.examples
    assert ids(OpenAlex(tmp_path, include_xpac=True)) == ["W3", "W4"]


def test_fields_are_of_concepts_else_of_the_topic(tmp_path: Path) -> None:
    physics = topic(31, 3100)
    works = [
        openalex_work(1, concepts=[concept("Computer science", "0.30"), concept("Art", 0.29)], primary_topic=physics),
        openalex_work(2, concepts=[concept("Art", 0), concept("Physics", 0.9, 1)], primary_topic=physics),
        openalex_work(3, concepts=None, topics=[topic(31, 3100, address=False), topic(27, 2700)]),
        openalex_work(4, concepts=[], primary_topic=topic(33, 3320)),
        openalex_work(5, concepts=[], primary_topic=topic(99, 9900)),
        openalex_work(6, concepts=[], primary_topic=None, topics=[]),
    ]
    rows, total = read(snapshot(tmp_path, *works))
    expected = [{"Computer Science"}, {"Physics"}, {"Physics"}, {"Political Science"}, set(), set()]
    assert [row["fields"] for row in rows] == list(map(mask, expected))
    assert total.noted == {"unknown_field: topic field 99": 1}


def test_abstracts_of_every_kind() -> None:
    index = {"b": [1, 2], "a": [0], "gone": None}
    for given in (index, [("b", [1, 2]), ("a", [0])], json.dumps(index)):
        assert plain_abstract(given) == "a b b"
    assert [plain_abstract(given) for given in (None, {}, [], "", "null")] == [""] * 5


@pytest.mark.parametrize("kind", ["string", "map"])
def test_parquet_gives_the_same_papers_as_json_lines(tmp_path: Path, kind: str) -> None:
    works = [
        openalex_work(
            n,
            abstract_inverted_index={f"word{n}": [0, 2], "and": [1]} if n % 3 else None,
            referenced_works=[f"{ADDRESS}W{n - 1}"],
            concepts=[concept("Geology", 0.5)],
            is_retracted=n == 5,
        )
        for n in range(1, 9)
    ]
    rows, total = read(snapshot(tmp_path / "a", *works))
    spelled, column_type = json.dumps, pa.string()
    if kind == "map":
        spelled, column_type = lambda index: list(index.items()), pa.map_(pa.string(), pa.list_(pa.int64()))
    indexes = [work["abstract_inverted_index"] and spelled(work["abstract_inverted_index"]) for work in works]
    names = ("id", "title", "publication_year", "referenced_works", "cited_by_count", "concepts", "doi", "is_retracted")
    table = pa.table({name: [work[name] for work in works] for name in names})
    path = tmp_path / "b/data/parquet/works/updated_date=2026-06-24/part_0000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table.append_column("abstract_inverted_index", pa.array(indexes, column_type)), path)
    again, counts = read(OpenAlex(tmp_path / "b"))
    assert (again, counts.dropped, counts.read) == (rows, total.dropped, total.read)
    assert counts.examples == ["retracted: part_0000.parquet:5: W5"]


@pytest.mark.parametrize("beside", [False, True])
def test_what_the_newest_partition_withdraws_is_dropped(
    tmp_path: Path, build: Callable[[Any], Artifact], beside: bool
) -> None:
    old = [openalex_work(n, referenced_works=["https://openalex.org/W4285719527", "W9", "W2"]) for n in (1, 2, 3, 9)]
    new = [openalex_work(1, is_retracted=True), openalex_work(2, title="corrected"), openalex_work(4285719527)]
    newest = [openalex_work(3, is_paratext=True), openalex_work(5, is_retracted=True)]
    for month, works in enumerate((old, new, newest), 1):
        write_lines(tmp_path / f"data/works/updated_date=2024-0{month}-01/part_0.gz", works)
    (tmp_path / "edges.csv").write_text("citing,cited\nW2,W9\n")
    options = {"citations": str(tmp_path / "edges.csv")} if beside else {}
    artifact = build(OpenAlex(tmp_path, **options))
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    assert corpus.ids(np.arange(len(corpus))) == ["W2", "W9"]
    assert (counts["read"], counts["kept"]) == (9, 2)
    assert counts["dropped"].pop("duplicate_id_other_text") == 1
    assert counts["dropped"] == {"retracted": 2, "paratext": 1, "deleted": 1, "withdrawn_later": 2}
    assert counts["references"] == 1 + beside  # W9 cites W2


@pytest.mark.parametrize(
    ("written", "given"),
    [("data/works", ""), (JSONL, ""), (JSONL, "data/jsonl"), (JSONL, JSONL), ("legacy-data/works", "")],
)
def test_works_are_found_from_the_root_or_from_below(tmp_path: Path, written: str, given: str) -> None:
    write_lines(tmp_path / written / PART, [openalex_work(1)])
    write_lines(tmp_path / "data/authors" / PART, [openalex_work(2)])
    assert ids(OpenAlex(tmp_path / given)) == ["W1"]


def test_two_copies_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no OpenAlex works"):
        OpenAlex(tmp_path).parts()
    with pytest.raises(InputError, match="does not exist"):
        OpenAlex(tmp_path / "nowhere").parts()
    for place in (JSONL, "legacy-data/works"):
        write_lines(tmp_path / place / PART, [openalex_work(1)])
    with pytest.raises(InputError, match="holds the works twice.*one of the two with --input"):
        OpenAlex(tmp_path).parts()
    assert OpenAlex(tmp_path / "data/jsonl").parts() == [PART]


@pytest.mark.parametrize(("name", "key"), [("manifest", "entries"), ("manifest.json", "files")])
def test_the_manifest_is_held_against_what_is_there(tmp_path: Path, name: str, key: str) -> None:
    snapshot(tmp_path, openalex_work(1), openalex_work(2))
    folder = tmp_path / "data/works"
    (folder / name).write_text(json.dumps({key: [{"url": f"s3://openalex/data/works/{PART}"}]}))
    assert len(ids(OpenAlex(tmp_path))) == 2
    (folder / PART).rename(folder / PART.replace("000", "001"))
    with pytest.raises(CorruptError, match="lacks 1 of the files of its manifest"):
        OpenAlex(tmp_path).parts()


def test_the_record_of_the_newest_partition_is_kept(
    tmp_path: Path, build: Callable[[Any], Artifact], capsys: pytest.CaptureFixture[str]
) -> None:
    works = tmp_path / "data/works"
    for date, year, refs in (("2023-04-10", 1999, [2]), ("2024-01-02", 2021, [3]), ("2024-03-01", 2020, [2])):
        work = openalex_work(1, publication_year=year, referenced_works=[f"https://openalex.org/W{n}" for n in refs])
        write_lines(works / f"updated_date={date}" / "part_000.gz", [work, openalex_work(int(date[6]) + 10)])
    artifact = build(OpenAlex(tmp_path))
    assert artifact.manifest.counts["dropped"] == {"duplicate_id_other_text": 2}
    corpus = Corpus(artifact)
    assert corpus.take(np.arange(1), ["paper_id", "year"]).to_pylist() == [{"paper_id": "W1", "year": 2020}]
    listed = ("2023-04-10", "2024-01-02")
    entries = [{"url": f"s3://openalex/data/works/updated_date={date}/part_000.gz"} for date in listed]
    (works / "manifest").write_text(json.dumps({"entries": entries}))
    corpus = Corpus(build(OpenAlex(tmp_path)))
    assert corpus.take(np.arange(1), ["year"]).to_pylist() == [{"year": 2021}]
    said = capsys.readouterr().err
    assert said.count("left out: 1 file that the manifest of") == 1
    assert "first updated_date=2024-03-01/part_000.gz" in said
