"""A corpus without its duplicates, written from a corpus that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR, PAPERS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import GrowingArray, write_arrays
from pipeline.corpus.duplicates import Duplicates, DuplicatesConfig, Rows, find_duplicates
from pipeline.corpus.graph import NOWHERE
from pipeline.corpus.merge import field_lists
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph

_BLOCK = 262_144
"""Papers whose citations are rewritten at a time."""


class _Renumbering(NamedTuple):
    """New rows.

    Attributes:
        of: uint32 ``[papers]``, the new row of each paper, :data:`NOWHERE` where it has none. Merged papers have the
            row of the paper that stands for them.
        kept: bool ``[papers]``.
        merged: int64 ``[n]``, old rows of the merged papers, in the order of their new rows.
    """

    of: npt.NDArray[np.uint32]
    kept: npt.NDArray[np.bool_]
    merged: Rows


def write_without_duplicates(
    corpus: Corpus, config: DuplicatesConfig, out: Workdir, resources: Resources
) -> dict[str, Any]:
    """Write a corpus in which every paper stands once, and return its counts.

    Holds about 40 bytes a paper beside ``resources.memory``. Merged papers give their citations, in both directions,
    and their fields to the paper that stands for them; it lists as many references (and citing papers) as the longest
    of their lists, or as the corpus then knows of.

    Raises:
        InputError: the corpus has judged queries; their judgements name papers by id.
    """
    if corpus.has_query_texts():
        raise InputError("a corpus with judged queries keeps its duplicates", "Build it with --duplicates=keep")
    old = corpus.attributes
    duplicates = find_duplicates(old, config, resources.memory // 2)
    renumbering = _renumber(len(corpus), duplicates, config.action == "merge")
    scratch = out.scratch()
    edges = {}
    for name, graph in (("outgoing", corpus.outgoing), ("incoming", corpus.incoming)):
        indices = GrowingArray(scratch / f"{name}-indices.bin", np.uint32)
        edges[name] = np.diff(offsets := _rewrite(graph, renumbering, indices, name))
        write_arrays(out, f"{name}-indptr.arrow", INDPTR, [offsets])
        write_arrays(out, f"{name}-indices.arrow", INDICES, [indices.array()])
        indices.close()
    growing = {name: GrowingArray(scratch / f"{name}.bin", column.dtype) for name, column in old.items()}
    new: dict[str, Any] = {}
    for name, array in growing.items():
        for start in range(0, len(corpus), _BLOCK):
            array.append(old[name][start : start + _BLOCK][renumbering.kept[start : start + _BLOCK]])
        new[name] = array.array()
    if config.action == "merge":
        new |= {name: np.array(new[name]) for name in ("fields", "n_outbound", "n_inbound")}
        _merge(new, old, duplicates, renumbering)
        new["n_outbound"] = np.maximum(new["n_outbound"], edges["outgoing"].astype(np.int32))
        new["n_inbound"] = np.maximum(new["n_inbound"], edges["incoming"].astype(np.int32))
    write_arrays(out, "attributes.arrow", ATTRIBUTES, [new[name] for name in ATTRIBUTES.names])
    _write_shards(corpus, renumbering.kept, new, out)
    counted = prefilter(new, PrefilterConfig())[1]
    for array in growing.values():
        array.close()
    by_doi = int(np.count_nonzero(duplicates.by_doi))
    return {
        "read": len(corpus),
        "kept": len(new["key"]),
        "dropped": {"duplicate_doi": by_doi, "duplicate_title_and_year": len(duplicates.rows) - by_doi},
        "duplicate_groups": len(np.unique(duplicates.kept)),
        "references": int(new["n_outbound"].sum(dtype=np.int64)),
        "references_in_corpus": int(edges["outgoing"].sum()),
        "prefilter": counted,
    }


def _renumber(papers: int, duplicates: Duplicates, merge: bool) -> _Renumbering:
    kept = np.ones(papers, bool)
    kept[duplicates.rows] = False
    of = (np.cumsum(kept, dtype=np.int64) - 1).astype(np.uint32)
    of[duplicates.rows] = of[duplicates.kept] if merge else NOWHERE
    order = np.argsort(of[duplicates.rows], kind="stable") if merge else slice(0)
    return _Renumbering(of, kept, duplicates.rows[order])


def _rewrite(graph: Graph, renumbering: _Renumbering, indices: GrowingArray, name: str) -> npt.NDArray[np.int64]:
    """Append one direction of the graph under the new rows to ``indices`` and return its offsets."""
    of, kept, merged = renumbering
    into = of[merged]
    counts = np.zeros(int(np.count_nonzero(kept)), np.int64)
    with Progress(len(of), f"corpus: {name} without duplicates", "papers") as progress:
        for start in range(0, len(of), _BLOCK):
            rows = start + np.flatnonzero(kept[start : start + _BLOCK])
            progress.add(min(_BLOCK, len(of) - start))
            if not len(rows):
                continue
            first, last = int(of[rows[0]]), int(of[rows[-1]])
            rows = np.concatenate([rows, merged[slice(*np.searchsorted(into, [first, last + 1]))]])
            place, neighbours = graph.of_many(rows)
            owner, neighbour = of[rows[place]], of[neighbours]
            stays = (neighbour != NOWHERE) & (neighbour != owner)
            pairs = np.unique(owner[stays].astype(np.uint64) << np.uint64(32) | neighbour[stays])
            counts[first : last + 1] = np.bincount(
                (pairs >> np.uint64(32)).astype(np.int64) - first, minlength=last + 1 - first
            )
            indices.append((pairs & np.uint64(0xFFFF_FFFF)).astype(np.uint32))
    return np.concatenate([[0], np.cumsum(counts)])


def _merge(new: dict[str, Any], old: dict[str, Any], duplicates: Duplicates, renumbering: _Renumbering) -> None:
    into = renumbering.of[duplicates.rows]
    np.bitwise_or.at(new["fields"], into, old["fields"][duplicates.rows])
    for name in ("n_outbound", "n_inbound"):
        np.maximum.at(new[name], into, old[name][duplicates.rows])


def _write_shards(corpus: Corpus, kept: npt.NDArray[np.bool_], new: Mapping[str, Any], out: Workdir) -> None:
    papers = len(new["key"])
    arriving = _kept_papers(corpus, kept)
    pending: list[pa.Table] = []
    for number, start in enumerate(range(0, max(papers, 1), SHARD_ROWS)):
        rows = slice(start, min(start + SHARD_ROWS, papers))
        while sum(map(len, pending)) < rows.stop - rows.start:
            pending.append(next(arriving))
        joined = pa.concat_tables(pending) if pending else corpus.shard(0).slice(0, 0)
        shard, pending = joined.slice(0, rows.stop - rows.start), [joined.slice(rows.stop - rows.start)]
        columns = {name: shard.column(name) for name in ("paper_id", "title", "abstract", "year")}
        columns |= {name: pa.array(new[name][rows]) for name in ("n_outbound", "n_inbound")}
        columns["fields"] = field_lists(new["fields"][rows])
        name = f"papers-{number:05d}.arrow"
        if not out.done(name):
            out.arrow(name, pa.table([columns[f.name] for f in PAPERS], schema=PAPERS), PAPERS)


def _kept_papers(corpus: Corpus, kept: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    for number in range(corpus.shards):
        yield corpus.shard(number).filter(pa.array(kept[corpus.starts[number] : corpus.starts[number + 1]]))
