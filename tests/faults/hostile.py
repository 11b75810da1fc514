"""Hostile lines, files, addresses and runs: what each is, and what has to come of it."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.releases import openalex_work, s2ag_abstract, s2ag_citation, s2ag_paper, s2orc_record

Files = Mapping[str, bytes]


class Input(NamedTuple):
    """A release with something hostile in it.

    Attributes:
        name: of the row.
        source: for ``--source``.
        files: content by path below the input folder, or what fills the folder.
        counted: what the corpus has to count, by name, of what is dropped or noted; None: it has to be refused.
        said: what the message of a refusal has to hold.
        options: more words of the command; INPUT is the input folder.
    """

    name: str
    source: str
    files: Files | Callable[[Path], None]
    counted: Mapping[str, int] | None = None
    said: str = ""
    options: tuple[str, ...] = ()


def line(record: Any) -> bytes:
    """Return a record as a JSON line."""
    return json.dumps(record).encode() + b"\n"


def _s2orc(text: bytes) -> Files:
    return {"metadata_0.jsonl": line(s2orc_record("1")) + text + line(s2orc_record("2"))}


def _s2ag(text: bytes) -> Files:
    return {
        "papers/0.jsonl": line(s2ag_paper(1)) + text + line(s2ag_paper(2)),
        "abstracts/0.jsonl": line(s2ag_abstract(1, "An abstract of some length.")),
        "citations/0.jsonl": line(s2ag_citation("1", "2")),
    }


def _openalex(text: bytes) -> Files:
    works = line(openalex_work(1)) + text + line(openalex_work(2))
    return {"data/works/updated_date=2023-04-10/part_000.gz": gzip.compress(works)}


def _jsonl(text: bytes) -> Files:
    return {"a.jsonl": line({"paper_id": "1", "title": "A"}) + text + line({"paper_id": "2", "title": "B"})}


SOURCES: Mapping[str, tuple[Callable[[bytes], Files], Callable[[int], dict[str, Any]]]] = {
    "s2orc2020": (_s2orc, lambda number: s2orc_record(str(number))),
    "s2ag": (_s2ag, s2ag_paper),
    "openalex": (_openalex, openalex_work),
    "jsonl": (_jsonl, lambda number: {"paper_id": str(number), "title": "C"}),
}

# Lines that no source can read, and the reason each is dropped for.
LINES: Mapping[bytes, str] = {
    b"{bad\n": "bad_json",
    b"[]\n": "wrong_type",
    b"null\n": "wrong_type",
    b'{"title": "\xff\xfe"}\n': "bad_utf8",
    b"\xef\xbb\xbf[]\n": "wrong_type",
    bytes(64) + b"\n": "bad_json",
    b'{"deep": ' * 100_000 + b"\n": "bad_json",
    b'{"deep": ' + b"[" * 100_000 + b"\n": "bad_json",
    b'{"title": NaN}\n': "no_paper_id",
}

# Values of a record, by source and by the reason it is dropped for, or noted under. Only an odd id drops a record.
VALUES: Mapping[str, Mapping[str, list[dict[str, Any]]]] = {
    "s2orc2020": {
        "no_paper_id": [{"paper_id": ""}, {"paper_id": None}],
        "wrong_type": [{"paper_id": ["3"]}, {"paper_id": True}],
        "abstract not a text": [{"abstract": {"text": "x"}}],
        "year not a year": [{"year": "in press"}, {"year": 1e308 * 10}],
        "outbound_citations not a list": [{"outbound_citations": "1"}],
        "null in outbound_citations": [{"outbound_citations": ["1", None]}],
        "impossible_year": [{"year": 10**30}, {"year": -5}],
        "references_repeated_or_self": [{"outbound_citations": ["1", 1]}],
        "unknown_field: <b>|`x`": [{"mag_field_of_study": ["<b>|`x`"]}],
        "duplicate_id_other_text": [{"paper_id": "1"}, {"paper_id": 1.0}],
    },
    "s2ag": {
        "no_paper_id": [{"corpusid": None}, {"corpusid": ""}],
        "wrong_type": [{"corpusid": True}],
        "title not a text": [{"title": {}}],
        "year not a year": [{"year": "n.d."}],
        "s2fieldsofstudy not a list": [{"s2fieldsofstudy": "Medicine"}],
        "externalids not of its type": [{"externalids": "10.1/a"}],
        "impossible_year": [{"year": 0}],
        "duplicate_id_other_text": [{"corpusid": 1}],
    },
    "openalex": {
        "no_paper_id": [{"id": None}, {"id": "https://openalex.org/"}],
        "retracted": [{"is_retracted": True}],
        "xpac": [{"is_xpac": True}],
        "wrong_type": [{"id": True}],
        "score not a number": [{"concepts": [{"display_name": "Art", "level": 0, "score": "high"}]}],
        "abstract_inverted_index not an index": [{"abstract_inverted_index": "{"}],
        "referenced_works not a text": [{"referenced_works": [{"id": "W4"}]}],
        "duplicate_id_other_text": [{"id": "https://openalex.org/W1"}],
    },
    "jsonl": {
        "no_paper_id": [{"paper_id": ""}],
        "wrong_type": [{"paper_id": ["3"]}],
        "year not a year": [{"year": True}, {"year": "20199"}, {"year": 2019.5}, {"year": "in press"}],
        "n_inbound not a number": [{"n_inbound": 2**31}, {"n_inbound": "many"}],
        "references not a text": [{"references": [{"id": 1}]}],
        "null in references": [{"references": ["1", None]}],
        "unknown_field: 3": [{"fields": 3}],
        "duplicate_id_other_text": [{"paper_id": "1"}],
    },
}

_RECORDS = b"".join(line(s2orc_record(str(number), title=f"Title {number * 7919}")) for number in range(200))
_GZ = gzip.compress(_RECORDS, mtime=0)
_TWO = gzip.compress(line(s2orc_record("1")), mtime=0) + gzip.compress(line(s2orc_record("2")), mtime=0)
_SHARD = "metadata_0.jsonl.gz"

# gzip files: what is counted, or said.
GZIP: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("of no bytes", b"", None, _SHARD),
    ("cut in the middle", _GZ[: len(_GZ) // 2], None, "truncated"),
    ("cut in the trailer", _GZ[:-3], None, "truncated"),
    ("with a flipped bit", _GZ[:200] + bytes([_GZ[200] ^ 4]) + _GZ[201:], None, _SHARD),
    ("with a wrong checksum", _GZ[:-8] + bytes(4) + _GZ[-4:], None, _SHARD),
    ("that is plain text", _RECORDS, None, _SHARD),
    ("with text behind it", _TWO + b"not gzip", None, _SHARD),
    ("with half a member behind it", _TWO + _GZ[:100], None, "truncated"),
    ("with zeros behind it", _TWO + bytes(512), {}, ""),
    ("of two members", _TWO, {}, ""),
    ("of an empty member", gzip.compress(b""), None, ""),
    ("of bad lines alone", gzip.compress(b"{\n{\n"), None, "must have a paper"),
]

_PAPERS = line({"paper_id": "1", "title": "É"}) + line({"paper_id": "2", "references": ["1"]})
_LIST = b"[" + _PAPERS.replace(b"\n", b"\n,", 1) + b"]"


def _tar(data: bytes) -> bytes:
    with io.BytesIO() as file, tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
        archive.close()
        return file.getvalue()


# Files of JSON lines by name and content: what is counted, or said.
CONTENTS: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("utf16.jsonl", _PAPERS.decode().encode("utf-16"), {}, ""),
    ("utf16-no-mark.jsonl.gz", gzip.compress(_PAPERS.decode().encode("utf-16-be")), {}, ""),
    ("utf8-mark.jsonl", b"\xef\xbb\xbf" + _PAPERS, {}, ""),
    ("carriage-returns.jsonl", _PAPERS.replace(b"\n", b"\r"), {}, ""),
    ("gzip.jsonl", gzip.compress(_PAPERS), {}, ""),
    ("list.json", _LIST, {}, ""),
    ("list-by-line.json", b"[\n" + _PAPERS.replace(b"\n{", b"\n,{") + b"]\n", {}, ""),
    ("indented.json", json.dumps(json.loads(_LIST), indent=1).encode(), {}, ""),
    ("list-of-lists.jsonl.gz", gzip.compress(b"[" + _LIST + b",\n" + b"[]]"), {}, ""),
    ("pages.jsonl", b'{"meta": {}, "results": ' + _LIST.replace(b"\n", b"") + b"}\n", {}, ""),
    ("list-with-bad-utf8.json", _LIST[:-1] + b',{"paper_id": "3", "title": "\xff"}]', {"bad_utf8": 1}, ""),
    ("list-broken-off.json", _LIST[:-3], None, "json:2 is not complete JSON"),
    ("list-without-end.json", b"[" + _PAPERS.replace(b"\n{", b",{"), None, "it breaks off"),
    ("list-of-no-json.json", _LIST.replace(b'"2"', b"NumberInt(2)"), None, "json:2 is not complete JSON: it has"),
    ("by-id.json", b'{"1": ' + _PAPERS.partition(b"\n")[0] + b"}", None, "not papers by id"),
    ("archive.jsonl", _tar(_PAPERS), None, "is a tar archive"),
    ("archive.jsonl.gz", gzip.compress(_tar(_PAPERS)), None, "is a tar archive"),
    ("zip.jsonl", b"PK\x03\x04" + bytes(99), None, "is a ZIP archive"),
    ("twice.jsonl.gz", gzip.compress(gzip.compress(_PAPERS)), None, "is gzip in gzip"),
    ("text.jsonl.gz", _PAPERS, None, "is not gzip"),
    ("page.jsonl.gz", b"\n<!DOCTYPE html><html>", None, "is an HTML page"),
    ("pointer.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", None, "git lfs pull"),
    ("parquet.jsonl", b"PAR1" + bytes(99), None, "--source parquet"),
    ("table.jsonl", b"paper_id,title\n1,A\n", None, "--source csv"),
    ("bibtex.jsonl", b"@article{a,\n title={A}\n}\n", None, "--source bibtex"),
    ("latin1.jsonl", _PAPERS.decode("unicode-escape").encode("latin1") + b'{"title": "\xe9"}\n', None, "iconv"),
]

_TABLE_TEXT = b'paper_id,title,year,references\n1,"A, ""B""\nC",2019,\n2,"B",in press,"[\'1\', nan]"\n'

# Files of a source by name and content: what is counted, or said.
FLAT: list[tuple[str, str, bytes, Mapping[str, int] | None, str]] = [
    ("csv", "a.csv", _TABLE_TEXT, {"year not a year": 1}, ""),
    ("csv", "utf16.tsv.gz", gzip.compress(_TABLE_TEXT.replace(b",", b"\t").decode().encode("utf-16")), {}, ""),
    ("csv", "too-many-cells.csv", _TABLE_TEXT + b"3,a,b,c,d\n", {"bad_columns": 1}, ""),
    ("csv", "open-quote.csv", _TABLE_TEXT + b'3,"a\n', {"bad_columns": 1}, ""),
    ("csv", "latin1.csv", _TABLE_TEXT + b"3,\xe9\n", {"bad_utf8": 1}, ""),
    ("csv", "no-id.csv", b"id,title\n1,A\n", None, "use --columns"),
    ("csv", "twice.csv", b"paper_id,title,title\n1,A,B\n", None, "got 'title' twice"),
    ("csv", "json.csv", _PAPERS, None, "--source jsonl"),
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
    ("bibtex", "json.bib", _PAPERS, None, "--source jsonl"),
    ("s2ag", "batch.json", b'[null, {"paperId": "a", "title": "A"}, {"paperId": "b"}]', {"unknown_to_the_api": 1}, ""),
    ("openalex", "page.json", b'{"meta": {}, "results": [' + line(openalex_work(1)) + b"]}", {}, ""),
    ("jsonl", "few.jsonl", line({"paper_id": "1", "title": "A", "references": [f"x{n}" for n in range(30)]}), {}, ""),
    ("jsonl", "tldrs.jsonl", line({"corpusid": 1, "model": "m", "text": "t"}), None, "the tldrs of S2AG"),
    ("s2ag", "s2orc/0.jsonl.gz", gzip.compress(line({"corpusid": 1, "content": {}})), None, "is full text"),
    ("s2orc2020", "pdf_parses_0.jsonl", line({"paper_id": "1", "body_text": []}), None, "is full text"),
]

_CONTEXT = line({"context": "As shown.", "cited": "1", "citing": "2", "year": 2019})
_EDGE = {"citingcorpusid": 2, "citedcorpusid": 1}

# Files of citation contexts by name and content: what is counted, or said.
CONTEXTS: list[tuple[str, bytes, Mapping[str, int] | None, str]] = [
    ("nulls.txt", _CONTEXT + line({"context": "x", "cited": ["1", None], "year": "2019"}), {"null in cited": 1}, ""),
    ("no-year.txt", _CONTEXT + line({"context": "x", "cited": "1"}), {"context_without_year": 1}, ""),
    ("year.txt", _CONTEXT + line({"context": "x", "cited": "1", "year": "n.d."}), {"year not a year": 1}, ""),
    ("s2ag.txt", _CONTEXT + line(_EDGE | {"contexts": ["a", None]}), {"no_context": 1}, ""),
    ("s2orc.txt", _CONTEXT + line({"paper_id": "2", "body_text": "text"}), {"wrong_type": 1}, ""),
    ("s2ag-without.txt", line(_EDGE | {"contexts": None}), None, "must hold a context"),
    ("table.txt", b"context,cited\nAs shown,1\n", None, "is a table, not JSON"),
]

_CORPUS = line({"_id": "d1", "title": "T", "text": "one"}) + line({"_id": "d2", "text": "two"})
_FIRST = line({"_id": "q1", "text": "first"})
_QUERIES = _FIRST + line({"_id": "q2", "text": "second"})
_HEAD = b"query-id\tcorpus-id\tscore\n"
_QRELS = _HEAD + b"q1\td1\t1\nq2\td2\t1\n"


def _beir(corpus: bytes = _CORPUS, queries: bytes = _QUERIES, qrels: bytes = _QRELS) -> Files:
    return {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels}


# BEIR folders: what is counted, or said.
BEIR: list[tuple[str, Files, Mapping[str, int] | None, str]] = [
    (
        "a query twice, the same",
        _beir(queries=_QUERIES + line({"_id": "q1", "text": "first"})),
        {"query_repeated": 1},
        "",
    ),
    (
        "a query twice, another text",
        _beir(queries=_QUERIES + line({"_id": "q1", "text": "other"})),
        {"query_repeated_other_text": 1},
        "",
    ),
    (
        "a document twice",
        _beir(corpus=_CORPUS + line({"_id": "d1", "text": "other"})),
        {"duplicate_id_other_text": 1},
        "",
    ),
    ("a judgement twice", _beir(qrels=_QRELS + b"q1\td1\t1\n"), {"judgement_repeated": 1}, ""),
    (
        "a judgement twice, another grade",
        _beir(qrels=_QRELS + b"q1\td1\t2\n"),
        {"judgement_repeated_other_grade": 1},
        "",
    ),
    ("a document without id", _beir(corpus=_CORPUS + line({"text": "x"})), {"no_paper_id": 1}, ""),
    ("a document that is no UTF-8", _beir(corpus=_CORPUS + b'{"_id": "\xff"}\n'), {"bad_utf8": 1}, ""),
    *(
        (f"a grade of {name}", _beir(qrels=_QRELS + b"q1\td2\t" + grade + b"\n"), None, "test.tsv:4")
        for name, grade in {
            "70000": b"70000",
            "5,000 digits": b"9" * 5_000,
            "nothing": b"",
            "an Arabic digit": "١".encode(),
        }.items()
    ),
    ("a judgement of two columns", _beir(qrels=_QRELS + b"q1\td1\n"), None, "test.tsv:4"),
    ("a judgement that is no UTF-8", _beir(qrels=_QRELS + b"q1\t\xff\t1\n"), None, "test.tsv:4"),
    ("judgements of a header", _beir(qrels=_HEAD), None, "test.tsv"),
    ("a judged query that is missing", _beir(qrels=_QRELS + b"q9\td1\t1\n"), {"judged_query_absent": 1}, "q9"),
    ("a query that is no JSON", _beir(queries=_QUERIES + b"{\n"), None, "queries.jsonl:3"),
    ("a query without id", _beir(queries=_QUERIES + line({"text": "x"})), None, "queries.jsonl:3"),
    ("documents of no bytes", _beir(corpus=b""), None, "corpus.jsonl"),
    ("no documents", {"queries.jsonl": _QUERIES, "qrels/test.tsv": _QRELS}, None, "corpus"),
    ("judgements of another split", _beir() | {"qrels/test.tsv": b"", "qrels/dev.tsv": _QRELS}, None, "test.tsv"),
    (
        "a table of four columns",
        {"corpus.tsv": b"d1\ta\nd2\tb\nd3\ta\tb\tc\n", "queries.jsonl": _QUERIES, "qrels/test.tsv": _QRELS},
        {"bad_columns": 1},
        "",
    ),
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
    ("ids that are lists", _parquet(_TABLE.set_column(0, "paper_id", [[["1"], ["2"], ["3"]]])), None, "must have"),
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


def _linked(target: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "metadata_0.jsonl").write_bytes(line(s2orc_record("1")))
        os.symlink(target, folder / "metadata_1.jsonl")

    return write


def _folder_as_shard(folder: Path) -> None:
    (folder / "metadata_0.jsonl").write_bytes(line(s2orc_record("1")))
    (folder / "metadata_1.jsonl").mkdir()


def _pipe(folder: Path) -> None:
    (folder / "metadata_0.jsonl").write_bytes(line(s2orc_record("1")))
    os.mkfifo(folder / "metadata_1.jsonl")


PATHS: list[tuple[str, Callable[[Path], None] | Files, str]] = [
    ("a link to itself", _linked("metadata_1.jsonl"), "metadata_1.jsonl"),
    ("a link to a device", _linked("/dev/null"), "metadata_1.jsonl"),
    ("a folder named like a shard", _folder_as_shard, "metadata_1.jsonl"),
    ("a pipe named like a shard", _pipe, "metadata_1.jsonl"),
    ("an empty folder", {}, "no S2ORC metadata"),
    ("a release that is being fetched", {"metadata_0.jsonl": b"{}", ".fetching": b""}, "not fetched"),
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

# Records of JSON lines, and what is counted of each.
RECORDS: dict[str, tuple[bytes, dict[str, int]]] = {
    "a year in other digits": (line({"paper_id": "3", "year": "٢٠١٩"}), {"year not a year": 1}),
    "a year with an underscore": (line({"paper_id": "3", "year": "2_019"}), {"year not a year": 1}),
    "a lone surrogate": (line({"paper_id": "3", "title": "\ud800", "\udfff": 1}), {}),
    "deep nesting in an unknown field": (
        b'{"paper_id": "3", "x": ' + b"[" * 9_000 + b"]" * 9_000 + b"}\n",
        {"bad_json": 1},
    ),
}

_TERMINAL = "\x1b[31m\x00\u202e"

# Commands with an address, and what the refusal has to say; no later attempt is waited for.
ADDRESSES: list[tuple[str, str]] = [
    ("fetch s2ag --endpoint http://user:secret@no-such-host.invalid", "its host is unknown"),
    ("fetch openalex --endpoint http://no-such-host.invalid", "its host is unknown"),
    ("fetch openalex --endpoint ftp://user:secret@host", "address of HTTP"),
    ("fetch openalex --endpoint host", "address of HTTP"),
]

# Runs by name and content, and what the refusal has to say.
RUNS: dict[str, tuple[bytes, str]] = {
    "underscore.run": (b"q Q0 d 1 1_0 x\n", "underscore.run:1"),
    "digits.run": ("q Q0 d 1 ١ x\n".encode(), "digits.run:1"),
    "deep.json": (b'{"q": ' + b"[" * 100_000, "deep.json"),
    "surrogate.json": (b'{"q": {"\\udfff": 1}}', "surrogate.json"),
    "bomb.json.gz": (gzip.compress(b'{"q": {' + b'"d": 1, ' * 4_000_000, 1), "needs more than 512 MiB"),
    "bomb.run.gz": (gzip.compress(b"q Q0 d 1 1 x".ljust(999) + b"\n", 1) * 70_000, "needs more than 512 MiB"),
}


def inputs() -> Iterable[Input]:
    """Return every row of the tables above; lines and values of a source are one release."""
    most = ("--allow-dropped",)
    for source, (around, record) in SOURCES.items():
        yield Input(f"{source}: lines", source, around(b"".join(LINES)), Counter(LINES.values()), options=most)
        yield Input(f"{source}: most lines", source, around(b"".join(LINES)), None, "cannot be read (")
        values = (value for rows in VALUES[source].values() for value in rows)
        records = b"".join(line(record(number) | value) for number, value in enumerate(values, 3))
        yield Input(f"{source}: values", source, around(records), {why: len(r) for why, r in VALUES[source].items()})
    for name, data, counted, said in GZIP:
        yield Input(f"gzip {name}", "s2orc2020", {_SHARD: data}, counted, said)
    for name, files, counted, said in BEIR:
        yield Input(f"beir: {name}", "beir", files, counted, said)
    for name, given, counted, said in PARQUET:
        yield Input(f"parquet: {name}", "parquet", given, counted, said)
    for name, given, said in PATHS:
        yield Input(f"path: {name}", "s2orc2020", given, None, said)
    for name, data, counted, said in CONTENTS:
        yield Input(f"content: {name}", "jsonl", {name: data}, counted, said)
    for source, name, data, counted, said in FLAT:
        yield Input(f"{source}: {name}", source, {name: data}, counted, said)
    works = {
        f"updated_date=2024-0{n}-01/part_0.gz": gzip.compress(line(openalex_work(1, title=f"{n}"))) for n in (1, 2)
    }
    yield Input("openalex: a work in two partitions", "openalex", works, {"duplicate_id_other_text": 1})
    listed = {"manifest": b'{"entries": [{"url": "works/updated_date=2024-01-01/part_0.gz"}]}'}
    yield Input("openalex: a file that the manifest lacks", "openalex", works | listed, {})
    releases = {f"papers/2024010{n}_x.jsonl": line(s2ag_paper(n)) for n in (1, 8)} | dict(_s2ag(b""))
    yield Input("s2ag: two releases", "s2ag", releases, None, "papers of 2 releases (2024-01-01, 2024-01-08)")
    for name, data, counted, said in CONTEXTS:
        beside = {"a.jsonl": _PAPERS, name: data}
        yield Input(f"contexts: {name}", "jsonl", beside, counted, said, ("--contexts", f"INPUT/{name}"))
    edges = {"a.jsonl": _PAPERS, "edges.csv": b"citing,cited\n2,1\n2,\n,1\n9,1\n"}
    of_edges = {"citations: dropped, null_cited_id": 1, "citations: dropped, null_citing_id": 1}
    yield Input("citations: ends that lack", "jsonl", edges, of_edges, "", ("--citations", "INPUT/edges.csv"))
    weights = {"a.jsonl": _PAPERS, "edges.csv": b"from,to,weight\n2,1,1\n"}
    yield Input("citations: no names", "jsonl", weights, None, "--columns", ("--citations", "INPUT/edges.csv"))
    cut = {_SHARD: _GZ[: len(_GZ) // 2]}
    yield Input("gzip cut, allowed", "s2orc2020", cut, {}, options=("--allow-truncated",))
    options = ("--min-concept-score", "nan")
    yield Input("openalex: a score of nan", "openalex", _openalex(b""), None, "min-concept-score", options)
    empty = {_SHARD: gzip.compress(b"")}
    yield Input("gzip of an empty member, allowed", "s2orc2020", empty, {}, options=("--allow-empty",))
    for name, data in MEMBERS.items():
        yield Input(f"gzip: {name}", "s2orc2020", {_SHARD: data}, {})
    first = line({"paper_id": "1", "title": "A"})
    for name, (record_line, counts) in RECORDS.items():
        yield Input(f"jsonl: {name}", "jsonl", {"a.jsonl": first + record_line}, counts)


def shown() -> bytes:
    """Return JSON lines whose every text would act on a terminal."""
    paper = {"title": f"T{_TERMINAL}", "fields": [f"F\n{_TERMINAL}"]}
    return b"".join(line({"paper_id": f"{n}{_TERMINAL}", **paper}) for n in range(3))


BENCHMARKS: list[tuple[str, str, str]] = [
    ("a field twice", '{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "got 'Art' twice"),
    ("a query twice", '{"Art": {"1": {"true": ["2"]}, "1": {"true": ["3"]}}}', "got '1' of 'Art' twice"),
    ("a type twice", '{"Art": {"1": {"true": ["2"], "true": ["3"]}}}', "got 'true' of 'Art', '1' twice"),
    ("a query that is its own positive", '{"Art": {"1": {"true": ["1"]}}}', "has itself as candidate"),
    ("a lone surrogate", '{"\\ud800": {"1": {"true": ["2"]}}}', "must be a JSON file"),
    ("deep nesting", "[" * 200_000, "must be a JSON file"),
    ("a field that is a path, without texts", '{"/../../x": {"1": {"true": ["2"]}}}', "needs the text of paper"),
]
"""Benchmarks in the MDCR layout: name, content of ``mdcr_test.json``, and what the message says."""
