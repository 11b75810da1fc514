"""Hostile lines, files and addresses: what each is, and what has to come of it."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import hostile_files
from tests.faults.hostile_files import PAPERS, SHARD, Files, Outcome, line
from tests.releases import openalex_work, s2ag_abstract, s2ag_citation, s2ag_paper, s2orc_record


class Input(NamedTuple):
    """A release with something hostile in it: files, or what fills a folder, which is INPUT in ``options``."""

    name: str
    source: str
    files: Files | Callable[[Path], object]
    outcome: Outcome
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
    b"null\n": "wrong_type",
    b'{"title": "\xff\xfe"}\n': "bad_utf8",
    b"\xef\xbb\xbf[]\n": "wrong_type",
    bytes(64) + b"\n": "bad_json",
    b'{"deep": ' * 100_000 + b"\n": "bad_json",
    b'{"deep": ' + b"[" * 9_000 + b"]" * 9_000 + b"}\n": "bad_json",
    b'{"title": NaN}\n': "no_paper_id",
}

# Values of a record, by source and by the reason it is dropped for, or noted under. Only an odd id drops a record.
VALUES: Mapping[str, Mapping[str, list[dict[str, Any]]]] = {
    "s2orc2020": {
        "no_paper_id": [{"paper_id": ""}, {"paper_id": None}],
        "wrong_type": [{"paper_id": ["3", "4"]}, {"paper_id": True}],
        "abstract not a text": [{"abstract": {"text": "x"}}],
        "year not a year": [{"year": "in press"}, {"year": 1e308 * 10}],
        "null in outbound_citations": [{"outbound_citations": ["1", None]}],
        "impossible_year": [{"year": 10**30}, {"year": -5}],
        "unknown_field: <b>|`x`": [{"mag_field_of_study": ["<b>|`x`"]}],
        "duplicate_id_other_text": [{"paper_id": "1"}, {"paper_id": 1.0}],
    },
    "s2ag": {
        "no_paper_id": [{"corpusid": None}],
        "wrong_type": [{"corpusid": True}],
        "title not a text": [{"title": {}}],
        "s2fieldsofstudy not a list": [{"s2fieldsofstudy": "Medicine"}],
        "externalids not of its type": [{"externalids": "10.1/a"}],
    },
    "openalex": {
        "no_paper_id": [{"id": None}, {"id": "https://openalex.org/"}],
        "xpac": [{"is_xpac": True}],
        "score not a number": [{"concepts": [{"display_name": "Art", "level": 0, "score": "high"}]}],
        "abstract_inverted_index not an index": [{"abstract_inverted_index": "{"}],
        "referenced_works not a text": [{"referenced_works": [{"id": "W4"}]}],
    },
    "jsonl": {
        "year not a year": [{"year": year} for year in (True, "20199", 2019.5, "٢٠١٩", "2_019")],
        "n_inbound not a number": [{"n_inbound": 2**31}, {"n_inbound": "many"}],
        "unknown_field: 3": [{"fields": 3}],
    },
}

_QUERIES = line({"_id": "q1", "text": "first"}) + line({"_id": "q2", "text": "second"})
_HEAD = b"query-id\tcorpus-id\tscore\n"
_QRELS = _HEAD + b"q1\td1\t1\nq2\td2\t1\n"
_BEIR: Files = {
    "corpus.jsonl": line({"_id": "d1", "title": "T", "text": "one"}) + line({"_id": "d2", "text": "two"}),
    "queries.jsonl": _QUERIES,
    "qrels/test.tsv": _QRELS,
}

# Files that replace those of a BEIR folder.
BEIR: dict[str, tuple[Files, Outcome]] = {
    "odd documents": (
        {"corpus.jsonl": _BEIR["corpus.jsonl"] + line({"text": "x"}) + b'{"_id": "\xff"}\n'},
        {"no_paper_id": 1, "bad_utf8": 1},
    ),
    "a grade of 5,000 digits": ({"qrels/test.tsv": _QRELS + b"q1\td2\t" + b"9" * 5_000}, "test.tsv:4"),
    "a grade in other digits": ({"qrels/test.tsv": _QRELS + "q1\td2\t١".encode()}, "test.tsv:4"),
    "a judgement that is no UTF-8": ({"qrels/test.tsv": _QRELS + b"q1\t\xff\t1\n"}, "test.tsv:4"),
    "judgements of a header": ({"qrels/test.tsv": _HEAD}, "test.tsv"),
    "judgements of another split": ({"qrels/test.tsv": b"", "qrels/dev.tsv": _QRELS}, "test.tsv"),
    "a judged query that is missing": ({"qrels/test.tsv": _QRELS + b"q9\td1\t1\n"}, {"judged_query_absent": 1}),
    "a query that is no JSON": ({"queries.jsonl": _QUERIES + b"{\n"}, "queries.jsonl:3"),
    "a query without id": ({"queries.jsonl": _QUERIES + line({"text": "x"})}, "queries.jsonl:3"),
    "no documents": ({"corpus.jsonl": b""}, "corpus.jsonl"),
}


def _second_shard(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / "metadata_0.jsonl").write_bytes(line(s2orc_record("1")))
        make(folder / "metadata_1.jsonl")

    return write


SPECIAL: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}
"""What is no file, and waits or never ends where it is read as one."""

PATHS: dict[str, tuple[Files | Callable[[Path], object], str]] = {
    **{name: (_second_shard(make), "metadata_1.jsonl") for name, make in SPECIAL.items()},
    "a folder": (_second_shard(Path.mkdir), "metadata_1.jsonl"),
    "nothing": ({}, "no S2ORC metadata"),
    "a release that is being fetched": ({"metadata_0.jsonl": b"{}", ".fetching": b""}, "not fetched"),
}


def _cited(edges: bytes, outcome: Outcome) -> Input:
    files = {"a.jsonl": PAPERS, "edges.csv": edges}
    return Input(f"citations: {edges!r}", "jsonl", files, outcome, ("--citations", "INPUT/edges.csv"))


_WORKS = {f"updated_date=2024-0{n}-01/part_0.gz": gzip.compress(line(openalex_work(1, title=f"{n}"))) for n in (1, 2)}
_MANIFEST = {"manifest": b'{"entries": [{"url": "works/updated_date=2024-01-01/part_0.gz"}]}'}
_LACKING = {"citations: dropped, null_cited_id": 1, "citations: dropped, null_citing_id": 1}
_MARKUP = b"".join(
    line({"paper_id": str(number), "title": text, "abstract": text})
    for number, text in enumerate(hostile_files.MARKUP, 3)
)

RELEASES = [
    Input("a lone surrogate", "jsonl", _jsonl(line({"paper_id": "3", "title": "\ud800", "\udfff": 1})), {"kept": 3}),
    Input("openalex: a work in two partitions", "openalex", _WORKS, {"duplicate_id_other_text": 1}),
    Input("openalex: a file that the manifest lacks", "openalex", _WORKS | _MANIFEST, {"kept": 1}),
    Input(
        "s2ag: two releases",
        "s2ag",
        {f"papers/2024010{n}_x.jsonl": line(s2ag_paper(n)) for n in (1, 8)} | dict(_s2ag(b"")),
        "files of 2 releases (2024-01-01, 2024-01-08)",
    ),
    Input("markup", "jsonl", {"a.jsonl": PAPERS + _MARKUP}, {"kept": 11}, ("--markup", "strip")),
    _cited(b"citing,cited\n2,1\n2,\n,1\n9,1\n", _LACKING),
    _cited(b"a,b,weight\n2,1,1\n", "--columns"),
]


def inputs() -> Iterator[Input]:
    """Yield every row of the tables; lines and values of a source are one release."""
    for source, (around, record) in SOURCES.items():
        lines = around(b"".join(LINES))
        yield Input(f"{source}: lines", source, lines, Counter(LINES.values()), ("--allow-dropped",))
        yield Input(f"{source}: most lines", source, lines, "cannot be read (")
        values = (value for rows in VALUES[source].values() for value in rows)
        records = b"".join(line(record(number) | value) for number, value in enumerate(values, 3))
        yield Input(f"{source}: values", source, around(records), {why: len(r) for why, r in VALUES[source].items()})
    for name, (data, outcome) in hostile_files.GZIP.items():
        yield Input(f"gzip {name}", "s2orc2020", {SHARD: data}, outcome)
    for name, (files, outcome) in BEIR.items():
        yield Input(f"beir: {name}", "beir", {**_BEIR, **files}, outcome)
    for name, (given, outcome) in hostile_files.PARQUET.items():
        yield Input(f"parquet: {name}", "parquet", given, outcome)
    for name, (given, said) in PATHS.items():
        yield Input(f"path: {name}", "s2orc2020", given, said)
    for name, (data, said) in hostile_files.UNREAD.items():
        yield Input(f"content: {name}", "jsonl", {name: data}, said)
    for source, name, data, outcome in hostile_files.FLAT:
        yield Input(f"{source}: {name}", source, {name: data}, outcome)
    for name, (data, outcome) in hostile_files.CONTEXTS.items():
        yield Input(
            f"contexts: {name}", "jsonl", {"a.jsonl": PAPERS, name: data}, outcome, ("--contexts", f"INPUT/{name}")
        )
    yield from RELEASES


_TERMINAL = "\x1b[31m\x00\u202e"


def shown() -> bytes:
    """Return JSON lines whose every text would act on a terminal."""
    paper = {"title": f"T{_TERMINAL}", "fields": [f"F\n{_TERMINAL}"]}
    return b"".join(line({"paper_id": f"{n}{_TERMINAL}", **paper}) for n in range(3))


ADDRESSES = ("http://user:secret@no-such-host.invalid", "ftp://user:secret@host", f"http://{'a' * 70}")
"""Of servers that cannot be reached; no later attempt is waited for."""

BENCHMARKS: dict[str, tuple[str, str]] = {
    "a field twice": ('{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "got 'Art' twice"),
    "a query that is its own positive": ('{"Art": {"1": {"true": ["1"]}}}', "has itself as candidate"),
    "a lone surrogate": ('{"\\ud800": {"1": {"true": ["2"]}}}', "must be a JSON file"),
    "deep nesting": ("[" * 200_000, "must be a JSON file"),
    "a field that is a path": ('{"/../../x": {"1": {"true": ["2"]}}}', "needs the text of paper"),
}
"""Benchmarks in the MDCR layout: content of ``mdcr_test.json``, and what the message says."""
