"""Stage ``triplets``: a query, a paper that it cites and a paper that it does not cite, from any corpus.

Recipes: SPECTER (Cohan et al. 2020), SPECTER2 (Singh et al. 2023, section 4), and negatives mined from a ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

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
from pipeline.corpus.reader import Rows
from pipeline.stages.ranking_file import open_pool
from pipeline.train.draws import KINDS, Drawing, Mix, QueryBlock, part
from pipeline.train.recipe import Draw

RECIPES = {
    "specter": Mix(easy=3, hard=2),
    "specter2": Mix(same_field=4, other_field=2, hard=4),
    "mined": Mix(ranked=5),
}
"""Number of negatives of each kind of a query, by recipe."""

_SHARD = 16_384
"""Queries of a shard."""

_CITATIONS = 2**22
"""Maximum citations that are read for one block of queries."""


@dataclass(frozen=True)
class TripletConfig:
    """Everything that affects triplets beside the queries and the ranking.

    Attributes:
        recipe: a name of :data:`RECIPES`.
        mix: number of negatives of each kind.
        ranks: first and last rank of negatives in the ranking (``mined``).
        seed: seed of all draws.
    """

    recipe: str
    mix: Mix
    ranks: tuple[int, int]
    seed: int
    positive_ranks: tuple[Literal[0], Literal[0]] = (0, 0)
    dimension: Literal[0] = 0


def mix_of(recipe: str, counts: Mapping[str, int | None]) -> Mix:
    """Return the numbers of negatives of a recipe; ``counts`` replaces those that are not None.

    ``hard`` counts the negatives from the ranking in ``mined``.

    Raises:
        InputError: there is no such recipe, or no triplet is left.
    """
    require_known(recipe, RECIPES, f"there is no recipe of triplets {recipe!r}")
    values = dict(vars(RECIPES[recipe]))
    for name, count in counts.items():
        kind = "ranked" if name == "hard" and values["ranked"] else name
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
    ranks: tuple[int, int] | None = None,
) -> Task:
    """Return the task that draws triplets for the queries of a training set.

    It writes shards of 16,384 queries. A query with too few negatives of a kind has fewer triplets; the missing ones
    are counted.

    Raises:
        InputError: the recipe needs a ranking and has none, or the reverse.
    """
    mix = mix_of(recipe, {kind: getattr(draw, kind) for kind in ("hard", "same_field", "other_field", "easy")})
    if (recipe == "mined") != (ranking is not None):
        raise InputError(f"a ranking must go with the recipe mined, got {recipe}", "Give --from=bm25 with mined alone")
    ranks = ranks or ((10, 100) if recipe == "mined" else (3_999, 4_000))
    config = TripletConfig(recipe, mix, ranks, draw.seed)
    inputs_of: dict[str, Task | Artifact] = {"corpus": corpus, "pool": queries}
    if ranking is not None:
        inputs_of["ranking"] = ranking
    slug = f"{recipe}-{queries.slug}"
    return Task("triplets", 1, TRAINING, slug, config, inputs_of, partial(_write, config))


def _write(config: TripletConfig, inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
    pool, total = open_pool(inputs), Counter[str]()
    queries, qrels = len(pool.query_rows), pool.qrels
    cited = offsets_of(qrels.column("query").to_numpy(), queries), qrels.column("row").to_numpy()
    ranked = np.zeros(queries + 1, np.int64), pool.query_rows[:0]
    if "ranking" in inputs:
        table = inputs["ranking"].arrow("ranking.arrow")
        query, row, rank = (table.column(name).to_numpy() for name in ("query", "row", "rank"))
        in_band = (rank >= config.ranks[0]) & (rank <= config.ranks[1])
        ranked = offsets_of(query[in_band], queries), row[in_band]
    drawing = Drawing(pool.corpus, pool.candidates, config.mix, config.seed)

    def draw(start: int, stop: int, counts: Counter[str]) -> Iterator[pa.RecordBatch]:
        for block in slices(drawing.work(*part(*cited, start, stop), stop - start), stop - start, _CITATIONS):
            low, high = start + block.start, start + block.stop
            rows = pool.query_rows[low:high]
            drawn = drawing.draw(QueryBlock(rows, part(*cited, low, high), part(*ranked, low, high)))
            yield _batch(rows, *drawn, config.mix.kinds, counts)

    with Progress(queries, "triplets", "queries") as progress:
        for shard, start in enumerate(range(0, queries, _SHARD)):
            name, stop, counts = f"triplets-{shard:05d}.arrow", min(start + _SHARD, queries), Counter[str]()
            if not out.done(name):
                batches = list(draw(start, stop, counts))
                out.arrow(name, pa.Table.from_batches(batches, TRIPLETS).unify_dictionaries(), TRIPLETS, **counts)
            total.update(out.counts(name))
            progress.add(stop - start)
    return {"queries": queries, **{name: total[name] for name in sorted(total)}}


def _batch(
    queries: Rows, positives: Ints, negatives: Ints, kinds: Sequence[str], counts: Counter[str]
) -> pa.RecordBatch:
    """Return the complete triplets of a draw; count drawn and missing triplets by kind."""
    complete = (positives >= 0) & (negatives >= 0)
    for kind, count in zip(kinds, np.count_nonzero(complete, axis=0).tolist(), strict=True):
        counts[f"triplets_{kind}"] += count
        counts[f"missing_{kind}"] += len(complete) - count
    counts["triplets"] += int(np.count_nonzero(complete))
    owner, column = np.nonzero(complete)
    kind_of = np.array([KINDS.index(kind) for kind in kinds], np.int8)[column]
    columns: list[Any] = [
        queries[owner],
        positives[complete].astype(np.uint32),
        negatives[complete].astype(np.uint32),
        pa.DictionaryArray.from_arrays(pa.array(kind_of), pa.array(KINDS)),
    ]
    return pa.record_batch(columns, TRIPLETS)
