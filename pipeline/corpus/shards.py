"""Write the shards of a corpus: the papers' texts, and what is shown of their attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Keys, offsets_of
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.parts import text_bytes_at, texts_at

_BLOCK_BYTES = 2**27
"""Texts and references of a block of papers, in bytes; ordering them needs three times as much memory. A shard has one
record batch per block, so this number is part of the format."""

Attributes = Mapping[str, npt.NDArray[Any]]


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
