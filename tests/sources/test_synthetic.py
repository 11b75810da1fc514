from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import re
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from pipeline.core.errors import InputError
from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.core.parallel import unordered
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys, normalise, same_title_form
from pipeline.sources.base import RAW_PAPERS
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import LEAST, VERSION, Synthetic
from pipeline.sources.synthetic_papers import read_range
from pipeline.sources.synthetic_s2orc import write_s2orc
from pipeline.sources.synthetic_words import FUNCTION_WORDS, GENERAL_WORDS
from tests.releases import s2orc_record

SIZE = 12_000


def read(release: Synthetic | S2orc2020) -> pa.Table:
    table = pa.Table.from_batches([batch.papers for part in release.parts() for batch in release.read(part)])
    return table.combine_chunks()


def by_id(table: pa.Table) -> pa.Table:
    return table.sort_by("paper_id").combine_chunks()


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
    table = corpus()
    outbound = table.column("outbound").chunk(0)
    citing = np.repeat(np.arange(len(table)), np.diff(outbound.offsets))
    found = pc.index_in(outbound.flatten(), pa.array(id_keys(table.column("paper_id").to_pylist())))
    return citing, found.fill_null(-1).to_numpy()


def column(name: str) -> np.ndarray:
    return corpus().column(name).to_numpy()


def content_words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in FUNCTION_WORDS]


def test_schema_order_and_number() -> None:
    table = corpus()
    assert table.schema == RAW_PAPERS
    assert len(table) == SIZE
    ids = table.column("paper_id").to_pylist()
    assert len(set(ids)) == SIZE
    assert all(i.isdecimal() and i[0] != "0" for i in ids)
    assert len({len(i) for i in ids}) > 1, "ids of one length would sort alike as numbers and as text"
    # The field of a release's papers in their order says nothing of their ids' order.
    assert abs(np.corrcoef(np.argsort(np.argsort(ids)), np.arange(SIZE))[0, 1]) < 0.05


def test_texts_are_normalised() -> None:
    for name in ("title", "abstract"):
        texts = column(name).tolist()
        assert [normalise(text) for text in texts] == texts
    assert any(not text.isascii() for text in column("abstract"))


def test_same_seed_same_papers_whatever_the_parts_batches_and_processes() -> None:
    release = Synthetic(SIZE)
    parts = release.parts()
    assert len(parts) > 1
    here = {part: digest(release, part) for part in reversed(parts)}
    elsewhere = dict(unordered(partial(digest, pickle.loads(pickle.dumps(release))), parts, 2))  # noqa: S301
    assert elsewhere == here
    pieces = [
        batch.papers
        for start in range(0, SIZE, 5_000)
        for batch in read_range(SIZE, 13, start, min(start + 5_000, SIZE))
    ]
    assert pa.Table.from_batches(pieces).combine_chunks() == corpus()


def test_content_is_pinned_by_the_version() -> None:
    """Another digest is another corpus: raise ``synthetic.VERSION`` with it, or stale corpora would be served."""
    assert VERSION == 2
    assert digest(Synthetic(500, 7), "00000-of-00001").startswith("fa5d680039ad495da655d517aeaa08d0")


def test_other_seed_or_size_other_papers() -> None:
    texts = set(corpus(1_000, 13).column("abstract").to_pylist()) - {""}
    assert not texts & set(corpus(1_000, 14).column("abstract").to_pylist())
    assert len(corpus(1_001, 13)) == 1_001
    identities = [Synthetic(1_000, 13).identity(), Synthetic(1_000, 14).identity(), Synthetic(1_001, 13).identity()]
    assert len({json.dumps(identity) for identity in identities}) == 3


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="199 papers"):
        Synthetic(199)
    with pytest.raises(InputError, match="no part 'x'"):
        Synthetic(LEAST).read("x")
    assert len(read(Synthetic(LEAST))) == LEAST


def test_shares_of_what_is_missing() -> None:
    year, masks = column("year"), column("fields")
    fields = np.bitwise_count(masks)
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


def test_lengths_and_repeated_titles() -> None:
    words = np.array([len(text.split()) for text in column("abstract") if len(text) >= 30])
    assert 130 <= np.median(words) <= 200
    assert words.std() > 40
    assert 8 <= np.mean([len(text.split()) for text in column("title")]) <= 12
    forms = Counter(same_title_form(title) for title in column("title") if title)
    repeated = sum(count for count in forms.values() if count > 1) / SIZE
    assert 0.005 < repeated < 0.02
    raw = Counter(title for title in column("title") if title)
    assert sum(c for c in raw.values() if c > 1) / SIZE < repeated, "some repetitions differ in punctuation"


def test_fields_have_unequal_sizes_and_words_of_their_own() -> None:
    masks, abstracts = column("fields"), column("abstract")
    sizes = {name: int((masks & (1 << FIELD_BIT[name]) > 0).sum()) for name in MAG_FIELDS}
    assert min(sizes.values()) > 0.005 * SIZE
    assert max(sizes.values()) > 8 * min(sizes.values())
    common = set(GENERAL_WORDS)
    vocabulary = {
        name: {
            word
            for word, count in Counter(
                word for text in abstracts[masks == 1 << FIELD_BIT[name]] for word in set(content_words(text))
            ).items()
            if count >= 0.05 * sizes[name]
        }
        - common
        for name in ("Medicine", "Physics", "Art")
    }
    shared = set.intersection(*vocabulary.values())
    for words in vocabulary.values():
        assert len(words - shared) > 15, "words frequent in this field"
    assert not (vocabulary["Medicine"] - shared) & (vocabulary["Physics"] - shared)


def test_references_are_distinct_and_of_realistic_number() -> None:
    table = corpus()
    keys = id_keys(table.column("paper_id").to_pylist())
    outbound = table.column("outbound").to_pylist()
    for key, references in zip(keys, outbound, strict=True):
        assert references == sorted(set(references))
        assert int(key) not in references
    counts = np.array([len(references) for references in outbound])
    assert 20 <= np.median(counts[counts > 0]) <= 30
    _, cited = edges()
    assert 0.1 < (cited < 0).mean() < 0.25
    assert np.array_equal(np.bincount(cited[cited >= 0], minlength=SIZE), column("n_inbound"))
    absent = Counter(np.array([key for references in outbound for key in references])[cited < 0].tolist())
    assert absent.most_common(1)[0][1] > 1, "papers that the release lacks are cited together too"


def test_references_follow_time_field_and_popularity() -> None:
    citing, cited = edges()
    citing, cited = citing[cited >= 0], cited[cited >= 0]
    year, masks = column("year").astype(int), column("fields")
    dated = (year[citing] != NO_YEAR) & (year[cited] != NO_YEAR)
    age = year[citing][dated] - year[cited][dated]
    assert 0.0005 < (age < 0).mean() < 0.02
    assert 0.01 < (age == 0).mean() < 0.15
    assert 4 <= np.median(age) <= 15
    known = (masks[citing] > 0) & (masks[cited] > 0)
    assert 0.85 < (masks[citing] & masks[cited] > 0)[known].mean() < 0.99
    inbound = np.sort(column("n_inbound"))[::-1]
    hill = 1 / np.log(inbound[:300] / inbound[300]).mean()
    assert 1.2 < hill < 4, "exponent of the tail of the in-degrees"
    assert inbound[0] > 15 * np.median(inbound)


def test_words_and_topics_both_tell_what_is_cited_and_tell_it_differently() -> None:
    citing, cited = edges()
    abstract, title, year = column("abstract"), column("title"), column("year")
    pool = np.flatnonzero((abstract != "") & (year <= 2019))[:3_000]
    place = np.full(SIZE, -1)
    place[pool] = np.arange(len(pool))
    inside = (cited >= 0) & (place[citing] >= 0) & (place[cited] >= 0) & (year[citing] >= 2015)
    queries = np.unique(citing[inside])[:200]
    texts = [f"{title[row]} {abstract[row]}" for row in pool]
    sparse = TfidfVectorizer(sublinear_tf=True, stop_words=list(FUNCTION_WORDS), dtype=np.float32).fit_transform(texts)
    dense = normalize(TruncatedSVD(128, random_state=0, n_iter=2).fit_transform(sparse))
    tops, means, chance = [], [], []
    for matrix in (sparse, dense):
        scores = matrix[place[queries]] @ matrix.T
        scores = scores.toarray() if hasattr(scores, "toarray") else scores
        scores[np.arange(len(queries)), place[queries]] = -np.inf
        top = np.argsort(-scores, axis=1, kind="stable")[:, :100]
        tops.append(top)
        precisions = []
        for query, ranked in zip(queries, top, strict=True):
            relevant = place[cited[inside & (citing == query)]]
            hits = np.isin(ranked, relevant)
            precisions.append((np.cumsum(hits) / np.arange(1, 101) * hits).sum() / len(relevant))
            chance.append(len(relevant) / len(pool))
        means.append(np.mean(precisions))
    assert min(means) > 15 * np.mean(chance), (means, np.mean(chance))
    assert abs(means[0] - means[1]) > 0.01
    shared = np.mean([len(set(a[:20]) & set(b[:20])) / 20 for a, b in zip(*tops, strict=True)])
    assert 0.1 < shared < 0.8


def test_s2orc_release_reads_as_the_same_papers(tmp_path: Path) -> None:
    release = Synthetic(1_500, 5)
    citations = write_s2orc(release, tmp_path / "release", shards=3)
    papers = read(release)
    written = S2orc2020(tmp_path / "release")
    assert written.parts() == [f"metadata_{n}.jsonl.gz" for n in range(3)]
    assert by_id(read(written)).drop_columns("doi_key") == by_id(papers).drop_columns("doi_key")

    lines = b"".join(gzip.decompress((tmp_path / "release" / part).read_bytes()) for part in written.parts())
    records = {record["paper_id"]: record for record in map(json.loads, lines.splitlines())}
    parse_keys = [f"has_pdf_parsed_{part}" for part in ("abstract", "body_text", "bib_entries", "ref_entries")]
    pairs = set()
    for paper_id, record in records.items():
        keys = [*s2orc_record(paper_id), *(parse_keys if record["has_pdf_parse"] else ())]
        assert list(record) == keys
        assert record["has_outbound_citations"] == bool(record["outbound_citations"])
        assert record["has_inbound_citations"] == bool(record["inbound_citations"])
        assert record["has_pdf_parse"] or not record["outbound_citations"]
        assert "" not in (record["title"], record["abstract"])
        assert record["mag_field_of_study"] != []
        assert record["authors"]
        assert set(record["authors"][0]) == {"first", "middle", "last", "suffix"}
        pairs |= {(citing, paper_id) for citing in record["inbound_citations"]}
    assert pairs == {(p, c) for p, r in records.items() for c in r["outbound_citations"] if c in records}
    assert len(pairs) == citations
    for name in ("title", "abstract", "year", "mag_field_of_study"):
        assert any(record[name] is None for record in records.values()), name


def test_s2orc_release_is_the_same_from_several_processes(tmp_path: Path) -> None:
    for workers in (1, 2):
        write_s2orc(Synthetic(600), tmp_path / str(workers), shards=2, workers=workers)
    for name in ("metadata_0.jsonl.gz", "metadata_1.jsonl.gz"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "2").iterdir()) == ["metadata_0.jsonl.gz", "metadata_1.jsonl.gz"]


def test_s2orc_release_refuses_a_used_folder_and_a_bad_number_of_shards(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 files"):
        write_s2orc(Synthetic(LEAST), tmp_path, shards=0)
    (tmp_path / "metadata_0.jsonl.gz").touch()
    with pytest.raises(InputError, match="holds metadata files already"):
        write_s2orc(Synthetic(LEAST), tmp_path)
