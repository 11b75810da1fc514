"""A synthetic release written to disk in the layout of S2ORC 2020, to be read like the real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.sources.synthetic import Synthetic, Unit

_AUTHORS: list[dict[str, Any]] = [
    {"first": first, "middle": [], "last": last, "suffix": ""}
    for first in ("Ada", "Bao", "Chinwe", "Dmitri", "Élodie", "Fatima", "Grace", "Haruto")
    for last in ("Abe", "Brown", "Cruz", "Diaz", "Eriksen", "Fischer", "Gupta", "Hernández", "Ivanov", "Johnson")
]
_MOST_AUTHORS = 6


def write_s2orc(release: Synthetic, folder: Path, workers: int = 1) -> int:
    """Write one ``metadata_N.jsonl.gz`` for each part into ``folder``; return the number of citations in the release.

    :class:`pipeline.sources.s2orc2020.S2orc2020` reads from them the papers that ``release`` gives. Each process holds
    about 300 MB.

    Args:
        release: what to write.
        folder: created if it is missing.
        workers: processes; the files do not depend on their number.

    Raises:
        InputError: the folder holds metadata files already.
        StageError: the disk is full.
    """
    if any(folder.glob("metadata_*.jsonl*")):
        raise InputError(f"{folder} holds metadata files already", "Name an empty folder, or remove them")
    citations = 0
    with files.disk_errors(folder), Progress(release.papers, "write synthetic release", "papers") as progress:
        folder.mkdir(parents=True, exist_ok=True)
        for _, (papers, cited) in unordered(_Part(release, folder), release.parts(), workers):
            progress.add(papers)
            citations += cited
    return citations


@dataclass(frozen=True)
class _Part:
    """Writes one part of the release and returns its numbers of papers and citations; travels to worker processes."""

    release: Synthetic
    folder: Path

    def __call__(self, part: str) -> tuple[int, int]:
        encoder = msgspec.json.Encoder()
        papers = citations = 0
        with (
            files.replacing(self.folder / f"metadata_{int(part.partition('-')[0])}.jsonl.gz") as path,
            path.open("wb") as handle,
            igzip.IGzipFile(filename="", fileobj=handle, mode="wb", compresslevel=1, mtime=0) as packed,
        ):
            for unit in self.release.read_units(part):
                packed.write(encoder.encode_lines(list(_records(unit, self.release.seed))))
                papers += len(unit.ids)
                citations += len(unit.citing)
        return papers, citations


def _strings(ids: np.ndarray[Any, np.dtype[np.uint64]]) -> list[str]:
    strings: list[str] = pa.array(ids).cast(pa.string()).to_pylist()
    return strings


def _records(unit: Unit, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the papers as metadata records, keys as in the real release."""
    ids, cited, citing = _strings(unit.ids), _strings(unit.cited), _strings(unit.citing)
    titles, abstracts = unit.titles.to_pylist(), unit.abstracts.to_pylist()
    years, fields, indptr, inbound = (a.tolist() for a in (unit.years, unit.fields, unit.indptr, unit.inbound))
    # What no reader of this project looks at: authors, other identifiers, what was found in the full text.
    other = generator(seed, "synthetic s2orc", ids[0]).integers(1 << 40, size=len(ids)).tolist()
    for row, (paper_id, bits) in enumerate(zip(ids, other, strict=True)):
        references, citations = cited[indptr[row] : indptr[row + 1]], citing[inbound[row] : inbound[row + 1]]
        first = bits % (len(_AUTHORS) - _MOST_AUTHORS)
        parsed = bool(references) or bits % 20 == 0
        record: dict[str, Any] = {
            "paper_id": paper_id,
            "title": titles[row] or None,
            "authors": _AUTHORS[first : first + 1 + bits % _MOST_AUTHORS],
            "abstract": abstracts[row] or None,
            "year": None if years[row] == NO_YEAR else years[row],
            "arxiv_id": f"{bits % 10_000:04d}.{bits % 99_991:05d}" if bits % 9 == 0 else None,
            "acl_id": None,
            "pmc_id": None,
            "pubmed_id": str(bits % 33_000_000) if bits % 5 == 0 else None,
            "doi": f"10.{1000 + bits % 9000}/{bits:x}" if bits % 2 == 0 else None,
            "venue": None,
            "journal": f"Journal of Studies {bits % 40}" if bits % 4 < 2 else None,
            "mag_id": str(bits % 3_000_000_000),
            "mag_field_of_study": [MAG_FIELDS[field] for field in fields[row] if field >= 0] or None,
            "outbound_citations": references,
            "inbound_citations": citations,
            "has_outbound_citations": bool(references),
            "has_inbound_citations": bool(citations),
            "has_pdf_parse": parsed,
            "s2_url": f"https://api.semanticscholar.org/CorpusID:{paper_id}",
        }
        if parsed:
            record |= {
                "has_pdf_parsed_abstract": bits % 3 == 0,
                "has_pdf_parsed_body_text": True,
                "has_pdf_parsed_bib_entries": bool(references),
                "has_pdf_parsed_ref_entries": bits % 7 == 0,
            }
        yield record
