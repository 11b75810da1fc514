from __future__ import annotations

from pathlib import Path

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.sources.s2orc2020 import S2orc2020
from tests.releases import id_key, read, s2orc_record, write_s2orc


def test_texts_years_fields_and_references(tmp_path: Path) -> None:
    record = s2orc_record(
        "7",
        title=" Two\u00a0 words ",
        abstract=None,
        year=1999,
        mag_field_of_study=["Physics", "Art", "Alchemy"],
        outbound_citations=["9", "7", "9", "x/1"],
        inbound_citations=["8", "8", "7"],
    )
    nothing = s2orc_record("8", title=None, year=None, outbound_citations=None, inbound_citations=None)
    rows, total = read(S2orc2020(write_s2orc(tmp_path, [record, nothing, s2orc_record("9", year=2999)])))
    assert (rows[0]["paper_id"], rows[0]["title"], rows[0]["abstract"], rows[0]["year"]) == ("7", "Two words", "", 1999)
    assert rows[0]["fields"] == 1 << FIELD_BIT["Physics"] | 1 << FIELD_BIT["Art"]
    assert (rows[0]["outbound"], rows[0]["n_inbound"], rows[0]["doi_key"]) == (sorted([9, id_key("x/1")]), 1, 0)
    assert [(row["title"], row["year"]) for row in rows[1:]] == [("", NO_YEAR), ("Title of 9", NO_YEAR)]
    assert total.noted == {"unknown_field: Alchemy": 1, "impossible_year": 1, "references_repeated_or_self": 2}
    assert (total.read, total.dropped) == (3, {})


def test_shards_are_read_in_order_of_number(tmp_path: Path) -> None:
    write_s2orc(tmp_path, [s2orc_record(str(i)) for i in range(12)], parts=12)
    assert S2orc2020(tmp_path).parts() == [f"metadata_{i}.jsonl.gz" for i in range(12)]


def test_identity_follows_content_not_place(tmp_path: Path) -> None:
    releases = [S2orc2020(write_s2orc(tmp_path / place, [s2orc_record(place[0])])) for place in ("1a", "1b", "2")]
    one, same, other = (release.identity() for release in releases)
    assert one == same != other
