from __future__ import annotations

import pytest

from pipeline.core.text import id_key, id_keys, normalise, same_title_form, title_key


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        (None, ""),
        (" \t\n ", ""),
        ("  a\u00a0b\n\nc ", "a b c"),
        ("e\u0301", "é"),
        ("A-b: C!", "A-b: C!"),
        ("ﬁ", "ﬁ"),  # NFC keeps compatibility characters
    ],
)
def test_normalise(raw: str | None, normal: str) -> None:
    assert normalise(raw) == normal


def test_same_title_ignores_case_marks_and_compatibility() -> None:
    assert same_title_form("The Eﬀect: of  X-rays²!") == "theeffectofxrays2"
    assert title_key("Straße") == title_key("STRASSE")
    assert title_key("A b") != title_key("A c")
    assert title_key("?! …") == 0


def test_decimal_ids_are_their_own_keys_and_others_never_meet_them() -> None:
    ids = ["0", "7", "123456789012345678", "007", "W12", "hep-th/9411042", "1234567890123456789", "", "٣"]
    keys = [id_key(i) for i in ids]
    assert keys[:3] == [0, 7, 123456789012345678]
    assert all(key >> 63 == 1 for key in keys[3:])
    assert len(set(keys)) == len(ids)
    assert id_keys(ids).tolist() == keys
    assert id_keys(["12", "5"]).tolist() == [12, 5]
    assert id_keys([]).tolist() == []
