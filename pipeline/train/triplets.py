"""Stage ``triplets``: a query, a paper that it cites and a paper that it does not cite, from any corpus.

Recipes: SPECTER (Cohan et al. 2020), SPECTER2 (Singh et al. 2023, section 4), SciNCL (Ostendorff et al. 2022),
negatives mined from a ranking, and pairs, whose negatives are the other positives of a batch.
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
from pipeline.core.errors import InputError, require_known
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import TRIPLETS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import TRAINING
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Rows
from pipeline.stages.ranking_file import open_pool
from pipeline.train.draws import KINDS, Drawing, Lists, Mix, QueryBlock, part
from pipeline.train.neighbours import Neighbours
from pipeline.train.recipe import Draw

RECIPES = {
    "specter": Mix(easy=3, hard=2),
    "specter2": Mix(same_field=4, other_field=2, hard=4),
    "scincl": Mix(easy=3, ranked=2),
    "mined": Mix(ranked=5),
    "pairs": Mix(pair=5),
}
"""Number of negatives of each kind of a query, by recipe."""

_SHARD = 16_384
"""Queries of a shard."""

_CITATIONS = 2**22
"""Maximum citations, or scores of the citation embedding, that are read for one block of queries."""


@dataclass(frozen=True)
class TripletConfig:
    """Everything that affects triplets beside the queries and the ranking.

    Attributes:
        recipe: a name of :data:`RECIPES`.
        mix: number of negatives of each kind.
        ranks: first and last rank of negatives in the ranking (``mined``) or the citation embedding (``scincl``).
        positive_ranks: first and last rank of positives in the citation embedding.
        dimension: components of the citation embedding; 0 without one.
        seed: seed of all draws.
    """

    recipe: str
    mix: Mix
    ranks: tuple[int, int]
    positive_ranks: tuple[int, int]
    dimension: int
    seed: int


def mix_of(recipe: str, counts: Mapping[str, int | None]) -> Mix:
    """Return the numbers of negatives of a recipe; ``counts`` replaces those that are not None.

    ``hard`` counts the negatives from the ranking in ``mined`` and ``scincl``.

    Raises:
        InputError: there is no such recipe, or ``counts`` has a kind that it lacks.
    """
    require_known(recipe, RECIPES, f"there is no recipe of triplets {recipe!r}")
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
    recipe: str,
    draw: Draw,
    *,
    ranking: Task | None = None,
    positive_ranks: tuple[int, int] = (21, 25),
    dimension: int = 128,
) -> Task:
    """Return the task that draws triplets for the queries of a training set.

    It writes shards of 16,384 queries. A query with too few negatives of a kind has fewer triplets; the missing ones
    are counted.

    Raises:
        InputError: ranks do not rise from 1, or the recipe needs a ranking and has none, or the reverse.
    """
    mix = mix_of(recipe, {kind: getattr(draw, kind) for kind in ("hard", "same_field", "other_field", "easy", "pair")})
    low_rank, high_rank = draw.ranks or ((10, 100) if recipe == "mined" else (3_999, 4_000))
    for low, high in ((low_rank, high_rank), positive_ranks):
        if not 1 <= low <= high:
            raise InputError(f"ranks must rise from 1, got {low} to {high}", "Give --ranks=10,100")
    if (recipe == "mined") != (ranking is not None):
        raise InputError(f"a ranking must go with the recipe mined, got {recipe}", "Give --from=bm25 with mined alone")
    scincl = recipe == "scincl"
    config = TripletConfig(
        recipe, mix, (low_rank, high_rank), positive_ranks if scincl else (0, 0), dimension if scincl else 0, draw.seed
    )

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return _write(inputs, config, out)

    inputs_of: dict[str, Task | Artifact] = {"corpus": corpus, "pool": queries}
    if ranking is not None:
        inputs_of["ranking"] = ranking
    return Task("triplets", 1, TRAINING, f"{recipe}-{queries.slug}", config, inputs_of, run)


class _Source(NamedTuple):
    """Sources of a draw: the positives of queries in CSR form, a ranking, and a citation embedding."""

    offsets: Ints
    positives: Rows
    ranked: tuple[Ints, Rows]
    neighbours: Neighbours | None

    def block(self, pool: Pool, config: TripletConfig, start: int, stop: int) -> QueryBlock:
        rows = pool.query_rows[start:stop]
        if self.neighbours is not None:
            return QueryBlock(rows, *self.neighbours.bands(rows, [config.positive_ranks, config.ranks]))
        ranked = part(*self.ranked, start, stop) if len(self.ranked[1]) else Lists(np.zeros(0, np.int64), rows[:0])
        return QueryBlock(rows, part(self.offsets, self.positives, start, stop), ranked)


def _write(inputs: Inputs, config: TripletConfig, out: Workdir) -> Counts:
    pool = open_pool(inputs)
    queries = len(pool.query_rows)
    source = _open(inputs, pool, config, out)
    drawing = Drawing(pool.corpus, pool.candidates, config.mix, config.seed)
    starts = range(0, queries, _SHARD)
    with Progress(queries, "triplets", "queries") as progress:
        for shard, start in enumerate(starts):
            stop, counts = min(start + _SHARD, queries), Counter[str]()
            if not out.done(_file_name(shard)):
                batches = list(_draw(drawing, source, pool, config, start, stop, counts))
                out.arrow(
                    _file_name(shard), pa.Table.from_batches(batches, TRIPLETS).unify_dictionaries(), TRIPLETS, **counts
                )
            progress.add(stop - start)
    total = Counter[str]()
    for shard in range(len(starts)):
        total.update(out.counts(_file_name(shard)))
    return {"queries": queries, **{name: total[name] for name in sorted(total)}}


def _file_name(shard: int) -> str:
    return f"triplets-{shard:05d}.arrow"


def _open(inputs: Inputs, pool: Pool, config: TripletConfig, out: Workdir) -> _Source:
    qrels, queries = pool.qrels, len(pool.query_rows)
    offsets = offsets_of(qrels.column("query").to_numpy(), queries)
    ranked = np.zeros(1, np.int64), pool.query_rows[:0]
    if "ranking" in inputs:
        table = inputs["ranking"].arrow("ranking.arrow")
        rank = table.column("rank").to_numpy()
        in_band = (rank >= config.ranks[0]) & (rank <= config.ranks[1])
        ranked = offsets_of(table.column("query").to_numpy()[in_band], queries), table.column("row").to_numpy()[in_band]
    neighbours = None
    if config.dimension:
        path = out.scratch() / "embedding.npy"
        neighbours = Neighbours(pool.corpus, pool.candidates, path, dimension=config.dimension, seed=config.seed)
    return _Source(offsets, qrels.column("row").to_numpy(), ranked, neighbours)


def _draw(
    drawing: Drawing, source: _Source, pool: Pool, config: TripletConfig, start: int, stop: int, counts: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the triplets of the queries from ``start`` to ``stop``; count drawn and missing triplets by kind."""
    kinds = config.mix.kinds
    cited = part(source.offsets, source.positives, start, stop)
    for block in slices(drawing.work(*cited, stop - start), stop - start, _CITATIONS):
        low, high = start + block.start, start + block.stop
        positives, negatives = drawing.draw(source.block(pool, config, low, high))
        complete = (positives >= 0) & ((negatives >= 0) | (np.array(kinds) == "pair"))
        for kind, count in zip(kinds, np.count_nonzero(complete, axis=0).tolist(), strict=True):
            counts[f"triplets_{kind}"] += count
            counts[f"missing_{kind}"] += len(complete) - count
        counts["triplets"] += int(np.count_nonzero(complete))
        owner, column = np.nonzero(complete)
        negative = negatives[complete]
        kind_of = np.array([KINDS.index(kind) for kind in kinds], np.int8)[column]
        columns: list[Any] = [
            pool.query_rows[low:high][owner],
            positives[complete].astype(np.uint32),
            pa.array(np.maximum(negative, 0).astype(np.uint32), mask=negative < 0),
            pa.DictionaryArray.from_arrays(pa.array(kind_of), pa.array(KINDS)),
        ]
        yield pa.record_batch(columns, TRIPLETS)
