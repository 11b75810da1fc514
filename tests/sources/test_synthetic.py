"""The synthetic release: the same papers whoever makes them, and the properties that make it useful."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.corpus import write_s2orc
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys, normalise, same_title_form
from pipeline.sources.base import RAW_PAPERS
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import MIN_PAPERS, VERSION, Synthetic
from tests.releases import s2orc_record

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


def test_shares_of_what_is_missing() -> None:
    year, fields = column("year"), np.bitwise_count(column("fields"))
    letters = pc.utf8_length(corpus().column("abstract")).to_numpy()
    references = pc.list_value_length(corpus().column("outbound")).to_numpy()
    check(
        {
            "no year": (0.01, (year == NO_YEAR).mean(), 0.02),
            "2019": (0.06, (year == 2019).mean(), 0.08),
            "no field": (0.04, (fields == 0).mean(), 0.06),
            "several fields": (0.05, (fields > 1).mean(), 0.08),
            "three fields": (0.001, (fields > 2).mean(), 0.008),
            "no abstract": (0.15, (letters == 0).mean(), 0.2),
            "short abstract": (0.002, ((letters > 0) & (letters < 30)).mean(), 0.008),
            "no title": (0.0002, (column("title") == "").mean(), 0.003),
            "no references": (0.2, (references == 0).mean(), 0.3),
            "this century": (0.6, (year[year != NO_YEAR] > 2000).mean(), 1),
        }
    )
    assert (year[year != NO_YEAR].min(), year.max()) == (1970, 2020)


def test_words() -> None:
    texts = [text.lower().replace(".", "").split() for text in column("abstract") if len(text) >= 30]
    lengths = [len(words) for words in texts]
    frequency = np.array(sorted(Counter(word for words in texts for word in words).values(), reverse=True))
    ranks = np.arange(10, 5_000)
    titles = [title for title in column("title") if title]
    same, exact = (
        sum(n for n in Counter(forms).values() if n > 1) / SIZE for forms in (map(same_title_form, titles), titles)
    )
    check(
        {
            "median length": (130, np.median(lengths), 200),
            "deviation": (40, np.std(lengths), 200),
            "words of a title": (8, np.mean([len(text.split()) for text in column("title")]), 12),
            "Zipf's law": (-1.4, np.polyfit(np.log(ranks), np.log(frequency[ranks]), 1)[0], -0.8),
            "titles that repeat": (0.005, same, 0.02),
            "titles that repeat to the letter": (0, exact, same - 1 / SIZE),
        }
    )


def test_references_are_distinct_and_of_realistic_number() -> None:
    keys = id_keys(column("paper_id").tolist())
    outbound = corpus().column("outbound").to_pylist()
    for key, references in zip(keys, outbound, strict=True):
        assert references == sorted(set(references))
        assert int(key) not in references
    assert 20 <= np.median([len(references) for references in outbound if references]) <= 30
    _, cited = edges()
    assert 0.1 < (cited < 0).mean() < 0.25
    assert np.array_equal(np.bincount(cited[cited >= 0], minlength=SIZE), column("n_inbound"))


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


def test_s2orc_release_reads_as_the_same_papers(tmp_path: Path) -> None:
    release, folder = Synthetic(2_000, 5), tmp_path / "release"
    citations = write_s2orc(release, folder)
    written = S2orc2020(folder)
    tables = [table.sort_by("paper_id").combine_chunks() for table in (read(written), read(release))]
    assert tables[0].drop_columns("doi_key") == tables[1].drop_columns("doi_key")

    lines = b"".join(gzip.decompress((folder / part).read_bytes()) for part in written.parts())
    records = {record["paper_id"]: record for record in map(json.loads, lines.splitlines())}
    parse_keys = [f"has_pdf_parsed_{part}" for part in ("abstract", "body_text", "bib_entries", "ref_entries")]
    for paper_id, record in records.items():
        assert list(record) == [*s2orc_record(paper_id), *(parse_keys if record["has_pdf_parse"] else ())]
        for way in ("outbound", "inbound"):
            assert record[f"has_{way}_citations"] == bool(record[f"{way}_citations"])
        assert record["has_pdf_parse"] or not record["outbound_citations"]
        assert "" not in (record["title"], record["abstract"])
        assert record["mag_field_of_study"] != []
    pairs = {(citing, cited) for cited, record in records.items() for citing in record["inbound_citations"]}
    assert pairs == {(p, c) for p, r in records.items() for c in r["outbound_citations"] if c in records}
    assert len(pairs) == citations

    with pytest.raises(InputError, match="holds metadata files already"):
        write_s2orc(release, folder)
