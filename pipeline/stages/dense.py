"""Stage ``search`` by vectors: exact search, search by the best pair of vectors, approximate search by an index.

Exact search is divided into units: each ranks the candidates of some corpus shards, and the units' rankings are merged.
The score of a pair is canonical and the order total (:mod:`pipeline.retrieve.base`), so the number of units does not
change the result. The ranking of a pool may go on from that of a smaller one, whose candidates are then not searched
again. A query whose vectors are all zero (a text without a known word) has no results.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import OMIT_DEFAULT
from pipeline.core.csr import Groups, Keys, find_sorted
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress, warn
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING
from pipeline.core.task import Inputs, Sharded, Task, UnitProvenance
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.reader import Rows
from pipeline.encode.model import Missing, Model, Role
from pipeline.encode.store import VectorStore
from pipeline.retrieve.base import Exclusions, Metric, Ranking, Vectors, block_rows, check_depth, pairs
from pipeline.retrieve.engines import IndexSettings
from pipeline.stages.embed import store_of
from pipeline.stages.ranking_file import open_pool, ranking_of, read_ranking, write_ranking
from pipeline.stages.settings import DEFAULT_DEPTH

SKIPPED = "exact, of those with a vector"
"""Name, in the configuration of a ranking, of exact search that skips papers without a vector."""

_IDS_IN_ERROR = 3
"""Maximum number of ids in an error message."""

MOST_UNITS = 64
"""Maximum number of units of a ranking; each writes ``depth`` entries a query: 23 MB for 3,800 queries, depth 500."""

LOCAL_UNIT = 4_000_000
"""Candidates per unit on one machine; a killed search resumes after the last finished unit."""

_SAMPLE, _SAMPLE_QUERIES, _ALIKE = 512, 16, 0.5
"""Candidates and queries whose scores are compared; share of equal ones above which a warning is printed."""

_SENTENCES = 16
"""Assumed vectors per paper, if papers have several: blocks hold this many times fewer papers."""


@dataclass(frozen=True)
class DenseConfig:
    """Settings that determine a ranking by vectors, besides the vectors.

    ``search`` is ``exact``, :data:`SKIPPED`, or the index of an approximate search; ``dimension`` the number of first
    components compared, 0: all.
    """

    metric: Metric
    depth: int
    search: str | IndexSettings = "exact"
    dimension: int = field(default=0, metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class PoolWithVectors:
    """The candidates and queries of a pool that have a vector, as rising rows, with the first row of each corpus shard.

    ``positions``, int64 ``[queries]``, are those of the queries in the pool; None: all have a vector. ``counts`` has
    the numbers of candidates and queries left out, if papers may lack a vector.
    """

    starts: npt.NDArray[np.int64]
    candidates: Rows
    query_rows: Rows
    exclusions: Exclusions
    positions: npt.NDArray[np.int64] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def renumbered(self, ranking: Ranking) -> Ranking:
        """Return a ranking of these queries with their positions in the pool."""
        if self.positions is None:
            return ranking
        return dataclasses.replace(ranking, query=self.positions[ranking.query].astype(np.uint32))


def pool_with_vectors(inputs: Inputs, missing: Missing | None, name: str) -> PoolWithVectors:
    """Return the candidates and queries of a pool that have a vector.

    Raises:
        InputError: some have none and must not be skipped; or no candidate or no query is left.
    """
    pool = open_pool(inputs)
    complete = PoolWithVectors(pool.corpus.starts, pool.candidates, pool.query_rows, pool.exclusions)
    if missing is None:
        return complete
    candidates_without = store_of(inputs["paper"]).missing(pool.candidates)
    queries_without = store_of(inputs.get("query", inputs["paper"])).missing(pool.query_rows)
    counts = {"candidates_without_vector": len(candidates_without), "queries_without_vector": len(queries_without)}
    if not (len(candidates_without) or len(queries_without)):
        return dataclasses.replace(complete, counts=counts)
    has_vector = np.isin(pool.query_rows, queries_without, invert=True)
    if missing == "error" or not has_vector.any() or len(candidates_without) == len(pool.candidates):
        papers = candidates_without if len(candidates_without) or not pool.queries_are_papers else queries_without
        ids = pool.corpus.ids(papers[:_IDS_IN_ERROR]) if len(papers) else [pool.query_ids()[int(np.argmin(has_vector))]]
        raise InputError(
            f"{name} must have a vector of each paper of {pool.artifact.name}, got none for "
            f"{len(candidates_without):,} of {len(pool.candidates):,} candidates and "
            f"{len(queries_without):,} of {len(has_vector):,} queries (first: {', '.join(ids)})",
            "Make them, or rank without them: missing=skip" if missing == "error" else "Make some of them",
        )
    offsets, rows = pool.exclusions
    lengths = np.diff(offsets)
    exclusions = np.append(0, np.cumsum(lengths[has_vector])), rows[np.repeat(has_vector, lengths)]
    candidates = pool.candidates[np.isin(pool.candidates, candidates_without, invert=True)]
    return PoolWithVectors(
        complete.starts, candidates, pool.query_rows[has_vector], exclusions, np.flatnonzero(has_vector), {**counts}
    )


@dataclass(frozen=True)
class DenseSearch(Sharded):
    """Exact search by one encoder's vectors; it uses all cores of a machine, or one GPU.

    Of papers with several vectors (``multi_vector``), the best pair counts. ``missing`` says whether papers without a
    vector are skipped or an error; None: every paper has one. ``dimension`` is as in :class:`DenseConfig`.
    """

    name: str
    metric: Metric
    depth: int
    multi_vector: bool = False
    missing: Missing | None = None
    dimension: int = 0
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        """Return units of neighbouring corpus shards; an earlier plan is kept if one of its units is finished."""
        planned = out.plan() or {}
        if any(map(out.done, planned)):
            return planned
        pool = pool_with_vectors(inputs, self.missing, self.name)
        candidates = len(pool.candidates)
        max_count = MOST_UNITS if spread else -(-candidates // LOCAL_UNIT)
        count = max(1, min(max_count, len(pool.starts) - 1))
        return {f"scratch/top-{unit_number}-of-{count}.arrow": -(-candidates // count) for unit_number in range(count)}

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:
        """Rank the candidates of each unit."""
        from pipeline.retrieve.exact import search

        pool = pool_with_vectors(inputs, self.missing, self.name)
        start, ranked = _smaller(inputs, pool)
        papers = store_of(inputs["paper"], dimension=self.dimension)
        texts = store_of(inputs.get("query", inputs["paper"]), dimension=self.dimension)
        size = block_rows(papers.dimension, resources.memory)
        queries: Vectors | Groups
        if self.multi_vector:
            queries = texts.grouped(pool.query_rows)
            nonzero, size = _not_zero(queries.vectors, queries.offsets), max(size // _SENTENCES, 1)
        else:
            queries = _matrix(texts, pool.query_rows, size)
            nonzero = _not_zero(queries)
        for unit in units:
            candidates = np.setdiff1d(_candidates(pool, unit), ranked, assume_unique=True)
            with Progress(len(candidates), f"search {self.name}", "docs") as progress:
                ranking = search(
                    queries,
                    papers.blocks(candidates, size),
                    pool.exclusions,
                    metric=self.metric,
                    depth=self.depth,
                    resources=resources,
                    count=len(candidates),
                    start=start,
                    done=progress.add,
                )
            ranking = ranking.of(nonzero[ranking.query] & ~find_sorted(ranked, ranking.row)[1])
            with files.disk_errors(out.path), files.replacing(out.path / unit) as path:
                files.write_arrow(path, pool.renumbered(ranking).table().to_batches(), RANKING)
        return {}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:  # noqa: ARG002
        """Merge the units' rankings, and that of a smaller pool, by the one total order."""
        from pipeline.retrieve.topk import merge

        pool, units = pool_with_vectors(inputs, self.missing, self.name), out.plan() or {}
        start, _ = _smaller(inputs, pool)
        rankings = [ranking_of(files.read_arrow(out.path / unit)) for unit in units]
        opened_pool = open_pool(inputs)
        if len(pool.candidates) and len(pool.query_rows) and not self.multi_vector:
            self._warn_if_alike(inputs, pool)
        best = merge([*rankings, *([] if start is None else [start])], len(opened_pool.query_rows), self.depth)
        out.note(units=len(units), **_encoders(inputs))
        return {**write_ranking(best, opened_pool, self.depth, out), **pool.counts}

    def _warn_if_alike(self, inputs: Inputs, pool: PoolWithVectors) -> None:
        """Warn if float32 tells few candidates of a sample apart, so that most of the order is that of ids."""
        from pipeline.retrieve.canonical import alike

        def sample(segment: Artifact, rows: Rows, count: int) -> Vectors:
            return _matrix(store_of(segment, dimension=self.dimension), rows[:: -(-len(rows) // count)], count)

        queries = sample(inputs.get("query", inputs["paper"]), pool.query_rows, _SAMPLE_QUERIES)
        share = alike(queries, sample(inputs["paper"], pool.candidates, _SAMPLE), self.metric)
        if share > _ALIKE:
            warn(
                f"{self.name}: {self.metric} in float32 does not tell {share:.0%} of the candidates apart, since their "
                "vectors are equal or differ by less than rounding; they are ranked by id. Centre or rescale them"
            )


def _smaller(inputs: Inputs, pool: PoolWithVectors) -> tuple[Ranking | None, Rows]:
    """Return the ranking of a smaller pool among the inputs, and its candidates.

    It is None, without candidates, if none is there, or if the pool has other queries, lacks some of the smaller one's
    candidates or excludes others of them.
    """
    nothing: Rows = np.empty(0, np.uint32)
    if "smaller" not in inputs:
        return None, nothing
    smaller = open_pool({"corpus": inputs["corpus"], "pool": inputs["smaller_pool"]})
    is_part = (
        np.array_equal(pool.query_rows, smaller.query_rows)
        and bool(find_sorted(pool.candidates, smaller.candidates)[1].all())
        and np.array_equal(_among(smaller.candidates, pool.exclusions), _among(smaller.candidates, smaller.exclusions))
    )
    return (read_ranking(inputs["smaller"]), smaller.candidates) if is_part else (None, nothing)


def _among(candidates: Rows, excluded: Exclusions) -> Keys:
    """Return the pairs of a query and one of some candidates that are excluded."""
    return pairs(excluded)[find_sorted(candidates, excluded[1])[1]]


def dense_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    model: Model,
    *,
    depth: int = DEFAULT_DEPTH,
    smaller: tuple[Task, Task] | None = None,
) -> Task:
    """Return the task that ranks a pool's candidates by an encoder's vectors.

    If papers have several vectors, the best pair counts. ``smaller`` is a pool that may be a part of this one, with the
    task of its ranking by the same vectors; the ranking is the same without it.
    """
    check_depth(depth)
    name = model.name if model.missing else model.slug
    units = DenseSearch(name, model.distance, depth, model.multi_vector, model.missing, model.truncate_dim)
    search = SKIPPED if model.missing == "skip" else "exact"
    inputs, config = _inputs(corpus, pool, vectors), DenseConfig(model.distance, depth, search, model.truncate_dim)
    derived = {} if smaller is None or model.missing else dict(zip(("smaller_pool", "smaller"), smaller, strict=True))
    slug = f"{model.slug}-{pool.slug}"
    return Task("search", 2, RANKINGS, slug, config, inputs, units=units, derived=derived)


def approximate_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    model: Model,
    exact: Task,
    *,
    depth: int,
    settings: IndexSettings,
) -> Task:
    """Return the task that ranks by an approximate index; its counts include the recall of the ``exact`` ranking.

    ``settings`` describe the index; for the other arguments see :func:`dense_ranking_task`.
    """
    from pipeline.retrieve.ann import check_index

    check_depth(depth)
    check_index(settings)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.ann import approximate_search, recall

        ranked_pool, dimension = pool_with_vectors(inputs, model.missing, model.name), model.truncate_dim
        store = store_of(inputs["paper"], dimension=dimension)
        size = block_rows(store.dimension, resources.memory)
        texts = store_of(inputs.get("query", inputs["paper"]), dimension=dimension)
        queries = _matrix(texts, ranked_pool.query_rows, size)
        with Progress(len(ranked_pool.candidates), f"index {model.slug} by {settings.name}", "docs") as progress:
            ranking = approximate_search(
                settings,
                queries,
                progress.over(store.blocks(ranked_pool.candidates, size), lambda block: len(block[0])),
                count=len(ranked_pool.candidates),
                metric=model.distance,
                depth=depth,
                excluded=ranked_pool.exclusions,
                resources=resources,
            )
        ranking = ranked_pool.renumbered(ranking.of(_not_zero(queries)[ranking.query]))
        out.note(**_encoders(inputs))
        counts = {**ranked_pool.counts, "recall": recall(ranking, read_ranking(inputs["exact"]))}
        return {**write_ranking(ranking, open_pool(inputs), depth, out), **counts}

    inputs = {**_inputs(corpus, pool, vectors), "exact": exact}
    config = DenseConfig(model.distance, depth, settings, model.truncate_dim)
    return Task("search", 2, RANKINGS, f"{model.slug}-{settings.slug}-{pool.slug}", config, inputs, run)


def _inputs(
    corpus: Artifact, pool: Task | Artifact, vectors: Mapping[Role, Task | Artifact]
) -> dict[str, Task | Artifact]:
    return {"corpus": corpus, "pool": pool, **{str(role): task for role, task in vectors.items()}}


def _encoders(inputs: Inputs) -> dict[str, Any]:
    """Return the specifications of the encoders, by which tables distinguish rankings."""
    names = {"paper": "encoder", "query": "query_encoder"}
    return {name: inputs[role].manifest.config["encoder"] for role, name in names.items() if role in inputs}


def _candidates(pool: PoolWithVectors, unit: str) -> Rows:
    """Return the candidates in the corpus shards of a unit."""
    unit_number, count = map(int, re.findall(r"\d+", unit))
    starts = pool.starts
    shards = len(starts) - 1
    bounds = [starts[shards * unit_number // count], starts[shards * (unit_number + 1) // count]]
    first, last = np.searchsorted(pool.candidates, bounds)
    return pool.candidates[first:last]


def _not_zero(vectors: Vectors, offsets: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.bool_]:
    """Return which queries have a vector other than zero, bool ``[queries]``; the others have no results, as in BM25.

    ``vectors`` are ``[n, d]``; those of each query start at ``offsets``, int64 ``[queries + 1]``; None: one each.
    """
    nonzero = np.asarray(vectors.any(axis=1))
    return nonzero if offsets is None else np.diff(np.append(0, np.cumsum(nonzero))[offsets]) > 0


def _matrix(store: VectorStore, rows: Rows, size: int) -> Vectors:
    """Return one vector a row, float32 ``[n, d]``."""
    blocks = list(store.blocks(rows, size))
    stored = np.concatenate([np.empty(0, np.uint32), *(block.rows for block in blocks)])
    if not np.array_equal(stored, rows):
        raise InputError(
            f"{len(rows):,} queries have {len(stored):,} vectors", "Rank with an encoder of one vector per paper"
        )
    return np.concatenate([np.empty((0, store.dimension), np.float32), *(block.vectors for block in blocks)])
