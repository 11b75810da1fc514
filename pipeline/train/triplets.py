"""Stage ``triplets``: a query, a paper it cites and a paper it does not, from any corpus.

The recipes are those of SPECTER (Cohan et al. 2020), SPECTER2 (Singh et al. 2023, section 4), SciNCL (Ostendorff et al.
2022), negatives mined from a ranking, and pairs, whose negatives are the other positives of a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.csr import Ints, offsets_of, slices
from pipeline.core.errors import InputError, nearest
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import TRIPLETS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import TRAINING
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Rows
from pipeline.stages.search import open_pool
from pipeline.train.draws import KINDS, Block, Drawing, Lists, Mix, part
from pipeline.train.neighbours import Neighbours

RECIPES = {
    "specter": Mix(easy=3, hard=2),
    "specter2": Mix(same_field=4, other_field=2, hard=4),
    "scincl": Mix(easy=3, ranked=2),
    "mined": Mix(ranked=5),
    "pairs": Mix(pair=5),
}
"""Negatives of each kind that a query has, by recipe."""

_SHARD = 16_384
"""Queries of a file."""

_CITATIONS = 2**22
"""Citations that are read for queries drawn together; of the citation embedding, scores of queries."""


@dataclass(frozen=True)
class TripletConfig:
    """What decides triplets beside the queries and the ranking.

    Attributes:
        recipe: a name of :data:`RECIPES`.
        mix: negatives of each kind.
        ranks: first and last rank of negatives in the ranking (``mined``), or in the citation embedding (``scincl``).
        positive_ranks: ranks of positives in the citation embedding.
        dimension: of the citation embedding; 0 without one.
        seed: of every draw.
    """

    recipe: str
    mix: Mix
    ranks: tuple[int, int]
    positive_ranks: tuple[int, int]
    dimension: int
    seed: int


def mix_of(recipe: str, counts: Mapping[str, int | None]) -> Mix:
    """Return how many negatives of each kind a query has; ``counts`` replaces those of the recipe, but for None.

    ``hard`` stands for what is hard in the recipe: of ``mined`` and ``scincl``, negatives from the ranking.

    Raises:
        InputError: there is no such recipe, or it has no negatives of a kind that is counted.
    """
    if recipe not in RECIPES:
        raise InputError(f"there is no recipe of triplets {recipe!r}", nearest(recipe, RECIPES))
    values = dict(vars(RECIPES[recipe]))
    for name, count in counts.items():
        kind = "ranked" if name == "hard" and values["ranked"] else name
        if count is not None and (recipe == "pairs") == (kind != "pair"):
            raise InputError(f"--{name} must go with a recipe that has such, got {recipe}", "Leave it out")
        values[kind] = values[kind] if count is None else count
    if min(values.values()) < 0 or not any(values.values()):
        raise InputError(f"a query must have at least one triplet, got {dict(counts)}", "Give numbers from 0")
    return Mix(**values)


def triplets_task(
    corpus: Artifact,
    queries: Task,
    *,
    recipe: str,
    mix: Mix,
    seed: int,
    ranking: Task | None = None,
    ranks: tuple[int, int] | None = None,
    positive_ranks: tuple[int, int] = (21, 25),
    dimension: int = 128,
) -> Task:
    """Return the task that draws triplets for the queries of a training set.

    Its files hold those of 16,384 queries each and are made one by one. Where a query has fewer negatives of a kind
    than asked for, it has fewer triplets, and what is missing is counted.

    Raises:
        InputError: ranks do not rise from 1, or a ranking is missing where the recipe reads one.
    """
    first, last = ranks or ((10, 100) if recipe == "mined" else (3_999, 4_000))
    for low, high in ((first, last), positive_ranks):
        if not 1 <= low <= high:
            raise InputError(f"ranks must rise from 1, got {low} to {high}", "Give --ranks=10,100")
    if (recipe == "mined") != (ranking is not None):
        raise InputError(f"a ranking must go with the recipe mined, got {recipe}", "Give --from=bm25 with mined alone")
    scincl = recipe == "scincl"
    config = TripletConfig(
        recipe, mix, (first, last), positive_ranks if scincl else (0, 0), dimension if scincl else 0, seed
    )

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return _write(inputs, config, out)

    reads: dict[str, Task | Artifact] = {"corpus": corpus, "pool": queries}
    if ranking is not None:
        reads["ranking"] = ranking
    return Task("triplets", 1, TRAINING, f"{recipe}-{queries.slug}", config, reads, run)


class _Source(NamedTuple):
    """What is drawn from: the positives of each query in CSR form, a ranking, and a citation embedding."""

    offsets: Ints
    positives: Rows
    ranked: tuple[Ints, Rows]
    neighbours: Neighbours | None

    def block(self, pool: Pool, config: TripletConfig, start: int, stop: int) -> Block:
        rows = pool.query_rows[start:stop]
        if self.neighbours is not None:
            return Block(rows, *self.neighbours.bands(rows, [config.positive_ranks, config.ranks]))
        ranked = part(*self.ranked, start, stop) if len(self.ranked[1]) else Lists(np.zeros(0, np.int64), rows[:0])
        return Block(rows, part(self.offsets, self.positives, start, stop), ranked)


def _write(inputs: Inputs, config: TripletConfig, out: Workdir) -> Counts:
    pool = open_pool(inputs)
    queries = len(pool.query_rows)
    source = _open(inputs, pool, config, out)
    drawing = Drawing(pool.corpus, pool.candidates, config.mix, config.seed)
    starts = range(0, queries, _SHARD)
    with Progress(queries, "triplets", "queries") as progress:
        for number, start in enumerate(starts):
            stop, counts = min(start + _SHARD, queries), Counter[str]()
            if not out.done(_name(number)):
                batches = list(_drawn(drawing, source, pool, config, start, stop, counts))
                out.arrow(
                    _name(number), pa.Table.from_batches(batches, TRIPLETS).unify_dictionaries(), TRIPLETS, **counts
                )
            progress.add(stop - start)
    total = Counter[str]()
    for number in range(len(starts)):
        total.update(out.counts(_name(number)))
    return {"queries": queries, **{name: total[name] for name in sorted(total)}}


def _name(number: int) -> str:
    return f"triplets-{number:05d}.arrow"


def _open(inputs: Inputs, pool: Pool, config: TripletConfig, out: Workdir) -> _Source:
    qrels, queries = pool.qrels, len(pool.query_rows)
    offsets = offsets_of(qrels.column("query").to_numpy(), queries)
    ranked = np.zeros(1, np.int64), pool.query_rows[:0]
    if "ranking" in inputs:
        table = inputs["ranking"].arrow("ranking.arrow")
        rank = table.column("rank").to_numpy()
        inside = (rank >= config.ranks[0]) & (rank <= config.ranks[1])
        ranked = offsets_of(table.column("query").to_numpy()[inside], queries), table.column("row").to_numpy()[inside]
    neighbours = None
    if config.dimension:
        path = out.scratch() / "embedding.npy"
        neighbours = Neighbours(pool.corpus, pool.candidates, path, dimension=config.dimension, seed=config.seed)
    return _Source(offsets, qrels.column("row").to_numpy(), ranked, neighbours)


def _drawn(
    drawing: Drawing, source: _Source, pool: Pool, config: TripletConfig, start: int, stop: int, counts: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the triplets of the queries from ``start`` to ``stop``, and count them by kind, with what is missing."""
    kinds = config.mix.kinds
    cited = part(source.offsets, source.positives, start, stop)
    for some in slices(drawing.work(*cited, stop - start), stop - start, _CITATIONS):
        first, last = start + some.start, start + some.stop
        positives, negatives = drawing.draw(source.block(pool, config, first, last))
        whole = (positives >= 0) & ((negatives >= 0) | (np.array(kinds) == "pair"))
        for kind, made in zip(kinds, np.count_nonzero(whole, axis=0).tolist(), strict=True):
            counts[f"triplets_{kind}"] += made
            counts[f"missing_{kind}"] += len(whole) - made
        counts["triplets"] += int(np.count_nonzero(whole))
        owner, column = np.nonzero(whole)
        negative = negatives[whole]
        kind_of = np.array([KINDS.index(kind) for kind in kinds], np.int8)[column]
        columns: list[Any] = [
            pool.query_rows[first:last][owner],
            positives[whole].astype(np.uint32),
            pa.array(np.maximum(negative, 0).astype(np.uint32), mask=negative < 0),
            pa.DictionaryArray.from_arrays(pa.array(kind_of), pa.array(KINDS)),
        ]
        yield pa.record_batch(columns, TRIPLETS)
