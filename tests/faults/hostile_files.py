"""Hostile content of files: what each is, and what has to come of it."""

from __future__ import annotations

import gzip
import json
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
SHARD = "metadata_0.jsonl.gz"

_EMPTY, _ONE, _OTHER = (
    gzip.compress(text, mtime=0) for text in (b"", line(s2orc_record("1")), line(s2orc_record("2")))
)

Outcome = Mapping[str, int] | str
"""What the corpus counts, by name, of what is read, kept, dropped or noted; or what the message of a refusal holds."""

GZIP: dict[str, tuple[bytes, Outcome]] = {
    "cut in the trailer": (GZ[:-3], "truncated"),
    "with a flipped bit": (GZ[:200] + bytes([GZ[200] ^ 4]) + GZ[201:], SHARD),
    "with a wrong checksum": (GZ[:-8] + bytes(4) + GZ[-4:], SHARD),
    "with text behind it": (_ONE + b"not gzip", SHARD),
    "with half a member behind it": (_ONE + GZ[:100], "truncated"),
    "with zeros behind it": (_ONE + _OTHER + bytes(512), {"kept": 2}),
    "with empty members": (_EMPTY + _ONE + _EMPTY * 100_000 + _OTHER + _EMPTY, {"kept": 2}),
    "of an empty member": (_EMPTY, ""),
    "of bad lines alone": (gzip.compress(b"{\n{\n"), "must have a paper"),
}

PAPERS = line({"paper_id": "1", "title": "É"}) + line({"paper_id": "2", "references": ["1"]})
_LIST = b"[" + PAPERS.replace(b"\n", b"\n,", 1) + b"]"

READ: dict[str, bytes] = {
    "utf16.jsonl": PAPERS.decode().encode("utf-16"),
    "utf16-no-mark.jsonl.gz": gzip.compress(PAPERS.decode().encode("utf-16-be")),
    "utf8-mark.jsonl": b"\xef\xbb\xbf" + PAPERS,
    "carriage-returns.jsonl": PAPERS.replace(b"\n", b"\r"),
    "gzip.jsonl": gzip.compress(PAPERS),
    "list.json": _LIST,
    "list-by-line.json": b"[\n" + PAPERS.replace(b"\n{", b"\n,{") + b"]\n",
    "indented.json": json.dumps(json.loads(_LIST), indent=1).encode(),
    "list-of-lists.jsonl.gz": gzip.compress(b"[" + _LIST + b",\n" + b"[]]"),
    "list-with-bad-utf8.json": _LIST[:-1] + b',{"paper_id": "3", "title": "\xff"}]',
}
"""The same two papers in other content, which ``tests/sources/test_content.py`` reads."""

UNREAD: dict[str, tuple[bytes, str]] = {
    "list-broken-off.json": (_LIST[:-3], "json:2 is not complete JSON"),
    "list-without-end.json": (b"[" + PAPERS.replace(b"\n{", b",{"), "it breaks off"),
    "by-id.json": (b'{"1": ' + PAPERS.partition(b"\n")[0] + b"}", "not papers by id"),
    "pages.jsonl": (b'{"meta": {}, "results": ' + _LIST.replace(b"\n", b"") + b"}\n", "jq -c '.results[]'"),
    "archive.jsonl.gz": (gzip.compress(bytes(257) + b"ustar" + bytes(250)), "is a tar archive"),
    "twice.jsonl.gz": (gzip.compress(gzip.compress(PAPERS)), "is gzip in gzip"),
    "text.jsonl.gz": (PAPERS, "is not gzip"),
    "page.jsonl.gz": (b"\n<!DOCTYPE html><html>", "is an HTML page"),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "parquet.jsonl": (b"PAR1" + bytes(99), "--source parquet"),
    "table.jsonl": (b"paper_id,title\n1,A\n", "--source csv"),
    "latin1.jsonl": (PAPERS.decode("unicode-escape").encode("latin1") + b'{"title": "\xe9"}\n', "iconv"),
    "tldrs.jsonl": (line({"corpusid": 1, "model": "m", "text": "t"}), "has an id in 'paper_id'"),
}
"""JSON lines and lists that hold something else."""

_TABLE_TEXT = b'paper_id,title,year,references\n1,"A, ""B""\nC",2019,\n2,"B",in press,"[\'1\', nan]"\n'

_BIBTEX = (
    b"@misc{a, title={A}, date={2019-05}}\n@misc{b, year={in press}}\n@misc{a, title={B}}\n"
    b"@misc{c, title={\xe9}}\n@misc{d, title={D"
)

FLAT: list[tuple[str, str, bytes, Outcome]] = [
    ("csv", "a.csv", _TABLE_TEXT + b"3,\xe9\n", {"year not a year": 1, "bad_utf8": 1}),
    ("csv", "no-id.csv", b"id,title\n1,A\n", "use --columns"),
    ("csv", "twice.csv", b"paper_id,title,title\n1,A,B\n", "got 'title' twice"),
    (
        "bibtex",
        "a.bib",
        _BIBTEX,
        {"year not a year": 1, "duplicate_id_other_text": 1, "bad_utf8": 1, "bad_bibtex": 1},
    ),
    ("s2ag", "batch.json", b'[null, {"paperId": "a", "title": "A"}, {"paperId": "b"}]', "no S2AG papers"),
    ("openalex", "page.json", b'{"meta": {}, "results": [' + line(openalex_work(1)) + b"]}", "jq -c '.results"),
]
"""Files of a source: source, name, content, outcome."""

_CONTEXT = line({"context": "As shown.", "cited": "1", "citing": "2", "year": 2019})
_EDGE = {"citingcorpusid": 2, "citedcorpusid": 1}

CONTEXTS: dict[str, tuple[bytes, Outcome]] = {
    "nulls.txt": (
        _CONTEXT + line({"context": "x", "cited": ["1", None], "year": "2019"}) + line({"context": "x", "cited": "1"}),
        {"null in cited": 1, "context_without_year": 1},
    ),
    "s2ag.txt": (_CONTEXT + line(_EDGE | {"contexts": ["a", None]}), {"no_context": 1}),
    "s2orc.txt": (line({"paper_id": "2", "body_text": "text"}), "must hold a context"),
}


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
_YEARS = pa.table({"paper_id": ["1", None, "3"], "title": _bad_text(), "year": [float("inf"), 2020.0, 2019.0]})

PARQUET: dict[str, tuple[Files | Callable[[Path], None], Outcome]] = {
    "odd values": (_parquet(_YEARS), {"no_paper_id": 1, "title not UTF-8": 1, "year not a year": 1}),
    "ids that are lists": (
        _parquet(_TABLE.set_column(0, "paper_id", [[["1", "2"]] * 3])),
        "must have",
    ),
    "no column of ids": (_parquet(_TABLE.rename_columns(["id", "title"])), "paper_id"),
    "cut in the middle": (_parquet(_TABLE, lambda data: data[: len(data) // 2]), "a.parquet"),
    "a zeroed column": (_parquet(_TABLE, lambda data: data[:4] + bytes(60) + data[64:]), "a.parquet"),
}

MARKUP = (
    "<i>" * 20_000,
    "<" * 50_000 + ">" * 50_000,
    "<p " + "a='b' " * 20_000,
    "&amp;" * 20_000 + "amp;lt;i&gt;",
    "&#0;&#x110000;&#9999999;&nosuch;",
    "\\emph{" * 5_000 + "x" + "}" * 5_000,
    "\\frac \\sqrt \\'" * 5_000,
    "\\{{" * 20_000,
    "$ \\( " * 10_000,
)
"""Texts whose markup is unusual; no paper is lost for one, and none takes long."""
