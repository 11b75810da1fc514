"""Compiled keys are those of :mod:`pipeline.core.text`, whatever the string."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import characters, keykernels, text
from pipeline.core.blake2b import digest
from pipeline.core.text import id_key, normalise, title_key


def strings(values: list[str]) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())


def test_blake2b_is_hashlibs() -> None:
    data = np.random.default_rng(1).integers(0, 256, 1_300, dtype=np.uint8)
    work = np.empty(24, np.uint64)
    for size in (*range(260), 383, 384, 385, 1_280):
        expected = hashlib.blake2b(data[7 : 7 + size].tobytes(), digest_size=8).digest()
        assert int(digest(data, 7, 7 + size, work)).to_bytes(8, "little") == expected, size


def test_keys_of_ids() -> None:
    chance = random.Random(2)
    prefixes = ["", "", "W", "z", "hep-th/", "é", "0", " ", "ab"]
    ids = [
        chance.choice(prefixes) + str(chance.randrange(10 ** chance.choice([1, 5, 15, 16, 17, 18, 19, 30])))
        for _ in range(3_000)
    ]
    ids += ["", "W", "0", "W0", "W00", "x" * 127, "x" * 128, "x" * 129, "٣"]
    keys = keykernels.id_keys(strings(ids))
    assert keys.tolist() == [id_key(i) for i in ids]
    assert keykernels.id_keys(strings(ids)[11:99]).tolist() == keys[11:99].tolist()


def test_keys_of_titles_of_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_MANY", 0)
    every = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    pairs = [first + second for first in every[0x41:0x600] for second in "A\u0301\u0345\u1e9e"]
    titles = ["", "?!", "Straße", "STRASSE", "A" * 128, "b" * 129, "ǅ" * 90, *every, *pairs]
    keys = text.title_keys(strings(titles))
    assert keys.tolist() == [title_key(title) for title in titles]
    assert text.title_keys(strings(titles)[5:70]).tolist() == keys[5:70].tolist()
    assert len(keykernels.title_keys(strings(every[:0x300]))[1]) < 60


def test_characters_are_classed_as_normalise_treats_them() -> None:
    chance = random.Random(3)
    classes = characters.classes()
    plain = [chr(code) for code in np.flatnonzero(classes == characters.PLAIN)]
    assert set(map(chr, np.flatnonzero(classes == characters.SPACE))) == {
        chr(code) for code in range(0x10000) if chr(code).isspace()
    }
    for _ in range(20_000):
        written = "".join(chance.choices(plain, k=5))
        assert normalise(written) == written
    composed = {chr(code) for code in range(0x10000) if chr(code) != normalise(chr(code))}
    assert not {character for character in composed if classes[ord(character)] == characters.PLAIN}
