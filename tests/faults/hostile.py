"""Hostile lines, files, addresses and runs: what each is, and what has to come of it."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.hostile_files import (
    CONTENTS,
    CONTEXTS,
    FLAT,
    GZIP,
    MARKUP,
    MEMBERS,
    PAPERS,
    PARQUET,
    SHARD,
    Files,
    line,
)
from tests.releases import openalex_work, s2ag_abstract, s2ag_citation, s2ag_paper, s2orc_record


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
        "wrong_type": [{"paper_id": ["3", "4"]}, {"paper_id": True}],
        "abstract not a text": [{"abstract": {"text": "x"}}],
        "year not a year": [{"year": "in press"}, {"year": 1e308 * 10}],
        "outbound_citations not a list": [{"outbound_citations": "1; 2"}],
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
        "wrong_type": [{"paper_id": ["3", "4"]}],
        "year not a year": [{"year": True}, {"year": "20199"}, {"year": 2019.5}, {"year": "in press"}],
        "n_inbound not a number": [{"n_inbound": 2**31}, {"n_inbound": "many"}],
        "references not a text": [{"references": [{"id": 1}]}],
        "null in references": [{"references": ["1", None]}],
        "unknown_field: 3": [{"fields": 3}],
        "duplicate_id_other_text": [{"paper_id": "1"}],
    },
}

_CORPUS = line({"_id": "d1", "title": "T", "text": "one"}) + line({"_id": "d2", "text": "two"})
_FIRST = line({"_id": "q1", "text": "first"})
_QUERIES = _FIRST + line({"_id": "q2", "text": "second"})
_HEAD = b"query-id\tcorpus-id\tscore\n"
_QRELS = _HEAD + b"q1\td1\t1\nq2\td2\t1\n"


def _beir(corpus: bytes = _CORPUS, queries: bytes = _QUERIES, qrels: bytes = _QRELS) -> Files:
    return {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels}


# BEIR folders: what is counted, or said.
BEIR: list[tuple[str, Files, Mapping[str, int] | None, str]] = [
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

# Runs by name and content, and what the refusal has to say.
RUNS: dict[str, tuple[bytes, str]] = {
    "underscore.run": (b"q Q0 d 1 1_0 x\n", "underscore.run:1"),
    "digits.run": ("q Q0 d 1 ١ x\n".encode(), "digits.run:1"),
    "deep.json": (b'{"q": ' + b"[" * 100_000, "deep.json"),
    "surrogate.json": (b'{"q": {"\\udfff": 1}}', "surrogate.json"),
    "bomb.json.gz": (gzip.compress(b'{"q": {' + b'"d": 1, ' * 4_000_000, 1), "needs more than 512 MiB"),
    "bomb.run.gz": (gzip.compress(b"q Q0 d 1 1 ".ljust(999, b"x") + b"\n", 1) * 70_000, "needs more than 512 MiB"),
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
        yield Input(f"gzip {name}", "s2orc2020", {SHARD: data}, counted, said)
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
    yield Input("s2ag: two releases", "s2ag", releases, None, "files of 2 releases (2024-01-01, 2024-01-08)")
    for name, text in MARKUP.items():
        papers = {"a.jsonl": PAPERS + line({"paper_id": "3", "title": text, "abstract": text})}
        yield Input(f"markup: {name}", "jsonl", papers, {}, options=("--markup", "strip"))
    yield Input("markup: a word", "jsonl", {"a.jsonl": PAPERS}, None, "keep or strip", ("--markup", "html"))
    for name, data, counted, said in CONTEXTS:
        beside = {"a.jsonl": PAPERS, name: data}
        yield Input(f"contexts: {name}", "jsonl", beside, counted, said, ("--contexts", f"INPUT/{name}"))
    edges = {"a.jsonl": PAPERS, "edges.csv": b"citing,cited\n2,1\n2,\n,1\n9,1\n"}
    of_edges = {"citations: dropped, null_cited_id": 1, "citations: dropped, null_citing_id": 1}
    yield Input("citations: ends that lack", "jsonl", edges, of_edges, "", ("--citations", "INPUT/edges.csv"))
    weights = {"a.jsonl": PAPERS, "edges.csv": b"a,b,weight\n2,1,1\n"}
    yield Input("citations: no names", "jsonl", weights, None, "--columns", ("--citations", "INPUT/edges.csv"))
    for name, data in MEMBERS.items():
        yield Input(f"gzip: {name}", "s2orc2020", {SHARD: data}, {})
    first = line({"paper_id": "1", "title": "A"})
    for name, (record_line, counts) in RECORDS.items():
        yield Input(f"jsonl: {name}", "jsonl", {"a.jsonl": first + record_line}, counts)


def shown() -> bytes:
    """Return JSON lines whose every text would act on a terminal."""
    paper = {"title": f"T{_TERMINAL}", "fields": [f"F\n{_TERMINAL}"]}
    return b"".join(line({"paper_id": f"{n}{_TERMINAL}", **paper}) for n in range(3))


BENCHMARKS: list[tuple[str, str, str]] = [
    ("a field twice", '{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "got 'Art' twice"),
    ("a query twice", '{"Art": {"1": {"true": ["2"]}, "1": {"true": ["3"]}}}', "got '1' twice"),
    ("a type twice", '{"Art": {"1": {"true": ["2"], "true": ["3"]}}}', "got 'true' twice"),
    ("a query that is its own positive", '{"Art": {"1": {"true": ["1"]}}}', "has itself as candidate"),
    ("a lone surrogate", '{"\\ud800": {"1": {"true": ["2"]}}}', "must be a JSON file"),
    ("deep nesting", "[" * 200_000, "must be a JSON file"),
    ("a field that is a path, without texts", '{"/../../x": {"1": {"true": ["2"]}}}', "needs the text of paper"),
]
"""Benchmarks in the MDCR layout: name, content of ``mdcr_test.json``, and what the message says."""
