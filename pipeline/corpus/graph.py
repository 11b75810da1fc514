"""Third pass of corpus building: references become the citation graph, as CSR both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import StageError
from pipeline.core.progress import Progress
from pipeline.core.schema import INDICES, INDPTR
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import columns
from pipeline.corpus.merge import DUPLICATE
from pipeline.corpus.spill import Spill, write_columns

_BLOCK = 4_000_000
"""References resolved at a time."""


def write_graph(
    out: Workdir, references: list[Path], scratch: Path, keys: npt.NDArray[np.uint64], memory: int
) -> dict[str, int]:
    """Write ``outgoing-*`` and ``incoming-*`` into ``out``.

    Args:
        out: where the CSR arrays go.
        references: files of schema :data:`pipeline.corpus.extract.REFERENCES`, with ``rows-*.bin`` beside them.
        scratch: where intermediate files go.
        keys: uint64 ``[papers]``, key of each row's id.
        memory: bytes this may hold at once.

    Returns:
        How many references there were, how many of them are papers of the corpus.
    """
    papers = len(keys)
    listed = sum(len(columns(path)["key"]) for path in references)
    buckets = max(1, -(-listed * 32 // max(memory, 1)))
    width = max(1, -(-papers // buckets))
    spills = {
        name: [Spill(scratch / f"{name}-{i:05d}.bin", np.uint64) for i in range(buckets)]
        for name in ("outgoing", "incoming")
    }
    counts = {"references": 0, "references_in_corpus": 0}
    order, sorted_keys = _sorted(keys)
    with Progress(listed, "corpus: citations", "refs") as progress:
        for path in references:
            rows = _rows_beside(path)
            refs = columns(path)
            for start in range(0, len(refs["key"]), _BLOCK):
                block = slice(start, start + _BLOCK)
                source = rows[refs["position"][block]]
                kept = source != DUPLICATE
                source, cited = source[kept], refs["key"][block][kept]
                place = np.minimum(np.searchsorted(sorted_keys, cited), max(papers - 1, 0))
                found = sorted_keys[place] == cited if papers else np.zeros(len(cited), bool)
                source, target = source[found], order[place[found]]
                counts["references"] += len(cited)
                counts["references_in_corpus"] += len(source)
                _scatter(spills["outgoing"], source, target, width)
                _scatter(spills["incoming"], target, source, width)
                progress.add(len(cited))
    for name, parts in spills.items():
        _write_csr(out, name, parts, scratch, papers, width)
    return counts


def _sorted(keys: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    order = np.argsort(keys, kind="stable").astype(np.uint32)
    rising = keys[order]
    if np.any(rising[1:] == rising[:-1]):
        row = int(order[1:][rising[1:] == rising[:-1]][0])
        raise StageError(f"two paper ids share one 64-bit key (row {row})", "Rename one of them in the release")
    return order, rising


def _rows_beside(references: Path) -> npt.NDArray[np.uint32]:
    return np.fromfile(references.with_name(references.name.replace("refs-", "rows-")), np.uint32)


def _scatter(spills: list[Spill], first: npt.NDArray[np.uint32], second: npt.NDArray[np.uint32], width: int) -> None:
    """Append each pair, as one uint64, to the spill that holds its first row."""
    pairs = (first.astype(np.uint64) << np.uint64(32)) | second
    if len(spills) == 1:
        spills[0].append(pairs)
        return
    pairs.sort()
    bounds = np.arange(len(spills) + 1, dtype=np.uint64) * np.uint64(width) << np.uint64(32)
    cuts = np.searchsorted(pairs, bounds)
    for spill, start, end in zip(spills, cuts[:-1], cuts[1:], strict=True):
        if start < end:
            spill.append(pairs[start:end])


def _write_csr(out: Workdir, name: str, parts: list[Spill], scratch: Path, papers: int, width: int) -> None:
    indices = Spill(scratch / f"{name}-indices.bin", np.uint32)
    offsets = np.zeros(papers + 1, np.int64)
    for number, spill in enumerate(parts):
        pairs = np.sort(spill.array())
        first = number * width
        last = min(first + width, papers)
        rows = np.arange(first + 1, last + 1, dtype=np.uint64)
        offsets[first + 1 : last + 1] = offsets[first] + np.searchsorted(pairs, rows << np.uint64(32))
        indices.append((pairs & np.uint64(0xFFFF_FFFF)).astype(np.uint32))
        spill.close()
    write_columns(out, f"{name}-indptr.arrow", INDPTR, [offsets])
    write_columns(out, f"{name}-indices.arrow", INDICES, [indices.array()])
    indices.close()
