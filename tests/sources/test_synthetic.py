"""The synthetic release: the same papers whoever makes them, and the properties that make it useful."""

from __future__ import annotations

import hashlib
import pickle
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.text import normalise
from pipeline.sources.base import RAW_PAPERS
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import MIN_PAPERS, VERSION, Synthetic

SIZE = 12_000


def read(release: Synthetic | S2orc2020) -> pa.Table:
    batches = [batch.papers for part in release.parts() for batch in release.read(part)]
    return pa.Table.from_batches(batches).combine_chunks()


def digest(release: Synthetic, part: str) -> str:
    hashed = hashlib.sha256()
    for batch in release.read(part):
        hashed.update(repr(batch.papers.to_pydict()).encode())
    return hashed.hexdigest()


@cache
def corpus(papers: int = SIZE, seed: int = 13) -> pa.Table:
    return read(Synthetic(papers, seed))


def column(name: str) -> np.ndarray:
    return corpus().column(name).to_numpy()


def test_schema_ids_and_texts() -> None:
    assert corpus().schema == RAW_PAPERS
    ids = column("paper_id").tolist()
    assert len(set(ids)) == len(ids) == SIZE
    assert all(i.isdecimal() and i[0] != "0" for i in ids)
    assert len({len(i) for i in ids}) > 1, "ids of one length would sort alike as numbers and as text"
    assert abs(np.corrcoef(np.argsort(np.argsort(ids)), np.arange(SIZE))[0, 1]) < 0.05, "ids are in no order"
    for name in ("title", "abstract"):
        assert [normalise(text) for text in column(name)] == column(name).tolist()
    assert any(not text.isascii() for text in column("abstract"))


def test_same_papers_whatever_the_order_and_the_processes() -> None:
    release = Synthetic(9_000)
    parts = release.parts()
    assert len(parts) > 1
    here = {part: digest(release, part) for part in reversed(parts)}
    elsewhere = dict(unordered(partial(digest, pickle.loads(pickle.dumps(release))), parts, 2))  # noqa: S301
    assert elsewhere == here


def test_content_is_pinned_by_the_version() -> None:
    """Another digest is another corpus: raise ``synthetic.VERSION`` with it, or stale corpora would be served."""
    assert VERSION == 3
    assert digest(Synthetic(500, 7), "00000-of-00001").startswith("6154983efc4855efe53e8b6dc501c7b2")


def test_parts_hold_every_unit_of_a_large_release() -> None:
    release = Synthetic(8_000_000)
    assert 100 < len(release.parts()) < 200
    assert [unit for part in release.parts() for unit in release.units_of(part)] == list(range(977))


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="got 199"):
        Synthetic(199)
    assert len(read(Synthetic(MIN_PAPERS))) == MIN_PAPERS
