"""Hostile inputs: each is dropped and counted, or refused by an error that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.corpus.reader import Corpus
from pipeline.sources import papers
from pipeline.sources.collection import JsonLines
from pipeline.sources.openalex import OpenAlex
from pipeline.sources.registry import open_release
from tests.releases import (
    openalex_work,
    read,
    s2ag_abstract,
    s2ag_citation,
    s2ag_paper,
    s2orc_record,
    write_lines,
    write_s2orc,
)
from tests.sources.test_beir import write_beir

WORKS = "data/works/updated_date=2020-01-01/part_0.gz"

Build = Callable[[Any], Artifact]


def write_release(folder: Path, source: str, text: str | None = None) -> None:
    """Write a small release of a source, with ``text`` as the abstract of its first paper."""
    if source == "s2orc2020":
        write_s2orc(folder, [s2orc_record("1", abstract=text)])
    elif source == "jsonl":
        write_lines(folder / "a.jsonl", [{"paper_id": 1, "title": "T", "abstract": text}])
    elif source == "s2ag":
        write_lines(folder / "papers" / "a.gz", [s2ag_paper(1)])
        write_lines(folder / "abstracts" / "a.gz", [s2ag_abstract(1, text or "x")])
        write_lines(folder / "citations" / "a.gz", [s2ag_citation("1", "2")])
    elif source == "openalex":
        index = {"w" * 400: [0, 2, 4], "v": [1, 3, 5]}
        write_lines(folder / WORKS, [openalex_work(1, abstract_inverted_index=index if text else None)])
    else:
        write_beir(folder)
        if text:
            write_lines(folder / "corpus.jsonl", [{"_id": "d1", "text": text}, {"_id": "d2"}])
            write_lines(folder / "queries.jsonl", [{"_id": "q1", "text": text}, {"_id": "q9", "text": "x"}])


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"files": ' + b'{"a":' * 100_000, b"\xff", b'{"files": [1]}', b"{}"]
)
def test_a_manifest_of_works_that_cannot_be_read_is_refused(tmp_path: Path, text: bytes) -> None:
    write_lines(tmp_path / "updated_date=1" / "part_0.gz", [openalex_work(1)])
    (tmp_path / "manifest").write_bytes(text)
    with pytest.raises(CorruptError, match="manifest is not a manifest"):
        OpenAlex(tmp_path).files()


@pytest.mark.parametrize("content", [b"", b"\0" * 300_000], ids=["empty", "zeros"])
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("jsonl", "b.jsonl"),
        ("s2ag", "citations/b.gz"),
        ("openalex", WORKS.replace("part_0", "part_1")),
        ("beir", "qrels/test.tsv"),
    ],
)
def test_a_file_without_data_is_refused(tmp_path: Path, build: Build, source: str, name: str, content: bytes) -> None:
    write_release(tmp_path, source)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{Path(name).name} holds no data\. .*again"):
        build(open_release(source, tmp_path, {}))


@pytest.mark.parametrize("unit", ["1,", '"ab",', "[],", "{},", "[[[1]]],"])
@pytest.mark.parametrize("units", [900_000, 1_100_000])
def test_a_line_of_too_many_values_is_dropped(tmp_path: Path, unit: str, units: int) -> None:
    lines = [b'{"paper_id": 1, "z": [' + unit.encode() * units + b"1]}\n", b'{"paper_id": 2}\n']
    rows, total = read(JsonLines(write_lines(tmp_path / "a.jsonl", [*lines, lines[0]])))
    few = unit.count(",") + unit.count("[") + unit.count("{") == 1 and units < 1_000_000
    assert [row["paper_id"] for row in rows] == (["1", "2", "1"] if few else ["2"])
    assert total.dropped == ({} if few else {"line_too_long": 2})


@pytest.mark.parametrize("source", ["s2orc2020", "jsonl", "s2ag", "openalex", "beir"])
def test_a_long_text_is_cut_and_counted(tmp_path: Path, build: Build, source: str) -> None:
    write_release(tmp_path, source, "\U0001f600 " * 300 + "x" * 700)
    whole, texts = (1300 if source != "openalex" else 1208), 2 if source == "beir" else 1
    ids = set()
    for max_text, length, cut in (("1000", 1000, texts), ("1M", whole, 0)):
        artifact = build(open_release(source, tmp_path, {"max_text": max_text}))
        ids.add(artifact.id)
        abstracts = Corpus(artifact).take(np.arange(1), ["abstract"]).column(0)
        assert len(abstracts[0].as_py()) == length
        assert artifact.manifest.counts["noted"].get("text_cut", 0) == cut
    assert len(ids) == 2


def test_a_batch_ends_by_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "BATCH_CHARS", 1_000)
    records = [{"paper_id": n, "abstract": "x" * 400} for n in range(7)] + [{"paper_id": 7, "references": [1] * 32}]
    path = write_lines(tmp_path / "a.jsonl", records)
    assert [len(batch.papers) for batch in JsonLines(path).read("a.jsonl")] == [3, 3, 2, 0]
