"""The synthetic release: the same papers whoever makes them, and the properties that make it useful."""

from __future__ import annotations

import hashlib
import pickle
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys, normalise
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


@cache
def edges() -> tuple[np.ndarray, np.ndarray]:
    """Citing row and cited row (-1: outside) of every listed reference."""
    outbound = corpus().column("outbound").chunk(0)
    citing = np.repeat(np.arange(SIZE), np.diff(outbound.offsets))
    cited = pc.index_in(outbound.flatten(), pa.array(id_keys(column("paper_id").tolist())))
    return citing, cited.fill_null(-1).to_numpy()


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


def check(measured: dict[str, tuple[float, float, float]]) -> None:
    """Check that each value lies between its two bounds."""
    assert {name: (low, value, high) for name, (low, value, high) in measured.items() if not low <= value <= high} == {}


def test_references_follow_time_field_and_popularity() -> None:
    citing, cited = edges()
    citing, cited = citing[cited >= 0], cited[cited >= 0]
    year, masks = column("year").astype(int), column("fields")
    dated = (year[citing] != NO_YEAR) & (year[cited] != NO_YEAR)
    age = year[citing][dated] - year[cited][dated]
    with_field = (masks[citing] > 0) & (masks[cited] > 0)
    inbound = np.sort(column("n_inbound"))[::-1]
    check(
        {
            "to later papers": (0.0005, (age < 0).mean(), 0.02),
            "median age": (3, np.median(age), 15),
            "within a field": (0.85, (masks[citing] & masks[cited] > 0)[with_field].mean(), 0.99),
            "exponent of the tail of the in-degrees": (1.2, 1 / np.log(inbound[:300] / inbound[300]).mean(), 4),
            "most cited": (15 * np.median(inbound), inbound[0], SIZE),
        }
    )
