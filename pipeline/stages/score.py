"""Stage ``score``: the measures of a ranking, query by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, file_name
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.order import tied_share
from pipeline.core.resources import Resources
from pipeline.core.schema import JUDGEMENTS, SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import SCORES as FOLDER
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import uneven_abstracts
from pipeline.encode.names import Name
from pipeline.measure.engines import check_engine, evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun, check_candidates, column
from pipeline.measure.measures import DEFAULT, Measure, check_depth, parse_measures, within
from pipeline.stages.ranking_file import open_pool

AMONG_ABSTRACTS = "among-abstracts.arrow"
"""File of the scores among the candidates with an abstract, schema :data:`pipeline.core.schema.SCORES`."""


@dataclass(frozen=True)
class ScoreConfig:
    """Settings of one scoring: system, sample of the pool from 1, and canonical names of measures in canonical order.

    Denominators ``count`` positives that the corpus lacks, as trec_eval does, or ``ignore`` them.
    """

    system: str
    sample: int
    measures: tuple[str, ...]
    missing_positives: str = "ignore"


def score_tasks(
    ranking: Task | Artifact,
    pool: Task | Artifact,
    corpus: Artifact,
    *,
    system: str | Name,
    depth: int,
    measures: tuple[str, ...] = (),
    **options: str,
) -> tuple[Task, ...]:
    """Return the tasks that score one ranking: one for the default measures, then one for each further measure.

    So further measures compute nothing twice, and the default measures of a ranking are always in one artifact.

    Default measures with a cutoff beyond ``depth`` are left out. ``options`` are those of :func:`score_task`.
    """
    requested = parse_measures(measures) if measures else ()
    check_depth(requested, depth)
    default = tuple(map(str, within(DEFAULT, depth)))
    names = map(str, sorted(requested, key=lambda measure: measure.order))
    return tuple(
        score_task(ranking, pool, corpus, system=system, measures=task_measures, **options)
        for task_measures in (default, *((name,) for name in names if name not in default))
    )


def score_task(
    ranking: Task | Artifact,
    pool: Task | Artifact,
    corpus: Artifact,
    *,
    system: str | Name,
    measures: tuple[str, ...],
    missing_positives: str = "ignore",
    engine: str = "numpy",
) -> Task:
    """Return the task that scores one ranking of one pool by measures, whose order and spelling do not matter.

    The artifact is ``scores.arrow``: measure by measure, a row for each query that has a positive. A query without
    results scores 0 and is counted; a query without a positive cannot be scored and is counted. Where positives and
    negatives differ by much in the share without an abstract, :data:`AMONG_ABSTRACTS` has the same scores among the
    candidates with one. ``system`` is recorded as data; a text is a name without parts. Every engine gives the same
    values.

    Raises:
        InputError: a measure or the engine is unknown; or missing positives shall count in a pool that cannot have
            any. When run: the ranking lacks a query, contains a paper that is not a candidate, or is not in order.
    """
    check_engine(engine)
    _check_missing_positives(missing_positives, pool)
    parsed = sorted(parse_measures(measures), key=lambda measure: measure.order)
    name = Name(system) if isinstance(system, str) else system
    sample = canonical(pool.config).get("sample", 1)
    config = ScoreConfig(name.title, sample, tuple(map(str, parsed)), missing_positives)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        _require_all_queries(inputs["ranking"], opened_pool)
        table = inputs["ranking"].arrow("ranking.arrow")
        ranked = RankedRun.from_table(table, opened_pool)
        judged = Qrels.from_table(_judgements(opened_pool, missing_positives), opened_pool)
        check_candidates(ranked, opened_pool)
        values = evaluate_all(judged, ranked, parsed, engine)
        _require_rated(opened_pool, parsed, values)
        out.arrow("scores.arrow", score_table(opened_pool, (config.system,), config.measures, values[None]), SCORES)
        if uneven_abstracts(opened_pool.artifact.manifest.counts.get("marks", {})):
            among = _among_abstracts(opened_pool, judged, ranked, parsed, engine)
            out.arrow(AMONG_ABSTRACTS, score_table(opened_pool, (config.system,), config.measures, among[None]), SCORES)
        out.note(corpus=inputs["corpus"].name, system=canonical(name))
        counts = counts_of(table, ranked, judged)
        scored = int(np.count_nonzero(judged.positives()))
        return {"queries": scored, "positives_not_in_collection": opened_pool.missing.num_rows, **counts}

    inputs: dict[str, Task | Artifact] = {"ranking": ranking, "pool": pool, "corpus": corpus}
    slug = file_name(name.title, kept="._+-").lower() or "system"
    return Task("score", 2, FOLDER, f"{slug}-{pool.slug}", config, inputs, run)


def _among_abstracts(
    pool: Pool, judged: Qrels, ranked: RankedRun, measures: Sequence[Measure], engine: str
) -> npt.NDArray[np.float64]:
    """Return the values among the candidates with an abstract, ``[measures, queries]``; NaN where not rated."""
    known = pool.corpus.attributes["abstract_chars"] > 0
    included = np.concatenate([known, np.ones(pool.missing.num_rows, bool)])  # missing positives are beyond the corpus
    return evaluate_all(judged.among(included), ranked.among(included), measures, engine)


def counts_of(table: pa.Table, ranked: RankedRun, judged: Qrels) -> Counts:
    """Return the counts that notes report; ``table`` is a ranking of schema :data:`pipeline.core.schema.RANKING`."""
    judged_queries = judged.positives() > 0
    return {
        "queries_without_positive": int(np.count_nonzero(~judged_queries)),
        "queries_without_results": int(np.count_nonzero(ranked.retrieved()[judged_queries] == 0)),
        "positives": len(judged.rows),
        "retrieved": len(ranked.rows),
        "depth": ranked.depth,
        "tied_share": tied_share(column(table, "query"), column(table, "score")),
    }


def _check_missing_positives(text: str, pool: Task | Artifact) -> None:
    if text == "count" and canonical(pool.config)["queries_are"] == "papers":
        raise InputError(
            f"the queries of {pool.slug} are papers, whose positives are all in the collection",
            "Leave --missing-positives out; it is for releases that bring judgements",
        )


def _judgements(pool: Pool, missing_positives: str) -> pa.Table:
    """Return the judgements; a missing positive that counts gets a row beyond the corpus, which no ranking contains."""
    if missing_positives == "ignore":
        return pool.qrels
    beyond = np.arange(pool.missing.num_rows) + len(pool.corpus)
    missing = pool.missing.add_column(1, JUDGEMENTS.field("row"), pa.array(beyond, pa.uint32()))
    return pa.concat_tables([pool.qrels, missing]).sort_by([("query", "ascending"), ("row", "ascending")])


def _require_all_queries(ranking: Artifact, pool: Pool) -> None:
    ranked_count, query_count = ranking.manifest.counts["queries"], len(pool.query_rows)
    if ranked_count != query_count:
        raise InputError(
            f"{ranking.name} ran {ranked_count:,} of the {query_count:,} queries of {pool.artifact.name}; "
            "a query that was not run is not a query without results",
            "Rank the whole pool, then score it",
        )


def _require_rated(pool: Pool, measures: Sequence[Measure], values: npt.NDArray[np.float64]) -> None:
    """Raise InputError if a measure rates no query; ``values`` are ``[measures, queries]``, NaN where not rated."""
    name, queries = pool.artifact.name, f"none of {len(pool.query_rows):,} queries"
    for measure in (measures[row] for row in np.flatnonzero(np.isnan(values).all(axis=1)).tolist()):
        if measure.relevant == 1:
            raise InputError(
                f"{name} must have a query with a positive, got {queries}",
                "Compare the ids of its qrels with those of the corpus",
            )
        raise InputError(
            f"{measure} must have a paper of grade {measure.relevant} or more in {name}, got {queries}",
            "Leave the measure out",
        )


def score_table(
    pool: Pool, systems: Sequence[str], measures: Sequence[str], values: npt.NDArray[np.float64]
) -> pa.Table:
    """Return values ``[systems, measures, queries]`` that are not NaN, schema :data:`pipeline.core.schema.SCORES`."""
    system, measure, query = np.nonzero(~np.isnan(values))
    frame = pl.DataFrame({"query": query, "value": values[system, measure, query]}).with_columns(
        system=pl.Series(systems).gather(system),
        measure=pl.Series(measures).gather(measure),
        pool=pl.lit(pool.artifact.name),
        sample=pl.lit(int(pool.artifact.manifest.config.get("sample", 1))),
    )
    return frame.select(SCORES.names).to_arrow().cast(SCORES)
