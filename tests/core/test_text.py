from __future__ import annotations

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.text import (
    csv_cell,
    doi_key,
    id_keys,
    integer,
    normalise,
    normalise_all,
    number,
    printable,
    same_title_form,
    title_keys,
    without_credentials,
)
from tests.releases import id_key


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        (None, ""),
        ("  a\u00a0b\n\nc ", "a b c"),
        ("e\u0301", "é"),
        ("ﬁ", "ﬁ"),  # NFC keeps compatibility characters
    ],
)
def test_normalise(raw: str | None, normal: str) -> None:
    assert normalise(raw) == normal


def test_same_title_ignores_case_marks_and_compatibility() -> None:
    assert same_title_form("The Eﬀect: of  X-rays²!") == "theeffectofxrays2"
    keys = title_keys(["Straße", "STRASSE", "A b", "A c", "?! …"]).tolist()
    assert keys[0] == keys[1]
    assert len({*keys}) == 4
    assert keys[4] == 0


@given(st.lists(st.none() | st.text() | st.text(st.sampled_from(" a.\u0301\t\x1c\u2003é")), max_size=20))
def test_many_texts_are_normalised_like_one(texts: list[str | None]) -> None:
    assert normalise_all(texts).to_pylist() == [normalise(text) for text in texts]
    titles = [text or "" for text in texts]
    for title in titles:
        folded = unicodedata.normalize("NFKC", title).casefold()
        assert same_title_form(title) == "".join(filter(str.isalnum, folded))


def test_numbers_in_ids_are_exact_and_other_ids_never_meet_them() -> None:
    decimal = ["0", "7", "123456789012345678"]
    lettered = ["W0", "W12", "A12", "z12", "W9999999999999999"]
    others = ["007", "hep-th/9411042", "1234567890123456789", "", "٣", "W012", "W12345678901234567", "WW1", "W", "é1"]
    ids = decimal + lettered + others
    keys = [id_key(i) for i in ids]
    assert keys[:3] == [0, 7, 123456789012345678]
    assert [key >> 62 for key in keys[3:8]] == [1] * 5
    assert keys[4] & (1 << 56) - 1 == 12
    assert all(key >> 63 == 1 for key in keys[8:])
    assert len(set(keys)) == len(ids)
    for some in (ids, decimal, lettered, others, []):
        assert id_keys(some).tolist() == [id_key(i) for i in some]
    assert id_keys(pa.array(["x", *lettered], pa.large_string())[2:]).tolist() == keys[4:8]


def test_a_doi_is_compared_without_prefix_and_case() -> None:
    same = ["10.1000/AbC", "https://doi.org/10.1000/abc", " doi:10.1000/ABC", "http://dx.doi.org/10.1000/abc"]
    assert len({doi_key(doi) for doi in same}) == 1
    assert doi_key("10.1000/abd") != doi_key(same[0]) != 0
    assert [doi_key(nothing) for nothing in ("", "n/a", "10.1000")] == [0, 0, 0]


@pytest.mark.parametrize("text", ["1_0", "١", "²", "１", "1.5_0", "", "x", "0x10"])
def test_a_number_of_a_file_has_ascii_digits(text: str) -> None:
    assert [integer(digits) for digits in ("10", "-3", "+4", "007")] == [10, -3, 4, 7]
    assert [number(digits) for digits in ("1e3", ".5", "-0.25", "-inf")] == [1000, 0.5, -0.25, float("-inf")]
    for read in (integer, number):
        with pytest.raises(ValueError, match="."):
            read(text)


def test_what_is_not_printable_is_escaped() -> None:
    assert printable("Übung – 日本 (†)") == "Übung – 日本 (†)"
    hostile = "a\nb\r\x1b[31m\0\u202e\u2028\ud800\x9b"
    assert printable(hostile) == r"a\nb\r\x1b[31m\x00\u202e\u2028\ud800\x9b"


def test_a_spreadsheet_runs_no_cell() -> None:
    cells = {"=1+1": "'=1+1", "@x": "'@x", "-x": "'-x", "+x": "'+x", "-0.5": "-0.5", "+1": "+1", "a=b": "a=b"}
    assert {text: csv_cell(text) for text in cells} == cells


def test_addresses_without_their_passwords() -> None:
    text = "get https://u:p@h/x?y@z, ftp://me@h and a@b.c"
    assert without_credentials(text) == "get https://h/x?y@z, ftp://h and a@b.c"
