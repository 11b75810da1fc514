"""The compiled reader gives what the plain one gives: records, counts, reasons and examples."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.fields import MAG_FIELDS
from pipeline.sources import lines, s2orc2020, scanned
from pipeline.sources.s2orc2020 import S2orc2020
from tests.releases import random_s2orc, s2orc_record, write_s2orc
from tests.shared import real

Total = tuple[pa.Table, int, Counter[str], Counter[str], list[str]]


def total(release: S2orc2020) -> Total:
    batches = [batch for part in release.parts() for batch in release.read(part)]
    dropped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    for batch in batches:
        assert batch.read == batch.papers.num_rows + batch.dropped.total()
        dropped.update(batch.dropped)
        noted.update(batch.noted)
    papers = pa.Table.from_batches([batch.papers for batch in batches]).combine_chunks()
    papers.validate(full=True)
    return papers, sum(b.read for b in batches), dropped, noted, [e for b in batches for e in b.examples]


def agreed(folder: Path) -> Total:
    """Return what both readers read of a release, having seen that it is the same."""
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for large in (2**60, -1):
            patch.setattr(s2orc2020, "LARGE", large)
            found.append(total(S2orc2020(folder, allow_truncated=True)))
    plain, compiled = found
    assert compiled[1:] == plain[1:]
    for name in plain[0].column_names:
        assert compiled[0].column(name).equals(plain[0].column(name)), name
    return compiled


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["s2orc-2020-sample", "s2orc-real"])
def test_real_papers(name: str) -> None:
    papers, read, dropped, _, _ = agreed(real(name))
    assert len(papers) == read > 999
    assert not dropped


def test_the_scan_itself_reads_nearly_all_real_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = real("s2orc-2020-sample")
    asked: list[int] = []
    add = scanned.ScannedRows.add
    monkeypatch.setattr(scanned.ScannedRows, "add", lambda self, *values: (asked.append(1), add(self, *values)))
    monkeypatch.setattr(s2orc2020, "LARGE", -1)
    assert total(S2orc2020(folder))[1] == 1000
    assert len(asked) < 50


def test_random_records_in_small_batches_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK", 3_000)
    monkeypatch.setattr(lines, "_READ", 700)
    monkeypatch.setattr(lines, "MAX_LINE", 9_000)
    monkeypatch.setattr(scanned, "BATCH_ROWS", 7)
    monkeypatch.setattr(scanned, "_ROOM", {"ids": 40, "titles": 60, "abstracts": 99, "cited": 9})
    records: list[Any] = random_s2orc(300, seed=5)
    records[50] = s2orc_record("long", abstract="long " * 3_000)
    records[150] = s2orc_record("cited", outbound_citations=[str(n) for n in range(900)])
    assert agreed(write_s2orc(tmp_path, records, parts=3))[2] == {"line_too_long": 1}


LITERALS = [b"null", b"true", b"NaN", b"-0", b"1e999", b"2019.0", b"0x1", b'""', b"[]", b"{}", b'"\\ud83d"', b"9" * 30]
TOKENS = [
    *LITERALS,
    *(b"\\u%04x" % code for code in (0, 9, 0x20, 0x41, 0xA0, 0x301, 0x344, 0x1100, 0x1161, 0x2028, 0xD83D, 0xDE00)),
    *(
        b'\\"',
        b"\\\\",
        b"\\/",
        b"\\n",
        b"\\q",
        b"\\",
        b'"',
        b",",
        b":",
        b"[",
        b"]",
        b"{",
        b"}",
        b"\t",
        b" ",
        b"\r\n",
        b"\n",
    ),
    *("é", "e\u0301", "\u2003", "𝒢", "각", "\ufeff", "가", "ﬁ", "\u0085", "\x7f"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\x00", b"\x1c"),
    *(b'"title":', b'"year":2018,', b'"doi":"10.1/X",', b'"paper_id":"7",', b'"x":[[[{"y":[1,{}]}]]],', b"[" * 70),
]


def mutated(line: bytes, chance: random.Random) -> bytes:
    """Return a line with a few bytes changed, removed, repeated or replaced by something JSON readers stumble over."""
    text = bytearray(line)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice([0, 0, 1, 1, 4, 40]))
        token = chance.choice(TOKENS)
        piece = token.encode() if isinstance(token, str) else token
        choice = chance.randrange(5)
        if choice == 0:
            text[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
        elif choice == 1:
            del text[at:end]
        elif choice == 2:
            text[at:at] = text[at:end]
        else:
            text[at:end] = piece
    return bytes(text)


def test_ten_thousand_damaged_lines(tmp_path: Path) -> None:
    chance = random.Random(20)
    records = random_s2orc(500, seed=6)
    for record in records:
        record["authors"] = [{"first": "A", "middle": ["B."], "last": "O'C\u00e9", "suffix": ""}]
        record["doi"] = chance.choice([None, "10.1000/AbC ", "x", "https://doi.org/10.1/é", "10.1"])
        record["mag_id"] = chance.choice([None, "1", 12, -3, 1.5, 10**25])
    written = [json.dumps(r, ensure_ascii=chance.random() < 0.5).encode() for r in records]
    written += [json.dumps(s2orc_record("")).encode()] * 5
    damaged = [mutated(chance.choice(written), chance) + b"\n" for _ in range(10_000)]
    papers, read, dropped, noted, examples = agreed(write_s2orc(tmp_path, damaged, parts=2))
    assert len(papers) > 1_000
    assert read > 10_000
    assert dropped.keys() == {"bad_json", "bad_utf8", "wrong_type", "no_paper_id"}
    assert min(dropped.values()) >= 6
    assert len(examples) == 2 * 3 * len(dropped)  # three of each reason in each part
    assert noted


TEXT = (
    st.none()
    | st.text(max_size=40)
    | st.text(st.sampled_from(" \t\u00a0ab\u0301\u1100\u1161é😀\x00\x1c\ud800"), max_size=150)
)
IDS = st.text(st.sampled_from("0123456789"), max_size=20) | st.sampled_from(["W12", "hep-th/9", "a b", "", "é", "007"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
RECORD = st.fixed_dictionaries(
    {"paper_id": IDS},
    optional={
        "title": TEXT,
        "abstract": TEXT,
        "year": st.none() | st.integers(-1, 3000) | st.integers(),
        "mag_field_of_study": st.none() | st.lists(st.sampled_from([*MAG_FIELDS, "Alchemy"]), max_size=3),
        "outbound_citations": st.none() | st.lists(IDS, max_size=9),
        "inbound_citations": st.none() | st.lists(IDS, max_size=9),
        "doi": st.none() | st.sampled_from(["10.1/a", "doi:10.1/A", "10.", "/10.1"]) | TEXT,
        "authors": VALUES,
        "title ": VALUES,
    },
) | st.fixed_dictionaries(dict.fromkeys(["paper_id", "title", "year", "doi", "outbound_citations"], VALUES))


@st.composite
def json_line(draw: st.DrawFn) -> bytes:
    record = draw(RECORD)
    items = draw(st.permutations(list(record.items())))
    if draw(st.booleans()):
        items += draw(st.sampled_from([items, items[:1]]))  # keys stand twice
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\t: ")]))
    ascii_only = draw(st.booleans())
    pairs = [
        json.dumps(k) + colon + json.dumps(v, ensure_ascii=ascii_only, separators=(comma, colon)) for k, v in items
    ]
    text = "{" + comma.join(pairs) + "}"
    line = text.encode("utf-8", "surrogatepass")
    start, end = draw(st.integers(0, len(line))), draw(st.integers(0, 3))
    if draw(st.integers(0, 3)) == 0:
        line = line[:start] + draw(st.binary(max_size=3)) + line[start + end :]
    return (
        draw(st.sampled_from([b"", b"", b" ", b"\xef\xbb\xbf"]))
        + line
        + draw(st.sampled_from([b"\n", b"\r\n", b" \n"]))
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(json_line(), min_size=1, max_size=30))
def test_any_lines(tmp_path: Path, written: list[bytes]) -> None:
    (tmp_path / "metadata_0.jsonl").write_bytes(b"".join(written))
    agreed(tmp_path)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n \n"])
def test_ends_of_files(tmp_path: Path, ending: bytes) -> None:
    line = json.dumps(s2orc_record("1")).encode()
    (tmp_path / "metadata_0.jsonl").write_bytes(b"\n" + line + b"\n\n" + line + ending)
    (tmp_path / "metadata_1.jsonl").write_bytes(ending)
    assert agreed(tmp_path)[1] == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"paper_id": "1", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad_json"),
        (b'{"paper_id": "1", "x": ' + b"[" * 100_000, "bad_json"),
        (b'{"paper_id": "1", "x": NaN}', "bad_json"),
        (b'{"paper_id": "1", "x": -Infinity}', "bad_json"),
        (b'{"paper_id": "1", "x": ' + b"9" * 5_000 + b"}", None),
        (b'{"paper_id": "1", "x": 1e999, "title": "\\ud800"}', "bad_json"),
        (b'\xef\xbb\xbf{"paper_id": "1"}', None),
        (b'{"paper_id": "1", "year": 2019.0}', "wrong_type"),
        (b'{"paper_id": null}', "wrong_type"),
    ],
)
def test_what_makes_readers_of_json_fail_is_a_reason(tmp_path: Path, line: bytes, reason: str | None) -> None:
    (tmp_path / "metadata_0.jsonl").write_bytes(line + b'\n{"paper_id": "2"}\n')
    papers, read, dropped, _, _ = agreed(tmp_path)
    assert read == 2
    assert dropped == ({reason: 1} if reason else {})
    assert papers.column("paper_id").to_pylist()[-1] == "2"
