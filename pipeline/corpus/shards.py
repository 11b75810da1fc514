"""Write the files of a corpus: attributes and citation graph, by growing arrays on disk, and shards of papers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import Keys, offsets_of
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR, NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.parts import text_bytes_at, texts_at

Array = npt.NDArray[Any]
_SHIFT = np.uint64(32)

_BLOCK_BYTES = 2**27
"""Texts and references of a block of papers, in bytes; ordering them needs three times as much memory. A shard has one
record batch per block, so this number is part of the format."""

Attributes = Mapping[str, npt.NDArray[Any]]


class GrowingColumns:
    """Columns of numbers of a schema, one raw file each, written by appending.

    Appends use the files, not memory maps, so that a full disk raises an error instead of a signal.
    """

    def __init__(self, scratch: Path, name: str, schema: pa.Schema) -> None:
        self._schema, self._paths = schema, [scratch / f"{name}.{field.name}.bin" for field in schema]
        self._handles = [path.open("wb", buffering=2**20) for path in self._paths]

    def append(self, *columns: Array) -> None:
        """Add rows at the end, given as one array a column."""
        for handle, values, field in zip(self._handles, columns, self._schema, strict=True):
            handle.write(np.ascontiguousarray(values, field.type.to_pandas_dtype()).data)

    def arrays(self) -> list[Array]:
        """Return all rows as read-only memory maps, and write no more."""
        for handle in self._handles:
            handle.close()
        types = [field.type.to_pandas_dtype() for field in self._schema]
        pairs = zip(self._paths, types, strict=True)
        return [np.memmap(path, kind, mode="r") if path.stat().st_size else np.empty(0, kind) for path, kind in pairs]

    def publish(self, out: Workdir, name: str) -> None:
        """Write the rows as one batch of an Arrow file, and remove the scratch files."""
        out.arrow(name, pa.table(self.arrays(), schema=self._schema), self._schema)
        for path in self._paths:
            path.unlink()


def write_attributes(out: Workdir, blocks: Iterable[Iterable[Array]]) -> dict[str, Array]:
    """Write the attributes of a corpus from blocks of columns, in row order; return them as memory maps."""
    columns = GrowingColumns(out.scratch(), "attributes", ATTRIBUTES)
    for block in blocks:
        columns.append(*block)
    columns.publish(out, "attributes.arrow")
    written = files.read_arrow(out.path / "attributes.arrow")
    return {name: written.column(name).to_numpy() for name in ATTRIBUTES.names}


def write_graph(out: Workdir, name: str, papers: int, pairs: Iterable[Keys]) -> int:
    """Write one direction of a citation graph as CSR and return its number of edges.

    Args:
        out: receives ``NAME-indptr.arrow`` and ``NAME-indices.arrow``.
        name: ``outgoing`` or ``incoming``.
        papers: number of papers.
        pairs: blocks of rising pairs of rows (:func:`pipeline.core.csr.pack`): a paper and its neighbour. Repeated
            pairs count once.
    """
    offsets = GrowingColumns(out.scratch(), f"{name}-indptr", INDPTR)
    neighbours = GrowingColumns(out.scratch(), f"{name}-indices", INDICES)
    known, edges, last = 0, 0, np.array([2**64 - 1], np.uint64)
    for block in pairs:
        block = block[block != np.concatenate([last, block[:-1]])]
        if len(block):
            owner, end = block >> _SHIFT, int(block[-1] >> _SHIFT) + 1
            offsets.append(edges + np.searchsorted(owner, np.arange(known, end, dtype=np.uint64)))
            neighbours.append(block.astype(np.uint32))
            known, edges, last = end, edges + len(block), block[-1:]
    offsets.append(np.full(papers + 1 - known, edges))
    offsets.publish(out, f"{name}-indptr.arrow")
    neighbours.publish(out, f"{name}-indices.arrow")
    return edges


def write_shards(
    attributes: Attributes, places: Keys, abstracts: Keys, shard_rows: int, out: Workdir, resources: Resources
) -> int:
    """Write the shards that are not finished, and return the number of all; without papers there is one empty shard.

    Args:
        attributes: attributes of all papers.
        places: places of titles and ids (:func:`pipeline.corpus.parts.read_part`), uint64 ``[papers]``.
        abstracts: places of abstracts, uint64 ``[papers]``.
        shard_rows: papers of a shard.
        out: receives the shards; has the texts in its scratch folder.
        resources: limits; at least one block is held in memory.
    """
    size = sum(path.stat().st_size for path in out.scratch().glob("texts-*.arrow"))
    workers = max(1, min(resources.workers, resources.memory // max(4 * min(size, _BLOCK_BYTES), 1)))
    starts = range(0, max(len(places), 1), shard_rows)
    rows = [slice(start, start + shard_rows) for start in starts]
    write = functools.partial(_write_shard, attributes, places, abstracts, out)
    with Progress(len(places), "corpus: write", "papers") as progress:
        for papers in in_order(write, enumerate(rows), workers):
            progress.add(papers)
    return -(-len(places) // shard_rows)


def _write_shard(
    attributes: Attributes, places: Keys, abstracts: Keys, out: Workdir, numbered: tuple[int, slice]
) -> int:
    """Write a shard, ``papers-NUMBER.arrow``, and return the number of its papers."""
    number, rows = numbered
    name, papers = f"papers-{number:05d}.arrow", len(places[rows])
    if out.done(name):
        return papers
    place_of = {"paper_id": places[rows], "title": places[rows], "abstract": abstracts[rows]}
    of_shard = {name: column[rows] for name, column in attributes.items()}
    batches = (
        paper_batch(
            {column: texts_at(out.scratch(), column, place[block]) for column, place in place_of.items()},
            {name: column[block] for name, column in of_shard.items()},
        )
        for block in _blocks(out.scratch(), place_of, of_shard["n_outbound"])
    )
    out.arrow(name, batches, PAPERS)
    return papers


def _blocks(scratch: Path, place_of: Mapping[str, Keys], n_outbound: npt.NDArray[np.int32]) -> Iterator[slice]:
    """Yield the blocks of a shard, of about :data:`_BLOCK_BYTES` of texts and references."""
    sizes = sum(text_bytes_at(scratch, name, place_of[name]) for name in ("title", "abstract")) + 8 * n_outbound
    block = (np.cumsum(sizes, dtype=np.int64) - sizes) // _BLOCK_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(sizes)]
    return map(slice, bounds, bounds[1:])


def paper_batch(texts: Mapping[str, pa.Array], attributes: Attributes) -> pa.RecordBatch:
    """Return papers, schema :data:`pipeline.core.schema.PAPERS`, from ids, titles and abstracts, and attributes."""
    columns = {**texts, **{name: pa.array(attributes[name]) for name in ("n_outbound", "n_inbound")}}
    columns["year"] = pa.array(attributes["year"], mask=attributes["year"] == NO_YEAR)
    columns["fields"] = _field_lists(attributes["fields"])
    return pa.RecordBatch.from_arrays([columns[field.name] for field in PAPERS], schema=PAPERS)


def _field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the field names of each bit mask."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = offsets_of(owner, len(masks)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
