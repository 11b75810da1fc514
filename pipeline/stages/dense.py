"""Stage ``search`` by vectors: exact search, search by the best pair of vectors, approximate search by an index.

Exact search divides into units: each ranks the candidates of some corpus shards for every pool of the job, and the best
of all units are the ranking. The score of a pair is canonical and the order total (:mod:`pipeline.retrieve.base`), so
the number of units changes no byte. Pools with the same queries are ranked in one pass over their candidates. A query
whose vectors are all zero (a text without a known word) has no results.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import OMIT_DEFAULT
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING
from pipeline.core.task import Facts, Inputs, Job, Sharded, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.reader import Rows
from pipeline.encode.spec import Missing, Model, Quantise, Role
from pipeline.encode.store import VectorStore
from pipeline.encode.views import WHOLE, View
from pipeline.retrieve.base import (
    MAX_SUBSETS,
    Exclusions,
    Groups,
    Metric,
    Ranking,
    Subset,
    Vectors,
    block_rows,
    check_depth,
)
from pipeline.retrieve.engines import IndexSettings, dense_engine
from pipeline.stages.embed import store_of
from pipeline.stages.search import DEFAULT_DEPTH, open_pool, read_ranking, slug_of, write_ranking

SKIPPED = "exact, of those with a vector"
"""What the configuration of a ranking calls an exact search that passes over papers without a vector."""

_SHOWN = 3
"""Ids an error names."""

SEVERAL = "best pair"
"""The engine for papers with several vectors."""

MOST_UNITS = 64
"""Units of one ranking at most: each leaves ``depth`` entries a query, 23 MB for 3,800 queries at depth 500."""

LOCAL_UNIT = 4_000_000
"""Candidates of one unit on one machine: a search that is killed continues after the last finished unit."""

_SENTENCES = 16
"""Vectors of a paper with several, at most as a rule: blocks hold so many fewer papers."""


@dataclass(frozen=True)
class DenseConfig:
    """What decides a ranking by vectors beside the vectors.

    Attributes:
        metric: ``l2``, ``inner_product`` or ``cosine``.
        depth: entries a query.
        search: ``exact``, whichever engine ran: all give the same bytes; :data:`SKIPPED`;
            else the index of an approximate search.
        dimension: components that are compared; 0: all (:class:`pipeline.encode.views.View`).
        quantise: how they are rounded; empty: not at all.
    """

    metric: Metric
    depth: int
    search: str | IndexSettings = "exact"
    dimension: int = field(default=0, metadata=OMIT_DEFAULT)
    quantise: Quantise = field(default="", metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class PoolWithVectors:
    """The candidates and queries of a pool that have a vector.

    Attributes:
        starts: int64 ``[shards + 1]``, first row of each corpus shard.
        candidates: uint32, rising rows.
        query_rows: uint32 ``[queries]``, rising rows.
        exclusions: what is removed from the ranking of each of these queries.
        kept: int64 ``[queries]``, their positions in the pool; None: all of it is here.
        counts: what is left out, if papers may lack a vector.
    """

    starts: npt.NDArray[np.int64]
    candidates: Rows
    query_rows: Rows
    exclusions: Exclusions
    kept: npt.NDArray[np.int64] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def renumbered(self, ranking: Ranking) -> Ranking:
        """Return a ranking of these queries with their positions in the pool."""
        if self.kept is None:
            return ranking
        return dataclasses.replace(ranking, query=self.kept[ranking.query].astype(np.uint32))


def pool_with_vectors(inputs: Inputs, missing: Missing | None, name: str) -> PoolWithVectors:
    """Return what of a pool can be ranked.

    Raises:
        InputError: some have none, and are not to be skipped; or nothing is left.
    """
    pool = open_pool(inputs)
    whole = PoolWithVectors(pool.corpus.starts, pool.candidates, pool.query_rows, pool.exclusions)
    if missing is None:
        return whole
    lacking = store_of(inputs["paper"]).missing(pool.candidates)
    unasked = store_of(inputs.get("query", inputs["paper"])).missing(pool.query_rows)
    counts = {"candidates_without_vector": len(lacking), "queries_without_vector": len(unasked)}
    if not (len(lacking) or len(unasked)):
        return dataclasses.replace(whole, counts=counts)
    kept = np.isin(pool.query_rows, unasked, invert=True)
    if missing == "error" or not kept.any() or len(lacking) == len(pool.candidates):
        papers = lacking if len(lacking) or not pool.queries_are_papers else unasked
        first = pool.corpus.ids(papers[:_SHOWN]) if len(papers) else [pool.query_ids()[int(np.argmin(kept))]]
        raise InputError(
            f"{name} must have a vector of each paper of {pool.artifact.name}, got none for {len(lacking):,} of "
            f"{len(pool.candidates):,} candidates and {len(unasked):,} of {len(kept):,} queries (first: "
            f"{', '.join(first)})",
            "Make them, or rank without them: missing=skip" if missing == "error" else "Make some of them",
        )
    offsets, rows = pool.exclusions
    lengths = np.diff(offsets)
    exclusions = np.append(0, np.cumsum(lengths[kept])), rows[np.repeat(kept, lengths)]
    candidates = pool.candidates[np.isin(pool.candidates, lacking, invert=True)]
    return PoolWithVectors(
        whole.starts, candidates, pool.query_rows[kept], exclusions, np.flatnonzero(kept), {**counts}
    )


class _Part(NamedTuple):
    """One unit of one pool's ranking, with the candidates it ranks."""

    job: Job
    pool: PoolWithVectors
    unit: str
    candidates: Rows


@dataclass(frozen=True)
class DenseSearch(Sharded):
    """Exact search by one encoder's vectors. An engine uses all cores, or all GPUs, of a machine.

    Attributes:
        name: the encoder's, for progress.
        metric: how vectors are compared.
        depth: entries a query.
        engine: ``auto``, ``exact``, ``faiss`` or :data:`SEVERAL`.
        missing: what is done about papers without a vector; None where every paper has one.
        view: which components of the vectors are compared, and how they are rounded.
    """

    name: str
    metric: Metric
    depth: int
    engine: str
    missing: Missing | None = None
    view: View = WHOLE
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        """Return units of neighbouring corpus shards; an earlier plan stays once one of its units is finished."""
        planned = out.plan() or {}
        if any(map(out.done, planned)):
            return planned
        pool = pool_with_vectors(inputs, self.missing, self.name)
        candidates = len(pool.candidates)
        most = MOST_UNITS if spread else -(-candidates // LOCAL_UNIT)
        count = max(1, min(most, len(pool.starts) - 1))
        return {f"scratch/top-{number}-of-{count}.arrow": -(-candidates // count) for number in range(count)}

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        """Rank the candidates of each unit, for as many pools in a pass as have the same queries."""
        passes = self._passes(jobs, resources.memory)
        engines: set[str] = set()
        for number, parts in enumerate(passes, 1):
            title = f"search {self.name}" + (f" ({number} of {len(passes)})" if len(passes) > 1 else "")
            engines.add(self._pass(parts, title, resources))
        return {"engine": ", ".join(sorted(engines)), "pools_in_pass": max(map(len, passes))}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Merge the units' rankings by the one total order."""
        from pipeline.retrieve.topk import merge

        pool, units = open_pool(inputs), out.plan() or {}

        def ranking(unit: str) -> Ranking:
            table = files.read_arrow(out.path / unit).combine_chunks()
            return Ranking(*(table.column(name).to_numpy() for name in RANKING.names))

        best = merge(map(ranking, units), len(pool.query_rows), self.depth)
        passes = [fact for fact in facts if fact]  # another attempt may have left nothing to do
        engines = ", ".join(sorted({fact["engine"] for fact in passes}))
        pools = max((fact["pools_in_pass"] for fact in passes), default=0)
        out.note(engine=engines, units=len(units), pools_in_pass=pools, **_encoders(inputs))
        counts = pool_with_vectors(inputs, self.missing, self.name).counts
        return {**write_ranking(best, pool, self.depth, out), **counts}

    def _passes(self, jobs: Sequence[Job], memory: int) -> list[list[_Part]]:
        """Group units: those of one pass have queries, shards and stores in common; their lists fit in memory/4."""
        alike: dict[tuple[object, ...], list[_Part]] = {}
        for job in jobs:
            pool = pool_with_vectors(job.inputs, self.missing, self.name)
            stores = [job.inputs[role].path.parent for role in ("paper", "query") if role in job.inputs]
            for unit in job.units:
                part = _Part(job, pool, unit, _candidates(pool, unit))
                alike.setdefault((unit, *stores, pool.query_rows.tobytes()), []).append(part)
        passes = []
        for parts in alike.values():
            lists = 8 * self.depth * max(len(parts[0].pool.query_rows), 1)
            most = int(np.clip(memory // 4 // lists, 1, MAX_SUBSETS))
            passes += [parts[start : start + most] for start in range(0, len(parts), most)]
        return passes

    def _pass(self, parts: Sequence[_Part], title: str, resources: Resources) -> str:
        """Rank one unit of several pools with the same queries; return the engine's name."""
        several = len(parts) > 1
        candidates = np.unique(np.concatenate([part.candidates for part in parts])) if several else parts[0].candidates
        subsets = [Subset(part.candidates if several else None, part.pool.exclusions) for part in parts]
        papers = store_of(*(part.job.inputs["paper"] for part in parts), view=self.view)
        asking = (part.job.inputs.get("query", part.job.inputs["paper"]) for part in parts)
        texts = store_of(*asking, view=self.view)
        size, rows = block_rows(papers.dimension, resources.memory), parts[0].pool.query_rows
        if self.engine == SEVERAL:
            offsets, vectors = texts.grouped(rows)
            queries: Vectors | Groups = Groups(offsets, vectors)
            engine = dense_engine("exact")
            live = _not_zero(vectors, offsets)
            size = max(size // _SENTENCES, 1)
        else:
            queries = vectors = _matrix(texts, rows, size)
            live = _not_zero(vectors)
            engine = dense_engine(self.engine, 2.0 * vectors.size * len(candidates))
        with Progress(len(candidates), title, "docs") as progress:
            rankings = engine.search_pools(
                queries,
                papers.blocks(candidates, size),
                subsets,
                metric=self.metric,
                depth=self.depth,
                resources=resources,
                done=progress.add,
            )
        for part, ranking in zip(parts, rankings, strict=True):
            out = part.job.out.path
            with files.disk_errors(out), files.replacing(out / part.unit) as path:
                files.write_arrow(path, part.pool.renumbered(ranking.of(live)).table().to_batches(), RANKING)
        return type(engine).__name__


def dense_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    model: Model,
    *,
    depth: int = DEFAULT_DEPTH,
    engine: str = "auto",
) -> Task:
    """Return the task that ranks a pool's candidates by an encoder's vectors.

    Where papers have several vectors, the best pair counts; all engines give the same bytes.
    """
    check_depth(depth)
    name = model.name if model.missing else model.slug
    units = DenseSearch(name, model.distance, depth, SEVERAL if model.several else engine, model.missing, model.view)
    search = SKIPPED if model.missing == "skip" else "exact"
    inputs, config = _inputs(corpus, pool, vectors), DenseConfig(model.distance, depth, search, *model.view)
    return Task("search", 2, RANKINGS, f"{model.slug}-{slug_of(pool)}", config, inputs, units=units)


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

    ``settings`` describe the index; the other arguments are those of :func:`dense_ranking_task`.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.ann import approximate_search, recall

        opened, view = pool_with_vectors(inputs, model.missing, model.name), model.view
        store = store_of(inputs["paper"], view=view)
        size = block_rows(store.dimension, resources.memory)
        queries = _matrix(store_of(inputs.get("query", inputs["paper"]), view=view), opened.query_rows, size)
        with Progress(len(opened.candidates), f"index {model.slug} by {settings.name}", "docs") as progress:
            ranking = approximate_search(
                settings,
                queries,
                progress.over(store.blocks(opened.candidates, size), lambda block: len(block[0])),
                count=len(opened.candidates),
                metric=model.distance,
                depth=depth,
                excluded=opened.exclusions,
                resources=resources,
            )
        ranking = opened.renumbered(ranking.of(_not_zero(queries)))
        out.note(**_encoders(inputs))
        counts = {**opened.counts, "recall": recall(ranking, read_ranking(inputs["exact"]))}
        return {**write_ranking(ranking, open_pool(inputs), depth, out), **counts}

    inputs = {**_inputs(corpus, pool, vectors), "exact": exact}
    config = DenseConfig(model.distance, depth, settings, *model.view)
    return Task("search", 2, RANKINGS, f"{model.slug}-{settings.kind}-{slug_of(pool)}", config, inputs, run)


def _inputs(
    corpus: Artifact, pool: Task | Artifact, vectors: Mapping[Role, Task | Artifact]
) -> dict[str, Task | Artifact]:
    return {"corpus": corpus, "pool": pool, **{str(role): task for role, task in vectors.items()}}


def _encoders(inputs: Inputs) -> dict[str, Any]:
    """Return the specifications of the encoders: tables tell rankings apart by them."""
    names = {"paper": "encoder", "query": "query_encoder"}
    return {name: inputs[role].manifest.config["encoder"] for role, name in names.items() if role in inputs}


def _candidates(pool: PoolWithVectors, unit: str) -> Rows:
    """Return the candidates of a unit: those in its part of the corpus shards."""
    number, count = map(int, re.findall(r"\d+", unit))
    starts = pool.starts
    shards = len(starts) - 1
    bounds = [starts[shards * number // count], starts[shards * (number + 1) // count]]
    first, last = np.searchsorted(pool.candidates, bounds)
    return pool.candidates[first:last]


def _not_zero(vectors: Vectors, offsets: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.bool_]:
    """Return which queries have a vector other than zero, bool ``[queries]``; the others have no results, as in BM25.

    Args:
        vectors: ``[n, d]``.
        offsets: int64 ``[queries + 1]``, where the vectors of each query start; None: one each.
    """
    nonzero = np.asarray(vectors.any(axis=1))
    return nonzero if offsets is None else np.diff(np.append(0, np.cumsum(nonzero))[offsets]) > 0


def _matrix(store: VectorStore, rows: Rows, size: int) -> Vectors:
    """Return one vector a row, float32 ``[n, d]``."""
    blocks = list(store.blocks(rows, size))
    stored = np.concatenate([np.empty(0, np.uint32), *(block.rows for block in blocks)])
    if not np.array_equal(stored, rows):
        raise InputError(
            f"{len(rows):,} queries have {len(stored):,} vectors", "Rank with an encoder of one vector a paper"
        )
    return np.concatenate([np.empty((0, store.dimension), np.float32), *(block.vectors for block in blocks)])
