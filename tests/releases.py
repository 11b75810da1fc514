"""Releases written for tests, in the layouts of the real ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def s2orc_record(paper_id: str, **values: Any) -> dict[str, Any]:
    """Return a metadata record with every documented key."""
    record: dict[str, Any] = {
        "paper_id": paper_id,
        "title": f"Title of {paper_id}",
        "authors": [],
        "abstract": "An abstract that is long enough to be kept.",
        "year": 2019,
        "arxiv_id": None,
        "acl_id": None,
        "pmc_id": None,
        "pubmed_id": None,
        "doi": None,
        "venue": None,
        "journal": None,
        "mag_id": None,
        "mag_field_of_study": None,
        "outbound_citations": [],
        "inbound_citations": [],
        "has_outbound_citations": False,
        "has_inbound_citations": False,
        "has_pdf_parse": False,
        "s2_url": None,
    }
    unknown = values.keys() - record.keys()
    if unknown:
        raise KeyError(unknown)
    return record | values


def write_s2orc(folder: Path, records: Sequence[dict[str, Any] | bytes], parts: int = 1) -> Path:
    """Write records (bytes: as they are) as ``metadata_*.jsonl.gz``, dealt to parts in blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, block in enumerate(np.array_split(np.arange(len(records)), parts)):
        lines = [records[i] for i in block]
        text = b"".join(x if isinstance(x, bytes) else json.dumps(x).encode() + b"\n" for x in lines)
        (folder / f"metadata_{number}.jsonl.gz").write_bytes(gzip.compress(text, 1))
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
        records.append(
            s2orc_record(
                paper_id,
                title=[None, " ", "Shared  title!", f"On {paper_id}"][rng.choice(4, p=[0.05, 0.05, 0.1, 0.8])],
                abstract=[None, "short", "x" * 29, "y" * 30, "  " + "word " * 20][rng.choice(5)],
                year=[None, 0, 2017, 2018, 2019, 2020, 2999][rng.choice(7, p=[0.05, 0.02, 0.2, 0.2, 0.4, 0.11, 0.02])],
                mag_field_of_study=[
                    None,
                    *(rng.choice(fields, n, replace=False).tolist() for n in (1, 2)),
                    ["Alchemy"],
                ][rng.choice(4, p=[0.1, 0.6, 0.25, 0.05])],
                outbound_citations=cited,
                inbound_citations=citing,
                has_outbound_citations=bool(cited),
                has_inbound_citations=bool(citing),
            )
        )
    return records
