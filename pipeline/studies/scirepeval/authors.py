"""S2AND (Subramanian et al. 2021): signatures clustered by author within blocks, and B-cubed F1.

The published evaluation gives a pairwise model features of names, affiliations and papers; here vectors alone decide.
Signatures of a block are clustered by average linkage of cosine distances. The distance at which the tree is cut is the
best of the quantiles of the distances at which clusters merge, on a fifth of the blocks of each data set; the others
are the test blocks. So cuts are as fine for an encoder whose cosines are all near 1 as for any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from pipeline.core.errors import InputError
from pipeline.core.rng import priorities
from pipeline.core.text import id_keys
from pipeline.measure.statistics import Floats
from pipeline.studies.scirepeval.layout import Doc, Folder, beside, document, read_doc
from pipeline.studies.scirepeval.tasks import Entry, VectorsOf

Ints = npt.NDArray[np.int64]

_SPLIT_SEED, _TUNE_SHARE = 13, 5
_CUTS = 41
"""Quantiles of the merging distances that are tried, from the lowest to the highest."""


class DataSet(NamedTuple):
    """One source of signatures: its name, and of each block the paper key and the author's number of each signature."""

    name: str
    blocks: tuple[tuple[tuple[str, ...], Ints], ...]


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield the papers of all data sets; an id is that of the data set and the paper."""
    for path in folder.authors(entry):
        for paper, row in document(beside(path, "papers")).items():
            yield read_doc(row, entry.fields, entry.name, _id(path, paper))


def load(entry: Entry, folder: Folder, counts: Counter[str]) -> list[DataSet]:
    """Return the data sets, their blocks in random order; a signature of no cluster is left out and counted.

    Raises:
        InputError: a signature has no block, or its paper no text; the task and the signature are named.
    """
    keys = {doc.id: doc.key for doc in docs(entry, folder)}
    sets = []
    for path in folder.authors(entry):
        clusters = enumerate(document(beside(path, "clusters")).values())
        author = {signature: number for number, cluster in clusters for signature in cluster["signature_ids"]}
        blocks: dict[str, list[tuple[str, int]]] = {}
        for signature, row in document(path).items():
            block, paper = row.get("author_info", {}).get("block"), _id(path, str(row.get("paper_id")))
            if block is None or paper not in keys:
                raise InputError(
                    f"signature {signature!r} of task {entry.name} must have a block and a paper with a text, "
                    f"got {block!r} and {paper!r}",
                    "Fetch the files again; those of another version are not read",
                )
            counts["signatures_without_cluster"] += signature not in author
            if signature in author:
                blocks.setdefault(block, []).append((keys[paper], author[signature]))
        counts["signatures"] += sum(map(len, blocks.values()))
        if len(blocks) < 2:
            raise InputError(
                f"data set {path.parent.name} of task {entry.name} must have two blocks, got {len(blocks)}", ""
            )
        order = np.argsort(priorities(id_keys(list(blocks)), _SPLIT_SEED, "s2and"), kind="stable")
        columns = [tuple(zip(*list(blocks.values())[place], strict=True)) for place in order]
        sets.append(DataSet(path.parent.name, tuple((papers, np.array(numbers)) for papers, numbers in columns)))
    return sets


def _id(path: Path, paper: str) -> str:
    return f"{path.parent.name}/{paper}"


def cluster(data: DataSet, vectors: VectorsOf) -> tuple[list[Ints], list[Ints]]:
    """Return the authors and the clusters of the signatures of each test block."""
    tuned = max(1, len(data.blocks) // _TUNE_SHARE)
    trees = [_tree(vectors(keys, "paper")) for keys, _ in data.blocks]
    authors = [numbers for _, numbers in data.blocks]

    def quality(cut: float) -> float:
        sums = b_cubed(authors[:tuned], [_cut(tree, cut) for tree in trees[:tuned]])
        return float(f1(*sums, np.ones((1, tuned)))[0])

    merges = np.concatenate([np.zeros(1), *(tree[:, 2] for tree in trees[:tuned])])
    best = max(np.quantile(merges, np.linspace(0, 1, _CUTS)).tolist(), key=quality)
    return authors[tuned:], [_cut(tree, best) for tree in trees[tuned:]]


def _tree(vectors: npt.NDArray[np.float32]) -> Floats:
    if len(vectors) < 2:
        return np.empty((0, 4))
    distances = pdist(vectors.astype(np.float64), "cosine")
    tree: Floats = linkage(np.clip(np.nan_to_num(distances, nan=1.0), 0, 2), "average")  # a zero vector has no cosine
    return tree


def _cut(tree: Floats, distance: float) -> Ints:
    return fcluster(tree, distance, "distance").astype(np.int64) if len(tree) else np.ones(1, np.int64)


def b_cubed(authors: Sequence[Ints], clusters: Sequence[Ints]) -> tuple[Floats, Floats, Ints]:
    """Return the sums over the signatures of each block of B-cubed precision and recall, and their number.

    Precision of a signature: the share of its cluster that is of its author. Recall: the share of its author's
    signatures, in any block, that is in its cluster (Bagga and Baldwin 1998). Clusters of two blocks are distinct.
    """
    block = np.repeat(np.arange(len(authors)), list(map(len, authors)))
    author, number = np.concatenate(authors), np.concatenate(clusters)
    _, cluster = np.unique(np.stack([block, number]), axis=1, return_inverse=True)
    _, pair, shared = np.unique(np.stack([cluster, author]), axis=1, return_inverse=True, return_counts=True)
    _, author = np.unique(author, return_inverse=True)
    both = shared[pair]
    precision, recall = both / np.bincount(cluster)[cluster], both / np.bincount(author)[author]
    sums = [np.bincount(block, values, len(authors)).astype(np.float64) for values in (precision, recall)]
    return sums[0], sums[1], np.bincount(block, minlength=len(authors)).astype(np.int64)


def f1(precision: Floats, recall: Floats, sizes: Ints, times: Floats) -> Floats:
    """Return B-cubed F1 of each resample, of the sums of :func:`b_cubed` and how often each resample has each block."""
    total = times @ sizes
    p, r = times @ precision / total, times @ recall / total
    scores: Floats = 2 * p * r / (p + r)
    return scores
