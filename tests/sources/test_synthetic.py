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

from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys, normalise, same_title_form
from pipeline.sources import synthetic
from pipeline.sources.base import RAW_PAPERS
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import LEAST, VERSION, Synthetic
from pipeline.sources.synthetic_s2orc import write_s2orc
from tests.releases import s2orc_record

SIZE = 12_000


def read(release: Synthetic | S2orc2020) -> pa.Table:
    table = pa.Table.from_batches([batch.papers for part in release.parts() for batch in release.read(part)])
    return table.combine_chunks()


def digest(release: Synthetic, part: str) -> str:
    hashed = hashlib.sha256()
    for batch in release.read(part):
        hashed.update(repr(batch.papers.to_pydict()).encode())
    return hashed.hexdigest()


@cache
def corpus(papers: int = SIZE, seed: int = 13) -> pa.Table:
    return read(Synthetic(papers, seed))


@cache
def edges() -> tuple[np.ndarray, np.ndarray]:
    """Citing row and cited row (-1: outside) of every listed reference."""
    outbound = corpus().column("outbound").chunk(0)
    citing = np.repeat(np.arange(SIZE), np.diff(outbound.offsets))
    found = pc.index_in(outbound.flatten(), pa.array(id_keys(corpus().column("paper_id").to_pylist())))
    return citing, found.fill_null(-1).to_numpy()


def column(name: str) -> np.ndarray:
    return corpus().column(name).to_numpy()


def test_schema_ids_and_texts() -> None:
    table = corpus()
    assert table.schema == RAW_PAPERS
    ids = table.column("paper_id").to_pylist()
    assert len(set(ids)) == len(ids) == SIZE
    assert all(i.isdecimal() and i[0] != "0" for i in ids)
    assert len({len(i) for i in ids}) > 1, "ids of one length would sort alike as numbers and as text"
    assert abs(np.corrcoef(np.argsort(np.argsort(ids)), np.arange(SIZE))[0, 1]) < 0.05, "ids are in no order"
    for name in ("title", "abstract"):
        assert [normalise(text) for text in column(name)] == column(name).tolist()
    assert any(not text.isascii() for text in column("abstract"))


def test_same_papers_whatever_the_order_and_the_processes() -> None:
    release = Synthetic(SIZE)
    parts = release.parts()
    assert len(parts) > 1
    here = {part: digest(release, part) for part in reversed(parts)}
    elsewhere = dict(unordered(partial(digest, pickle.loads(pickle.dumps(release))), parts, 2))  # noqa: S301
    assert elsewhere == here


def test_content_is_pinned_by_the_version() -> None:
    """Another digest is another corpus: raise ``synthetic.VERSION`` with it, or stale corpora would be served."""
    assert VERSION == 3
    assert digest(Synthetic(500, 7), "00000-of-00001").startswith("6154983efc4855efe53e8b6dc501c7b2")


def test_other_seed_or_size_other_papers() -> None:
    texts = set(corpus(1_000, 13).column("abstract").to_pylist()) - {""}
    assert not texts & set(corpus(1_000, 14).column("abstract").to_pylist())
    assert not texts & set(corpus(1_001, 13).column("abstract").to_pylist())
    identities = [Synthetic(*settings).identity() for settings in ((1_000, 13), (1_000, 14), (1_001, 13))]
    assert len({json.dumps(identity) for identity in identities}) == 3


def test_parts_hold_every_unit_of_a_large_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "make_unit", lambda _release, number: number)
    release = Synthetic(8_000_000)
    assert 100 < len(release.parts()) < 200
    assert [unit for part in release.parts() for unit in release.read_units(part)] == list(range(977))


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="199 papers"):
        Synthetic(199)
    with pytest.raises(InputError, match="no part 'x'"):
        next(Synthetic(LEAST).read("x"))
    assert len(read(Synthetic(LEAST))) == LEAST


def test_shares_of_what_is_missing() -> None:
    year, fields = column("year"), np.bitwise_count(column("fields"))
    letters = pc.utf8_length(corpus().column("abstract")).to_numpy()
    shares = {
        "no year": (year == NO_YEAR).mean(),
        "2019": (year == 2019).mean(),
        "no field": (fields == 0).mean(),
        "several fields": (fields > 1).mean(),
        "three fields": (fields > 2).mean(),
        "no abstract": (letters == 0).mean(),
        "short abstract": ((letters > 0) & (letters < 30)).mean(),
        "no title": (column("title") == "").mean(),
        "no references": (pc.list_value_length(corpus().column("outbound")).to_numpy() == 0).mean(),
    }
    expected = {
        "no year": (0.01, 0.02),
        "2019": (0.06, 0.08),
        "no field": (0.04, 0.06),
        "several fields": (0.05, 0.08),
        "three fields": (0.001, 0.008),
        "no abstract": (0.15, 0.2),
        "short abstract": (0.002, 0.008),
        "no title": (0.0002, 0.003),
        "no references": (0.2, 0.3),
    }
    assert {k: v for k, v in shares.items() if not expected[k][0] <= v <= expected[k][1]} == {}
    years = year[year != NO_YEAR]
    assert (years.min(), years.max()) == (1970, 2020)
    assert (years > 2000).mean() > 0.6


def test_words() -> None:
    lists = [text.lower().replace(".", "").split() for text in column("abstract") if len(text) >= 30]
    lengths = np.array([len(words) for words in lists])
    assert 130 <= np.median(lengths) <= 200
    assert lengths.std() > 40
    assert 8 <= np.mean([len(text.split()) for text in column("title")]) <= 12
    frequency = np.array(sorted(Counter(w for words in lists for w in words).values(), reverse=True))
    ranks = np.arange(10, 5_000)
    slope = np.polyfit(np.log(ranks), np.log(frequency[ranks]), 1)[0]
    assert -1.4 < slope < -0.8, "Zipf's law"
    forms = Counter(same_title_form(title) for title in column("title") if title)
    repeated = sum(count for count in forms.values() if count > 1) / SIZE
    assert 0.005 < repeated < 0.02
    raw = Counter(title for title in column("title") if title)
    assert sum(c for c in raw.values() if c > 1) / SIZE < repeated, "some repetitions differ in punctuation"


def test_references_are_distinct_and_of_realistic_number() -> None:
    keys = id_keys(corpus().column("paper_id").to_pylist())
    outbound = corpus().column("outbound").to_pylist()
    for key, references in zip(keys, outbound, strict=True):
        assert references == sorted(set(references))
        assert int(key) not in references
    counts = np.array([len(references) for references in outbound])
    assert 20 <= np.median(counts[counts > 0]) <= 30
    _, cited = edges()
    assert 0.1 < (cited < 0).mean() < 0.25
    assert np.array_equal(np.bincount(cited[cited >= 0], minlength=SIZE), column("n_inbound"))


def test_references_follow_time_field_and_popularity() -> None:
    citing, cited = edges()
    citing, cited = citing[cited >= 0], cited[cited >= 0]
    year, masks = column("year").astype(int), column("fields")
    dated = (year[citing] != NO_YEAR) & (year[cited] != NO_YEAR)
    age = year[citing][dated] - year[cited][dated]
    assert 0.0005 < (age < 0).mean() < 0.02
    assert 3 <= np.median(age) <= 15
    known = (masks[citing] > 0) & (masks[cited] > 0)
    assert 0.85 < (masks[citing] & masks[cited] > 0)[known].mean() < 0.99
    inbound = np.sort(column("n_inbound"))[::-1]
    hill = 1 / np.log(inbound[:300] / inbound[300]).mean()
    assert 1.2 < hill < 4, "exponent of the tail of the in-degrees"
    assert inbound[0] > 15 * np.median(inbound)


def test_s2orc_release_reads_as_the_same_papers(tmp_path: Path) -> None:
    release = Synthetic(9_000, 5)
    citations = write_s2orc(release, tmp_path / "release")
    written = S2orc2020(tmp_path / "release")
    assert written.parts() == ["metadata_0.jsonl.gz", "metadata_1.jsonl.gz"]
    tables = [table.sort_by("paper_id").combine_chunks() for table in (read(written), read(release))]
    assert tables[0].drop_columns("doi_key") == tables[1].drop_columns("doi_key")

    lines = b"".join(gzip.decompress((tmp_path / "release" / part).read_bytes()) for part in written.parts())
    records = {record["paper_id"]: record for record in map(json.loads, lines.splitlines())}
    parse_keys = [f"has_pdf_parsed_{part}" for part in ("abstract", "body_text", "bib_entries", "ref_entries")]
    pairs = set()
    for paper_id, record in records.items():
        assert list(record) == [*s2orc_record(paper_id), *(parse_keys if record["has_pdf_parse"] else ())]
        assert record["has_outbound_citations"] == bool(record["outbound_citations"])
        assert record["has_inbound_citations"] == bool(record["inbound_citations"])
        assert record["has_pdf_parse"] or not record["outbound_citations"]
        assert "" not in (record["title"], record["abstract"])
        assert record["mag_field_of_study"] != []
        pairs |= {(citing, paper_id) for citing in record["inbound_citations"]}
    assert pairs == {(p, c) for p, r in records.items() for c in r["outbound_citations"] if c in records}
    assert len(pairs) == citations

    write_s2orc(release, tmp_path / "two", workers=2)
    for part in written.parts():
        assert (tmp_path / "two" / part).read_bytes() == (tmp_path / "release" / part).read_bytes()
    assert len(list((tmp_path / "two").iterdir())) == 2
    with pytest.raises(InputError, match="holds metadata files already"):
        write_s2orc(release, tmp_path / "two")
