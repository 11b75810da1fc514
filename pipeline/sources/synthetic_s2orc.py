"""A synthetic release written to disk in the layout of S2ORC 2020, to be read like the real one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import igzip

from pipeline.core import files
from pipeline.core.compiled import compiled
from pipeline.core.errors import InputError
from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say
from pipeline.core.rng import priorities
from pipeline.core.schema import NO_YEAR
from pipeline.sources.synthetic import Synthetic
from pipeline.sources.synthetic_graph import fill_inbound, inbound_counts
from pipeline.sources.synthetic_layout import Graph, Ints, Keys, graph, is_parsed
from pipeline.sources.synthetic_lexicon import lexicon
from pipeline.sources.synthetic_papers import Papers, blocks, ids_of, make

SHARDS = 100
"""Files of the real release."""

_SCRATCH = ".inbound"
_AUTHORS = 4_096
_MOST_AUTHORS = 6
_PREPRINTS = frozenset(FIELD_BIT[name] for name in ("Computer Science", "Mathematics", "Physics"))
_MEDICAL = frozenset(FIELD_BIT[name] for name in ("Biology", "Medicine"))


class Incoming(NamedTuple):
    """Who cites whom: offsets int64 ``[papers + 1]`` and the citing rows uint32, both on disk."""

    indptr: Ints
    citing: npt.NDArray[np.uint32]


def write_s2orc(release: Synthetic, folder: Path, shards: int = SHARDS, workers: int = 1) -> int:
    """Write ``metadata_0.jsonl.gz`` and on into ``folder`` and return the number of citations inside the release.

    Read by :class:`pipeline.sources.s2orc2020.S2orc2020` they give the papers that ``release`` gives. Memory: about 40
    bytes a paper in each process and 300 MB, beside the mapped pages of a file of 4 bytes a citation, which takes that
    much of the disk while the release is written.

    Args:
        release: what to write.
        folder: made where it is missing.
        shards: number of files.
        workers: processes; the files are the same whatever their number.

    Raises:
        InputError: the folder holds metadata files already, or there are more shards than papers.
        StageError: the disk is full.
    """
    if any(folder.glob("metadata_*.jsonl*")):
        raise InputError(f"{folder} holds metadata files already", "Name an empty folder, or remove them")
    if not 1 <= shards <= release.papers:
        raise InputError(f"{release.papers:,} papers cannot be written in {shards} files", "Choose a number between")
    with files.disk_errors(folder):
        scratch = folder / _SCRATCH
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            say(f"synthetic release: citations of {release.papers:,} papers")
            citations = _transpose(release, scratch)
            with Progress(release.papers, "write synthetic release", "papers") as progress:
                for _, papers in unordered(_Shard(release, folder, shards), range(shards), workers):
                    progress.add(papers)
        finally:
            shutil.rmtree(scratch)
    return citations


def _transpose(release: Synthetic, scratch: Path) -> int:
    indptr = np.zeros(release.papers + 1, np.int64)
    np.cumsum(inbound_counts(release.papers, release.seed), out=indptr[1:])
    np.save(scratch / "indptr.npy", indptr)
    total = int(indptr[-1])
    citing = np.lib.format.open_memmap(scratch / "citing.npy", mode="w+", dtype=np.uint32, shape=(total,))
    fill_inbound(graph(release.papers, release.seed), indptr[:-1], np.asarray(citing))
    citing.flush()
    return total


@dataclass(frozen=True)
class _Shard:
    """Writes one file of the release; travels to worker processes."""

    release: Synthetic
    folder: Path
    shards: int

    def __call__(self, number: int) -> int:
        papers, seed = self.release.papers, self.release.seed
        scratch = self.folder / _SCRATCH
        incoming = Incoming(
            np.load(scratch / "indptr.npy", mmap_mode="r"), np.load(scratch / "citing.npy", mmap_mode="r")
        )
        start, end = (papers * edge // self.shards for edge in (number, number + 1))
        encoder = msgspec.json.Encoder()
        with (
            files.replacing(self.folder / f"metadata_{number}.jsonl.gz") as path,
            path.open("wb") as handle,
            igzip.IGzipFile(filename="", fileobj=handle, mode="wb", compresslevel=1, mtime=0) as packed,
        ):
            for rows in blocks(papers, start, end):
                made = make(papers, seed, rows)
                packed.write(encoder.encode_lines(list(_records(graph(papers, seed), made, incoming, seed))))
        return end - start


@compiled
def _parsed(g: Graph, rows: Ints) -> npt.NDArray[np.bool_]:
    parsed = np.empty(len(rows), np.bool_)
    for number in range(len(rows)):
        parsed[number] = is_parsed(g, rows[number])
    return parsed


def _citing_ids(g: Graph, rows: Ints, incoming: Incoming) -> tuple[list[str], list[int]]:
    """Return the ids that cite ``rows``, rising within a paper, one list for all, and each paper's offset in it."""
    starts, ends = incoming.indptr[rows], incoming.indptr[rows + 1]
    lengths = ends - starts
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
    ids = ids_of(g, incoming.citing[positions].astype(np.int64))
    ids = ids[np.lexsort((ids, np.repeat(np.arange(len(rows)), lengths)))]
    return _strings(ids), indptr.tolist()


def _strings(ids: Keys) -> list[str]:
    strings: list[str] = pa.array(ids).cast(pa.string()).to_pylist()
    return strings


@lru_cache(maxsize=1)
def _authors(seed: int) -> list[dict[str, Any]]:
    words = lexicon(seed).words
    names = [
        bytes(letters[:length]).decode().capitalize()
        for letters, length in zip(words.letters[-_AUTHORS:], words.length[-_AUTHORS:], strict=True)
    ]
    return [
        {"first": name, "middle": [names[i // 8][0] + "."] if i % 3 == 0 else [], "last": names[-1 - i], "suffix": ""}
        for i, name in enumerate(names)
    ]


def _records(g: Graph, made: Papers, incoming: Incoming, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the papers as metadata records, keys as in the real release."""
    authors = _authors(seed)
    ids, outbound, out_from = _strings(made.ids), _strings(made.outbound), made.indptr.tolist()
    inbound, in_from = _citing_ids(g, made.rows, incoming)
    parsed = _parsed(g, made.rows).tolist()
    # Bits of this word decide what no reader of ours looks at: authors, identifiers, what was found in the full text.
    extra = priorities(made.rows.astype(np.uint64), seed, "synthetic/metadata").tolist()
    columns = zip(
        ids, made.titles.to_pylist(), made.abstracts.to_pylist(), made.years.tolist(), made.fields.tolist(), strict=True
    )
    for number, (paper_id, title, abstract, year, fields) in enumerate(columns):
        bits = extra[number]
        first = bits % (_AUTHORS - _MOST_AUTHORS)
        names = [MAG_FIELDS[field] for field in fields if field >= 0]
        cites = outbound[out_from[number] : out_from[number + 1]]
        cited_by = inbound[in_from[number] : in_from[number + 1]]
        record: dict[str, Any] = {
            "paper_id": paper_id,
            "title": title or None,
            "authors": authors[first : first + 1 + (bits >> 16) % _MOST_AUTHORS],
            "abstract": abstract or None,
            "year": None if year == NO_YEAR else year,
            "arxiv_id": f"{bits % 10_000:04d}.{bits % 99_991:05d}" if fields[0] in _PREPRINTS and bits >> 62 else None,
            "acl_id": None,
            "pmc_id": None,
            "pubmed_id": str(bits % 33_000_000) if fields[0] in _MEDICAL and (bits >> 20) & 1 else None,
            "doi": f"10.{1000 + bits % 9000}/{bits >> 24:x}" if (bits >> 21) & 1 else None,
            "venue": None,
            "journal": f"Journal of {names[0]} {1 + (bits >> 32) % 40}" if names and (bits >> 22) & 1 else None,
            "mag_id": str(bits % 3_000_000_000),
            "mag_field_of_study": names or None,
            "outbound_citations": cites,
            "inbound_citations": cited_by,
            "has_outbound_citations": bool(cites),
            "has_inbound_citations": bool(cited_by),
            "has_pdf_parse": parsed[number],
            "s2_url": f"https://api.semanticscholar.org/CorpusID:{paper_id}",
        }
        if parsed[number]:
            record |= {
                "has_pdf_parsed_abstract": bool(bits >> 63),
                "has_pdf_parsed_body_text": True,
                "has_pdf_parsed_bib_entries": bool(cites),
                "has_pdf_parsed_ref_entries": bool((bits >> 23) & 1),
            }
        yield record
