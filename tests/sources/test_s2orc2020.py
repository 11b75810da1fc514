from __future__ import annotations

import gzip
import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key, id_key
from pipeline.sources import lines
from pipeline.sources.base import PaperBatch
from pipeline.sources.s2orc2020 import S2orc2020
from tests.releases import s2orc_record, write_s2orc
from tests.shared import real


def read(release: S2orc2020) -> PaperBatch:
    """Return everything of a release as one batch's worth of rows and counts."""
    import pyarrow as pa

    batches = [batch for part in release.parts() for batch in release.read(part)]
    total = PaperBatch(pa.Table.from_batches([b.papers for b in batches]), sum(b.read for b in batches))
    for batch in batches:
        total.dropped += batch.dropped
        total.noted += batch.noted
        total.examples += batch.examples
    return total


def test_texts_years_fields_and_references(tmp_path: Path) -> None:
    records = [
        s2orc_record(
            "7",
            title=" Two\u00a0 words ",
            abstract=None,
            year=1999,
            mag_field_of_study=["Physics", "Art", "Alchemy"],
            outbound_citations=["9", "7", "9", "x/1"],
            inbound_citations=["8", "8", "7"],
        ),
        s2orc_record("8", title=None, year=None, outbound_citations=None, inbound_citations=None),
        s2orc_record("9", year=2999),
    ]
    total = read(S2orc2020(write_s2orc(tmp_path, records)))
    rows = total.papers.to_pylist()
    assert rows[0] == {
        "paper_id": "7",
        "title": "Two words",
        "abstract": "",
        "year": 1999,
        "fields": 1 << FIELD_BIT["Physics"] | 1 << FIELD_BIT["Art"],
        "outbound": sorted([9, id_key("x/1")]),
        "n_inbound": 1,
        "doi_key": 0,
    }
    assert [row["year"] for row in rows] == [1999, NO_YEAR, NO_YEAR]
    assert rows[1]["title"] == ""
    assert total.noted == {"unknown_field: Alchemy": 1, "impossible_year": 1, "references_repeated_or_self": 2}
    assert total.read == 3
    assert not total.dropped


def test_a_line_too_long_is_dropped_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 10_000)
    monkeypatch.setattr(lines, "_BLOCK", 1_000)
    records = [s2orc_record("1"), s2orc_record("2", abstract="z" * 50_000), s2orc_record("3", abstract="w" * 8_000)]
    total = read(S2orc2020(write_s2orc(tmp_path, records)))
    assert total.papers.column("paper_id").to_pylist() == ["1", "3"]
    assert total.dropped == {"line_too_long": 1}
    assert total.examples == ["line_too_long: metadata_0.jsonl.gz:2: "]


def test_shards_are_read_in_order_of_number(tmp_path: Path) -> None:
    write_s2orc(tmp_path, [s2orc_record(str(i)) for i in range(12)], parts=12)
    assert S2orc2020(tmp_path).parts() == [f"metadata_{i}.jsonl.gz" for i in range(12)]


def test_identity_follows_content_not_place(tmp_path: Path) -> None:
    one = S2orc2020(write_s2orc(tmp_path / "a", [s2orc_record("1")]))
    same = S2orc2020(write_s2orc(tmp_path / "b", [s2orc_record("1")]))
    other = S2orc2020(write_s2orc(tmp_path / "c", [s2orc_record("2")]))
    assert one.identity() == same.identity() != other.identity()


@pytest.mark.realdata
def test_the_official_sample_is_read_without_loss() -> None:
    folder = real("s2orc-2020-sample")
    total = read(S2orc2020(folder))
    assert (total.read, len(total.papers), total.dropped.total()) == (1000, 1000, 0)
    with gzip.open(folder / "metadata_0.jsonl.gz", "rt", encoding="utf-8") as handle:
        raw = {record["paper_id"]: record for record in map(json.loads, handle)}
    fields: Counter[int] = Counter()
    for row in total.papers.to_pylist():
        record = raw.pop(row["paper_id"])
        for name in ("title", "abstract"):
            assert row[name] == " ".join(unicodedata.normalize("NFC", record[name] or "").split())
        assert row["year"] == (record["year"] or NO_YEAR)
        names = {name for name, bit in FIELD_BIT.items() if row["fields"] >> bit & 1}
        assert names == set(record["mag_field_of_study"] or ())
        own = {record["paper_id"]}
        assert row["outbound"] == sorted(id_key(i) for i in set(record["outbound_citations"]) - own)
        assert row["n_inbound"] == len(set(record["inbound_citations"]) - own)
        assert row["doi_key"] == (doi_key(record["doi"]) if record["doi"] else 0)
        fields[len(names)] += 1
    assert not raw
    assert fields == {0: 47, 1: 882, 2: 67, 3: 4}
    assert sum(not row for row in total.papers.column("abstract").to_pylist()) == 512


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"paper_id": "1", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad_json"),
        (b'{"paper_id": "1", "x": NaN}', "bad_json"),
        (b'{"paper_id": "1"} {"paper_id": "3"}', "bad_json"),
        (b'{"paper_id": "1", "x": ' + b"9" * 5_000 + b"}", None),
        (b'{"paper_id": "1", "title": "\\ud800"}', None),
        (b'{"paper_id": "1", "title": "\xff"}', "bad_utf8"),
        (b'\xef\xbb\xbf{"paper_id": "1"}', None),
        (b'{"paper_id": "1", "year": 2019.0}', "wrong_type"),
        (b'{"paper_id": null}', "wrong_type"),
        (b'{"paper_id": ""}', "no_paper_id"),
    ],
)
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n \n\n"])
def test_a_bad_line_is_dropped_by_its_reason(tmp_path: Path, line: bytes, reason: str | None, ending: bytes) -> None:
    (tmp_path / "metadata_0.jsonl").write_bytes(b"\n" + line + b'\n{"paper_id": "2"}' + ending)
    total = read(S2orc2020(tmp_path))
    assert total.read == 2
    assert total.dropped == ({reason: 1} if reason else {})
    assert total.papers.column("paper_id").to_pylist()[-1] == "2"
