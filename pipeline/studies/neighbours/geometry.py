"""Geometry of vectors: standardised vectors, similarities within a class, overlap of nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.studies import kit
from pipeline.studies.neighbours.corpus import Members

STANDARDISED = "indexes/standardised"
SIMILARITIES = "runs/similarities"

DESCRIBED = ("mean", "deviation", "lowest", "highest", "above mean", "mean with the original")
"""Statistics of the cosines of all pairs of a class; the last is of each neighbour with its original."""

SIMILARITY = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("papers", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in DESCRIBED),
    ]
)
"""Statistics of the cosines of each class, ``similarities.arrow``, by name."""

_BLOCK = 256
_TIED = 1e-5
"""Largest difference of tied scores, over the query's highest: equal texts in other batches differ by less."""

_ROUNDING = 1e-9
"""Tolerance for rounding of a mean of cosines."""


Vectors = kit.Task | kit.Artifact
"""What has the vectors of a pool's papers, or makes them."""


@dataclass(frozen=True)
class GeometryConfig:
    """Settings of an artifact of this module, in addition to its inputs: the encoder."""

    encoder: Mapping[str, Any]


def standardised_task(corpus: kit.Artifact, pool: kit.Task, vectors: Vectors, model: kit.Model) -> kit.Task:
    """Return the task that standardises the vectors of a pool (Timkey & van Schijndel 2021).

    Each dimension has its mean over the candidates subtracted, and is divided by its standard deviation over the
    candidates unless this is zero.
    """

    def run(inputs: kit.Inputs, out: kit.Workdir, _resources: kit.Resources) -> kit.Counts:
        reader, store = kit.Pool(inputs["pool"], kit.Corpus(inputs["corpus"])), kit.store_of(inputs["vectors"])
        count, total = len(reader.candidates), np.zeros(store.dimension)
        for _, block in store.blocks(reader.candidates, _BLOCK):
            total += block.sum(axis=0, dtype=np.float64)
        mean, squares = total / count, np.zeros(store.dimension)
        for _, block in store.blocks(reader.candidates, _BLOCK):
            squares += np.square(block - mean).sum(axis=0)
        deviation = np.sqrt(squares / count)
        deviation[deviation == 0] = 1
        rows = np.union1d(reader.candidates, reader.query_rows).astype(np.uint32)
        shards = np.searchsorted(reader.corpus.starts, rows, "right") - 1
        kit.write_rows(out, rows, shards)
        for shard in np.unique(shards).tolist():
            (shard_block,) = store.blocks(rows[shards == shard], len(rows))
            standardised = ((shard_block.vectors - mean) / deviation).astype(np.float32)
            kit.write_shard(out, shard, shard_block.rows, standardised, "float32")
        return {"papers": len(rows), "candidates": count, "dimension": store.dimension}

    inputs: Mapping[str, Vectors] = {"corpus": corpus, "pool": pool, "vectors": vectors}
    folder = f"{STANDARDISED}/{model.slug}-{pool.slug}-{pool.id[:12]}"
    return kit.Task("standardise", 1, folder, model.slug, GeometryConfig(model.identity), inputs, run)


def similarity_task(corpus: kit.Artifact, pool: kit.Task, vectors: Vectors, model: kit.Model) -> kit.Task:
    """Return the task that describes the cosines within each class of a pool's neighbours (section 6.1)."""

    def run(inputs: kit.Inputs, out: kit.Workdir, _resources: kit.Resources) -> kit.Counts:
        store, members = kit.store_of(inputs["vectors"]), Members.read(inputs["corpus"])
        queries = kit.Pool(inputs["pool"], kit.Corpus(inputs["corpus"])).query_rows
        present = np.isin(members.rows, queries) & ~np.isin(members.rows, store.missing(queries))
        counts = zip(*np.unique(members.names[present], return_counts=True), strict=True)
        names = [str(name) for name, count in counts if count > 1]
        described = []
        with kit.Progress(len(names), f"similarities of {model.name}", "classes") as progress:
            for name in names:
                positions = np.flatnonzero((members.names == name) & present)
                order = np.argsort(members.original_of[positions])
                neighbours = unit_vectors(store, members.rows[positions])
                originals = unit_vectors(store, np.sort(members.original_of[positions]))
                described.append((name, len(positions), *_similarities(neighbours, originals, order)))
                progress.add(1)
        columns = list(zip(*described, strict=True)) or [()] * len(SIMILARITY)
        out.arrow("similarities.arrow", pa.table(list(map(list, columns)), schema=SIMILARITY), SIMILARITY)
        return {"classes": len(names), "neighbours": int(present.sum())}

    inputs: Mapping[str, Vectors] = {"corpus": corpus, "pool": pool, "vectors": vectors}
    slug = f"{model.slug}-{corpus.manifest.slug}"
    return kit.Task("similarity", 4, SIMILARITIES, slug, GeometryConfig(model.identity), inputs, run)


def unit_vectors(store: kit.VectorStore, rows: npt.NDArray[np.integer]) -> kit.Matrix:
    """Return the vectors of rising rows scaled to length 1, float32 ``[rows, dimension]``; zero vectors stay."""
    vectors = np.concatenate([block.vectors for block in store.blocks(rows, 65_536)])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), np.float32)


def _similarities(neighbours: kit.Matrix, originals: kit.Matrix, order: npt.NDArray[np.int64]) -> tuple[float, ...]:
    """Return the columns of :data:`SIMILARITY` after ``papers``; ``neighbours[order]`` correspond to ``originals``.

    Sums over all pairs follow from sums over vectors: the sum of squared cosines is the squared norm of ``U^T U``.
    """
    unit = neighbours.astype(np.float64)
    lengths = np.einsum("nd,nd->n", unit, unit)
    count = len(unit) * (len(unit) - 1) // 2
    mean = float(np.square(unit.sum(axis=0)).sum() - lengths.sum()) / 2 / count
    squares = float(np.square(unit.T @ unit).sum() - np.square(lengths).sum()) / 2 / count
    above_mean, lowest, highest = 0, 1.0, -1.0
    for start in range(0, len(unit) - 1, _BLOCK):
        products = unit[start : start + _BLOCK] @ unit[start:].T
        cosines = np.clip(products[np.triu_indices(len(products), 1, products.shape[1])], -1, 1)
        above_mean += int(np.count_nonzero(cosines > mean + _ROUNDING))
        lowest, highest = min(lowest, float(cosines.min())), max(highest, float(cosines.max()))
    own_cosines = np.clip(np.einsum("nd,nd->n", unit[order], originals), -1, 1)
    deviation = max(squares - mean**2, 0.0) ** 0.5
    return (mean, deviation, lowest, highest, above_mean / count, float(own_cosines.mean()))


def ranks_of_ties(entries: kit.Ranking) -> npt.NDArray[np.int64]:
    """Return the rank of each entry, from 1, where nearly equal scores of a query are in falling order of rows.

    A score is tied with the next higher one if it is lower by at most 1e-5 of the query's highest absolute score.
    """
    query, score = entries.query.astype(np.int64), entries.score.astype(np.float64)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    lengths = np.diff(starts, append=len(query))
    highest = np.repeat(np.maximum.reduceat(np.abs(score), starts), lengths) if len(query) else score
    is_lower = -np.diff(score, prepend=np.inf) > _TIED * highest
    is_lower[starts] = True
    order = np.lexsort((-entries.row.astype(np.int64), np.cumsum(is_lower)))
    ranks = np.empty(len(query), np.int64)
    ranks[order] = np.arange(len(query)) - np.repeat(starts, lengths) + 1
    return ranks


def overlap(ranking: kit.Artifact, pool: kit.Pool, depth: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return rows of originals, rising, and the share of nearest vectors in common with their neighbour of a class.

    The ``depth`` nearest other vectors of both are compared (AOP, section 6.3). Scores that differ by rounding alone
    are tied (:func:`ranks_of_ties`), so two candidates with one vector are cut alike in both lists.
    """
    entries = kit.read_ranking(ranking)
    is_near = ranks_of_ties(entries) <= depth
    is_neighbour = pool.artifact.arrow("queries.arrow").column("field").is_valid().to_numpy()
    positives = pool.qrels.column("row").to_numpy().astype(np.int64)
    original = np.where(is_neighbour, positives, pool.query_rows)  # of each query
    pairs = original[entries.query[is_near]] << 32 | entries.row[is_near]
    from_neighbour = is_neighbour[entries.query[is_near]]
    shared = np.intersect1d(pairs[from_neighbour], pairs[~from_neighbour]) >> 32
    originals = np.unique(original)
    return originals, np.bincount(np.searchsorted(originals, shared), minlength=len(originals)) / depth
