"""Hostile content of files: what each is, and what has to come of it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.releases import openalex_work, s2orc_record

Files = Mapping[str, bytes]


def line(record: Any) -> bytes:
    """Return a record as a JSON line."""
    return json.dumps(record).encode() + b"\n"


_RECORDS = b"".join(line(s2orc_record(str(number), title=f"Title {number * 7919}")) for number in range(200))
GZ = gzip.compress(_RECORDS, mtime=0)
_TWO = gzip.compress(line(s2orc_record("1")), mtime=0) + gzip.compress(line(s2orc_record("2")), mtime=0)
SHARD = "metadata_0.jsonl.gz"

# gzip files: what is counted, or said.
GZIP: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("of no bytes", b"", None, SHARD),
    ("cut in the middle", GZ[: len(GZ) // 2], None, "truncated"),
    ("cut in the trailer", GZ[:-3], None, "truncated"),
    ("with a flipped bit", GZ[:200] + bytes([GZ[200] ^ 4]) + GZ[201:], None, SHARD),
    ("with a wrong checksum", GZ[:-8] + bytes(4) + GZ[-4:], None, SHARD),
    ("that is plain text", _RECORDS, None, SHARD),
    ("with text behind it", _TWO + b"not gzip", None, SHARD),
    ("with half a member behind it", _TWO + GZ[:100], None, "truncated"),
    ("with zeros behind it", _TWO + bytes(512), {}, ""),
    ("of two members", _TWO, {}, ""),
    ("of an empty member", gzip.compress(b""), None, ""),
    ("of bad lines alone", gzip.compress(b"{\n{\n"), None, "must have a paper"),
]

PAPERS = line({"paper_id": "1", "title": "É"}) + line({"paper_id": "2", "references": ["1"]})
_LIST = b"[" + PAPERS.replace(b"\n", b"\n,", 1) + b"]"


def _tar(data: bytes) -> bytes:
    with io.BytesIO() as file, tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
        archive.close()
        return file.getvalue()


# Files of JSON lines by name and content: what is counted, or said.
CONTENTS: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("utf16.jsonl", PAPERS.decode().encode("utf-16"), {}, ""),
    ("utf16-no-mark.jsonl.gz", gzip.compress(PAPERS.decode().encode("utf-16-be")), {}, ""),
    ("utf8-mark.jsonl", b"\xef\xbb\xbf" + PAPERS, {}, ""),
    ("carriage-returns.jsonl", PAPERS.replace(b"\n", b"\r"), {}, ""),
    ("gzip.jsonl", gzip.compress(PAPERS), {}, ""),
    ("list.json", _LIST, {}, ""),
    ("list-by-line.json", b"[\n" + PAPERS.replace(b"\n{", b"\n,{") + b"]\n", {}, ""),
    ("indented.json", json.dumps(json.loads(_LIST), indent=1).encode(), {}, ""),
    ("list-of-lists.jsonl.gz", gzip.compress(b"[" + _LIST + b",\n" + b"[]]"), {}, ""),
    ("pages.jsonl", b'{"meta": {}, "results": ' + _LIST.replace(b"\n", b"") + b"}\n", {}, ""),
    ("list-with-bad-utf8.json", _LIST[:-1] + b',{"paper_id": "3", "title": "\xff"}]', {"bad_utf8": 1}, ""),
    ("list-broken-off.json", _LIST[:-3], None, "json:2 is not complete JSON"),
    ("list-without-end.json", b"[" + PAPERS.replace(b"\n{", b",{"), None, "it breaks off"),
    ("list-of-no-json.json", _LIST.replace(b'"2"', b"NumberInt(2)"), None, "json:2 is not complete JSON: it has"),
    ("by-id.json", b'{"1": ' + PAPERS.partition(b"\n")[0] + b"}", None, "not papers by id"),
    ("archive.jsonl", _tar(PAPERS), None, "is a tar archive"),
    ("archive.jsonl.gz", gzip.compress(_tar(PAPERS)), None, "is a tar archive"),
    ("zip.jsonl", b"PK\x03\x04" + bytes(99), None, "is a ZIP archive"),
    ("twice.jsonl.gz", gzip.compress(gzip.compress(PAPERS)), None, "is gzip in gzip"),
    ("text.jsonl.gz", PAPERS, None, "is not gzip"),
    ("page.jsonl.gz", b"\n<!DOCTYPE html><html>", None, "is an HTML page"),
    ("pointer.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", None, "git lfs pull"),
    ("parquet.jsonl", b"PAR1" + bytes(99), None, "--source parquet"),
    ("table.jsonl", b"paper_id,title\n1,A\n", None, "--source csv"),
    ("bibtex.jsonl", b"@article{a,\n title={A}\n}\n", None, "--source bibtex"),
    ("latin1.jsonl", PAPERS.decode("unicode-escape").encode("latin1") + b'{"title": "\xe9"}\n', None, "iconv"),
]

_TABLE_TEXT = b'paper_id,title,year,references\n1,"A, ""B""\nC",2019,\n2,"B",in press,"[\'1\', nan]"\n'

# Files of a source by name and content: what is counted, or said.
FLAT: list[tuple[str, str, bytes, Mapping[str, int] | None, str]] = [
    ("csv", "a.csv", _TABLE_TEXT, {"year not a year": 1}, ""),
    ("csv", "latin1.csv", _TABLE_TEXT + b"3,\xe9\n", {"bad_utf8": 1}, ""),
    ("csv", "no-id.csv", b"id,title\n1,A\n", None, "use --columns"),
    ("csv", "twice.csv", b"paper_id,title,title\n1,A,B\n", None, "got 'title' twice"),
    ("csv", "json.csv", PAPERS, None, "--source jsonl"),
    (
        "bibtex",
        "a.bib",
        b"@misc{a, title={A}, date={2019-05}}\n@misc{b, year={in press}}",
        {"year not a year": 1},
        "",
    ),
    ("bibtex", "twice.bib", b"@misc{a, title={A}}\n@misc{a, title={B}}", {"duplicate_id_other_text": 1}, ""),
    ("bibtex", "broken.bib", b"@misc{a, title={A}}\n@misc{b}\n@misc{c, title={C", {"bad_bibtex": 1}, ""),
    ("bibtex", "latin1.bib", b"@misc{a, title={A}}\n@misc{b, title={\xe9}}", {"bad_utf8": 1}, ""),
    ("s2ag", "batch.json", b'[null, {"paperId": "a", "title": "A"}, {"paperId": "b"}]', None, "no S2AG papers"),
    ("openalex", "page.json", b'{"meta": {}, "results": [' + line(openalex_work(1)) + b"]}", {}, ""),
    ("jsonl", "tldrs.jsonl", line({"corpusid": 1, "model": "m", "text": "t"}), None, "has an id in 'paper_id'"),
    ("s2ag", "s2orc/0.jsonl.gz", gzip.compress(line({"corpusid": 1, "content": {}})), None, "no S2AG papers"),
]

_CONTEXT = line({"context": "As shown.", "cited": "1", "citing": "2", "year": 2019})
_EDGE = {"citingcorpusid": 2, "citedcorpusid": 1}

# Files of citation contexts by name and content: what is counted, or said.
CONTEXTS: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("nulls.txt", _CONTEXT + line({"context": "x", "cited": ["1", None], "year": "2019"}), {"null in cited": 1}, ""),
    ("no-year.txt", _CONTEXT + line({"context": "x", "cited": "1"}), {"context_without_year": 1}, ""),
    ("s2ag.txt", _CONTEXT + line(_EDGE | {"contexts": ["a", None]}), {"no_context": 1}, ""),
    ("s2orc.txt", line({"paper_id": "2", "body_text": "text"}), None, "must hold a context"),
]


def _parquet(table: pa.Table, change: Callable[[bytes], bytes] = bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / "a.parquet"
        pq.write_table(table, path)
        path.write_bytes(change(path.read_bytes()))

    return write


def _bad_text() -> pa.Array:
    """Return three strings, one of which is not UTF-8."""
    return pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0\4\0\0\0"), pa.py_buffer(b"a\xff\xfeb")]
    )


_TABLE = pa.table({"paper_id": ["1", "2", "3"], "title": ["a", "b", "c"]})

# Parquet files: what is counted, or said.
PARQUET: list[tuple[str, Files | Callable[[Path], None], Mapping[str, int] | None, str]] = [
    ("a title that is no UTF-8", _parquet(_TABLE.set_column(1, "title", _bad_text())), {"title not UTF-8": 1}, ""),
    (
        "ids that are lists",
        _parquet(_TABLE.set_column(0, "paper_id", [[["1", "2"], ["2", "3"], ["3", "4"]]])),
        None,
        "must have",
    ),
    ("a null id", _parquet(_TABLE.set_column(0, "paper_id", [["1", None, "3"]])), {"no_paper_id": 1}, ""),
    (
        "infinite years",
        _parquet(_TABLE.append_column("year", [[2019.0, float("inf"), 2020.0]])),
        {"year not a year": 1},
        "",
    ),
    ("no column of ids", _parquet(_TABLE.rename_columns(["id", "title"])), None, "paper_id"),
    ("cut in the middle", _parquet(_TABLE, lambda data: data[: len(data) // 2]), None, "a.parquet"),
    ("of no bytes", {"a.parquet": b""}, None, "a.parquet"),
    ("a zeroed column", _parquet(_TABLE, lambda data: data[:4] + bytes(60) + data[64:]), None, "a.parquet"),
]


_EMPTY = gzip.compress(b"", mtime=0)
_ONE, _OTHER = (gzip.compress(line(s2orc_record(number))) for number in "12")

# Members of a gzip file: what is counted.
MEMBERS: dict[str, bytes] = {
    "an empty member first": _EMPTY + _ONE,
    "empty members between": _ONE + _EMPTY * 2 + _OTHER,
    "an empty member last": _ONE + _OTHER + _EMPTY,
    "100,000 empty members": _ONE + _EMPTY * 100_000 + _OTHER,
}

# Texts whose markup is unusual; no paper is lost for one, and none takes long.
MARKUP: dict[str, str] = {
    "tags without end": "<i>" * 20_000,
    "brackets alone": "<" * 100_000 + ">" * 100_000,
    "attributes without end": "<p " + "a='b' " * 20_000,
    "entities within entities": "&amp;" * 20_000 + "amp;lt;i&gt;",
    "entities of no character": "&#0;&#x110000;&#9999999;&nosuch;",
    "commands within commands": "\\emph{" * 5_000 + "x" + "}" * 5_000,
    "commands without arguments": "\\frac \\sqrt \\'" * 5_000,
    "braces without partner": "\\{{" * 20_000,
    "formulas without end": "$ \\( " * 20_000,
}
