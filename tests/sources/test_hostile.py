"""Hostile inputs: each is dropped and counted, or refused by an error that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import CorruptError, InputError
from pipeline.sources.beir import Beir
from pipeline.sources.collection import Collection
from pipeline.sources.openalex_layout import Layout, read_manifest
from pipeline.sources.registry import open_release
from tests.releases import openalex_work, read, s2ag_citation, s2ag_paper, s2orc_record, write_lines, write_s2orc
from tests.sources.test_beir import write_beir


@pytest.mark.parametrize("grade", ["--1", "70000", "-40000", "1" * 5_000, "²", "1.5", "1e3", "", "0x1", "1 "])
@pytest.mark.parametrize("form", ["q1\td1\t{}\n", "q1 0 d1 {}\n"])
def test_a_grade_is_a_small_integer(tmp_path: Path, grade: str, form: str) -> None:
    folder = write_beir(tmp_path)
    (folder / "qrels" / "test.tsv").write_text("q9\td1\t1\n" + form.format(grade))
    if grade == "1 ":
        queries = Beir(folder).queries()
        assert queries is not None
        assert list(queries.judgements) == [("q9", "d1", 1), ("q1", "d1", 1)]
    else:
        with pytest.raises(InputError, match=r"test\.tsv:2 is not a judgement"):
            Beir(folder).queries()


@pytest.mark.parametrize("line", [b"q1\td1\xff\t1\n", b"q1\t" + b"x" * (33 << 20) + b"\t1\n", b"\x00\n"])
def test_a_line_that_is_not_a_judgement_is_refused(tmp_path: Path, line: bytes) -> None:
    folder = write_beir(tmp_path)
    (folder / "qrels" / "test.tsv").write_bytes(line)
    with pytest.raises(InputError, match=r"test\.tsv:1 is not a judgement"):
        Beir(folder).queries()


def text_column(values: list[bytes]) -> pa.Array:
    """Return an array that claims to be text, whatever its bytes are."""
    binary = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), binary.buffers()[1], binary.buffers()[2])


def test_a_parquet_row_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    table = pa.table(
        {
            "paper_id": text_column([b"1", b"\xff", b"3", b"4"]),
            "title": text_column([b"a", b"b", b"c\xc3", b"d"]),
            "year": pa.array([1, 2, 3, 2**31 - 1], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rows, total = read(Collection(tmp_path, "parquet"))
    assert [row["paper_id"] for row in rows] == ["1"]
    assert total.dropped == {"bad_utf8": 2, "wrong_type": 1}
    assert total.examples[0].startswith("bad_utf8: a.parquet:2: ")


@pytest.mark.parametrize("year", [float("inf"), float("-inf"), 1e300])
def test_a_year_that_is_not_finite_is_dropped(tmp_path: Path, year: float) -> None:
    pq.write_table(pa.table({"paper_id": ["1"], "year": [year]}), tmp_path / "a.parquet")
    rows, total = read(Collection(tmp_path, "parquet"))
    assert total.dropped == {"wrong_type": 1} or rows[0]["year"] < 0


def not_a_file(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name if kind == "loop" else "nowhere")


@pytest.mark.parametrize("kind", ["folder", "loop", "dangling"])
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("s2orc2020", "metadata_1.jsonl.gz"),
        ("jsonl", "b.jsonl"),
        ("parquet", "b.parquet"),
        ("s2ag", "citations/b.gz"),
        ("beir", "qrels/test.tsv"),
        ("openalex", "data/works/updated_date=2020-01-02/part_1.gz"),
        ("openalex", "data/merged_ids/works/b.csv.gz"),
    ],
)
def test_what_is_not_a_file_is_refused_by_name(tmp_path: Path, source: str, name: str, kind: str) -> None:
    write_s2orc(tmp_path, [s2orc_record("1")])
    write_lines(tmp_path / "a.jsonl", [{"paper_id": 1}])
    pq.write_table(pa.table({"paper_id": ["1"]}), tmp_path / "a.parquet")
    write_lines(tmp_path / "papers" / "a.gz", [s2ag_paper(1)])
    write_lines(tmp_path / "abstracts" / "a.gz", [b""])
    write_lines(tmp_path / "citations" / "a.gz", [s2ag_citation("1", "2")])
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "d1"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q1"}])
    write_lines(tmp_path / "data" / "works" / "updated_date=2020-01-01" / "part_0.gz", [openalex_work(1)])
    not_a_file(tmp_path / name, kind)
    with pytest.raises(InputError, match=rf"{Path(name).name} is not a file \("):
        open_release(source, tmp_path, {}).identity()


@pytest.mark.parametrize("depth", [600, 5_000, 100_000])
@pytest.mark.parametrize("opened", ['{"z": ', '{"paper_id": ', '{"paper_id": "1", "title": ', ""])
def test_deep_json_is_dropped(tmp_path: Path, depth: int, opened: str) -> None:
    closed = "}" if opened else ""
    deep = [opened + "[" * depth + "]" * depth + closed, opened + '{"a":' * depth + "1" + "}" * depth + closed]
    lines: list[dict[str, Any] | bytes] = [text.encode() + b"\n" for text in deep]
    path = write_lines(tmp_path / "a.jsonl", [*lines, {"paper_id": "2"}])
    rows, total = read(Collection(path, "jsonl"))
    assert [row["paper_id"] for row in rows] == ["2"]
    assert total.dropped.total() == 2


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"files": ' + b'{"a":' * 100_000, b"\xff", b'{"files": [1]}', b"{}"]
)
def test_a_manifest_of_works_that_cannot_be_read_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptError, match="works/manifest is no manifest"):
        read_manifest(text, "works/manifest")


@pytest.mark.parametrize("entry", ['{"url": "works/updated_date=1/part_0.gz", "meta": {"content_length": "x"}}'])
def test_a_size_of_the_wrong_type_is_refused(tmp_path: Path, entry: str) -> None:
    write_lines(tmp_path / "updated_date=1" / "part_0.gz", [openalex_work(1)])
    (tmp_path / "manifest").write_text(f'{{"entries": [{entry}]}}')
    with pytest.raises(CorruptError, match="manifest"):
        Layout.find(tmp_path).files()
