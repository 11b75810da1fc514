"""Releases written for tests, in the layouts of the real ones."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.sources.base import PaperBatch, Release


def id_key(paper_id: str) -> int:
    """Return the key of a paper id by its plain definition (:func:`pipeline.core.text.id_keys`)."""
    if re.fullmatch("0|[1-9][0-9]{0,17}", paper_id):
        return int(paper_id)
    if re.fullmatch("[A-Za-z](0|[1-9][0-9]{0,15})", paper_id):
        return 1 << 62 | (ord(paper_id[0]) - 64) << 56 | int(paper_id[1:])
    digest = hashlib.blake2b(paper_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1 << 63


def s2orc_record(paper_id: str, **values: Any) -> dict[str, Any]:
    """Return a metadata record with every documented key."""
    absent = "arxiv_id acl_id pmc_id pubmed_id doi venue journal mag_id mag_field_of_study s2_url"
    record: dict[str, Any] = {
        "paper_id": paper_id,
        "title": f"Title of {paper_id}",
        "authors": [],
        "abstract": "An abstract that is long enough to be kept.",
        "year": 2019,
        "outbound_citations": [],
        "inbound_citations": [],
        "has_outbound_citations": False,
        "has_inbound_citations": False,
        "has_pdf_parse": False,
    }
    return _with(record | dict.fromkeys(absent.split()), values)


def write_s2orc(folder: Path, records: Sequence[dict[str, Any] | bytes], parts: int = 1) -> Path:
    """Write records (bytes: as they are) as ``metadata_*.jsonl.gz``, dealt to parts in blocks."""
    for number, block in enumerate(np.array_split(np.arange(len(records)), parts)):
        write_lines(folder / f"metadata_{number}.jsonl.gz", [records[i] for i in block])
    return folder


def random_s2orc(papers: int, seed: int) -> list[dict[str, Any]]:
    """Return random records: missing texts and years, several fields, shared titles, all kinds of references."""
    rng = np.random.default_rng(seed)
    ids = [str(n) for n in rng.choice(10**6, papers, replace=False)]
    ids[:: max(1, papers // 7)] = [f"hep-th/{n:07d}" for n in range(len(ids[:: max(1, papers // 7)]))]
    fields = ["Physics", "Medicine", "Computer Science"]
    records = []
    for paper_id in ids:
        cited = rng.choice(ids, rng.integers(0, 9)).tolist()
        cited += rng.choice([paper_id, "999999999", "nowhere"], rng.integers(0, 3)).tolist()
        if rng.random() < 0.15:
            cited = ["999999997", "999999998", "999999999"]
        citing = rng.choice(ids, rng.integers(0, 5)).tolist()
        record: dict[str, Any] = {
            "title": [None, " ", "Shared  title!", f"On {paper_id}"][rng.choice(4, p=[0.05, 0.05, 0.1, 0.8])],
            "abstract": [None, "short", "x" * 29, "y" * 30, "  " + "word " * 20][rng.choice(5)],
            "year": [None, 0, 2017, 2018, 2019, 2020, 2999][rng.choice(7, p=[0.05, 0.02, 0.2, 0.2, 0.4, 0.11, 0.02])],
        }
        several = [rng.choice(fields, n, replace=False).tolist() for n in (1, 2)]
        record["mag_field_of_study"] = [None, *several, ["Alchemy"]][rng.choice(4, p=[0.1, 0.6, 0.25, 0.05])]
        links = {"outbound_citations": cited, "inbound_citations": citing}
        records.append(s2orc_record(paper_id, **record, **links, **{f"has_{k}": bool(v) for k, v in links.items()}))
    return records


def s2ag_paper(corpusid: Any, **values: Any) -> dict[str, Any]:
    """Return a record of the S2AG dataset ``papers`` with every key of the official sample."""
    identifiers = ("ACL", "DBLP", "ArXiv", "MAG", "CorpusId", "PubMed", "DOI", "PubMedCentral")
    absent = ("publicationvenueid", "s2fieldsofstudy", "publicationtypes", "publicationdate", "journal")
    record: dict[str, Any] = {
        "corpusid": corpusid,
        "externalids": dict.fromkeys(identifiers) | {"CorpusId": str(corpusid)},
        "url": f"https://www.semanticscholar.org/paper/{corpusid}",
        "title": f"Title of {corpusid}",
        "authors": [{"authorId": "1", "name": "A. Author"}],
        "venue": "",
        "year": 2019,
        **dict.fromkeys(("referencecount", "citationcount", "influentialcitationcount"), 0),
        "isopenaccess": False,
        "updated": "2022-01-27T02:09:51.713Z",
    }
    return _with(record | dict.fromkeys(absent), values)


def s2ag_abstract(corpusid: Any, abstract: str | None) -> dict[str, Any]:
    """Return a record of the S2AG dataset ``abstracts``."""
    return {"corpusid": corpusid, "openaccessinfo": {"license": None}, "abstract": abstract, "updated": "2022-01-27"}


def s2ag_citation(citing: Any, cited: Any) -> dict[str, Any]:
    """Return a record of the S2AG dataset ``citations``; ids are strings or null in the official sample."""
    return {
        "citingcorpusid": citing,
        "citedcorpusid": cited,
        "isinfluential": False,
        "contexts": None,
        "intents": [["background"], None],
        "updated": "2020-09-13",
    }


def write_s2ag(folder: Path, parts: int = 1, **datasets: Sequence[dict[str, Any] | bytes]) -> Path:
    """Write records (bytes: as they are) of ``papers``, ``abstracts`` and ``citations``, as the API names them."""
    for dataset, records in datasets.items():
        (folder / dataset).mkdir(parents=True, exist_ok=True)
        for number, block in enumerate(np.array_split(np.arange(len(records)), parts)):
            write_lines(folder / dataset / f"20260310_070105_{number:05d}_abcde.gz", [records[i] for i in block])
    return folder


def write_lines(path: Path, records: Sequence[dict[str, Any] | bytes]) -> Path:
    """Write records (bytes: as they are) as JSON lines, compressed where the name ends in ``.gz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = b"".join(x if isinstance(x, bytes) else json.dumps(x).encode() + b"\n" for x in records)
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def _with(record: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    unknown = values.keys() - record.keys()
    if unknown:
        raise KeyError(unknown)
    return record | values


def openalex_work(number: int, **values: Any) -> dict[str, Any]:
    """Return an OpenAlex work with the keys that are read, and some that are not."""
    record: dict[str, Any] = {
        "id": f"https://openalex.org/W{number}",
        "title": f"Title of W{number}",
        "display_name": f"Title of W{number}",
        "publication_year": 2019,
        "language": "en",
        "type": "article",
        "authorships": [{"author_position": "first", "author": {"id": "https://openalex.org/A1"}}],
        "cited_by_count": 0,
        **dict.fromkeys(("is_retracted", "is_paratext", "is_xpac"), False),
        **{name: [] for name in ("concepts", "topics", "referenced_works", "related_works")},
        **dict.fromkeys(("doi", "primary_topic", "abstract_inverted_index")),
    }
    return _with(record, values)


def read(release: Release) -> tuple[list[dict[str, Any]], PaperBatch]:
    """Return all papers of a release, and what was counted in reading it."""
    rows, total = gathered(batch for part in release.parts() for batch in release.read(part))
    assert total.read == len(rows) + total.dropped.total()
    return rows, total


def gathered(found: Iterable[PaperBatch]) -> tuple[list[dict[str, Any]], PaperBatch]:
    """Return the papers of batches, and what all of them counted."""
    batches = list(found)
    total = PaperBatch(batches[0].papers, read=0)
    for batch in batches:
        total.read += batch.read
        total.dropped += batch.dropped
        total.noted += batch.noted
        total.examples += batch.examples
    return [row for batch in batches for row in batch.papers.to_pylist()], total
