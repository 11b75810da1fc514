"""How annotators agree, and how citations agree with grades on the same pools (Mysore et al. 2021, appendix D)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import kendalltau, spearmanr

from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.corpus.pool import Pool
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, select
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.base import Ranking
from pipeline.scores.tables import frame_table
from pipeline.sources.csfcube import NOT_JUDGED, Judged
from pipeline.studies.base import StudyTable
from pipeline.studies.facets.pools import facet_query_ids
from pipeline.studies.facets.scoring import ALL

Rankings = Mapping[tuple[str, str, str], tuple[Pool, Ranking]]
"""Pool and ranking by system, form and facet."""

_ANNOTATOR = re.compile(r"relevance_ann\w+")
_AGREEMENT = dict.fromkeys(("spearman", "krippendorff", "kappa", "equal"), pl.Float64)


def agreement_tables(annotations: Mapping[str, Judged]) -> Iterator[StudyTable]:
    """Yield the table of agreement; nothing where no annotator is recorded."""
    frame = agreement(annotations)
    if not frame.is_empty():
        notes = [
            "Medians over queries (Mysore et al. 2021, table 2). annotators: of each two of them; adjudicated: of the "
            "adjudicated grades with each. rho: Spearman; alpha: Krippendorff, ordinal; kappa: Cohen; equal: share of "
            "equal grades; overruled: share of adjudicated grades that no annotator gave, mean over queries.",
        ]
        yield StudyTable("agreement", frame_table("Agreement of annotators", frame, notes, 3), frame)


def agreement(annotations: Mapping[str, Judged]) -> pl.DataFrame:
    """Return the medians over queries of four measures of agreement, two rows for each facet and for all.

    ``stage`` is ``annotators``, between each two, or ``adjudicated``, between the adjudicated grades and each; of
    several pairs a query has the mean. Candidates with one of both grades alone are left out. A measure is null where
    grades are all equal, and such a query is not in its median. ``overruled`` is the mean share of adjudicated grades
    that no annotator gave.

    Raises:
        InputError: the package krippendorff is not installed.
    """
    rows = [
        {"facet": facet, **row}
        for facet, judged in annotations.items()
        for lists in judged.values()
        for row in _agreement(lists)
    ]
    if not rows:
        return pl.DataFrame()
    queries = pl.DataFrame(rows, infer_schema_length=None)
    every = pl.concat([queries, queries.with_columns(facet=pl.lit(ALL))])
    return every.group_by("facet", "stage", maintain_order=True).agg(
        pl.len().alias("queries"), pl.col("candidates").sum(), pl.col(*_AGREEMENT).median(), pl.col("overruled").mean()
    )


def _agreement(lists: Mapping[str, list[int]]) -> Iterator[dict[str, Any]]:
    """Yield the agreement of one query before adjudication, and after it where there are adjudicated grades."""
    names = sorted(filter(_ANNOTATOR.fullmatch, lists))
    stages = {"annotators": [*itertools.combinations(names, 2)]}
    if "relevance_adju" in lists:
        stages["adjudicated"] = [(name, "relevance_adju") for name in names]
    for stage, compared in stages.items():
        pairs = [np.array([lists[name] for name in pair]) for pair in compared]
        pairs = [pair[:, (pair != NOT_JUDGED).all(axis=0)] for pair in pairs]
        if not pairs:
            continue
        values = pl.DataFrame([_measures(pair) for pair in pairs], _AGREEMENT, orient="row").mean().row(0)
        overruled = None
        if stage == "adjudicated":
            given = np.array([lists[name] for name in names])
            overruled = float((given != np.array(lists["relevance_adju"])).all(axis=0).mean())
        sizes = max(pair.shape[1] for pair in pairs)
        yield {
            "stage": stage,
            "candidates": sizes,
            **dict(zip(_AGREEMENT, values, strict=True)),
            "overruled": overruled,
        }


def _measures(pair: npt.NDArray[np.int64]) -> tuple[float | None, ...]:
    """Return Spearman's rho, Krippendorff's ordinal alpha, Cohen's kappa and the share of equal grades."""
    try:
        import krippendorff
    except ImportError as error:
        raise InputError(f"agreement needs krippendorff ({error})", pip_extra("facets")) from error
    from sklearn.metrics import cohen_kappa_score

    if not pair.shape[1]:
        return None, None, None, None
    rho = alpha = kappa = None
    if np.ptp(pair, axis=1).all():
        rho = float(spearmanr(*pair).statistic)
    if len(np.unique(pair)) > 1:
        alpha = float(krippendorff.alpha(pair.astype(float), level_of_measurement="ordinal"))
        kappa = float(cohen_kappa_score(*pair))
    return rho, alpha, kappa, float((pair[0] == pair[1]).mean())


def citation_tables(
    pools: Mapping[str, Pool], rankings: Rankings, values: pl.DataFrame, measure: str, relevant: int
) -> Iterator[StudyTable]:
    """Yield how citations and grades overlap, and the systems under either; nothing where no paper is cited.

    ``pools`` are the judged ones by facet, ``values`` of :func:`pipeline.studies.facets.scoring.values_of`.
    """
    overlap = citations(pools, relevant)
    if not overlap["cited"].sum():
        return
    graded = values.filter(measure=measure).group_by("system", "form").agg(pl.col("value").mean())
    mean_of = graded.rows_by_key(("system", "form"), unique=True)
    cited: dict[tuple[str, str], list[npt.NDArray[np.float64]]] = {}
    for (system, form, _), (pool, ranking) in rankings.items():
        cited.setdefault((system, form), []).append(by_citation(pool, ranking, measure))
    rows = [(*key, *mean_of[key], np.concatenate(parts).mean(), sum(map(len, parts))) for key, parts in cited.items()]
    frame = pl.DataFrame(rows, schema=["system", "form", "graded", "citation", "queries_cited"], orient="row")
    tau = rank_correlation(frame["graded"], frame["citation"])
    notes = [
        f"{measure} over all queries, with grades and with citations as judgements.",
        f"Kendall's tau of the systems under both: {'not defined' if tau is None else f'{tau:.3f}'}.",
    ]
    yield StudyTable("citations", frame_table("Citations and grades", overlap, (), 3), overlap)
    yield StudyTable("citation_scores", frame_table("Systems by grades and by citations", frame, notes, 4), frame)


def citations(pools: Mapping[str, Pool], relevant: int) -> pl.DataFrame:
    """Return how citations and grades overlap, a row for each facet and for all.

    ``cited_relevant`` is the share of cited candidates whose grade is ``relevant`` or more; ``relevant_cited`` the
    share of those that are cited; grades are means.
    """
    judged = pl.concat(
        pl.DataFrame({"facet": facet, "is_cited": cited_of(pool), "grade": pool.qrels.column("grade").to_numpy()})
        for facet, pool in pools.items()
    )
    cited, is_relevant, grade = pl.col("is_cited"), pl.col("grade") >= relevant, pl.col("grade")
    every = pl.concat([judged, judged.with_columns(facet=pl.lit(ALL))])
    return every.group_by("facet", maintain_order=True).agg(
        judged=pl.len(),
        relevant=is_relevant.sum(),
        cited=cited.sum(),
        cited_relevant=is_relevant.filter(cited).mean(),
        relevant_cited=cited.filter(is_relevant).mean(),
        grade_cited=grade.filter(cited).mean(),
        grade_not_cited=grade.filter(~cited).mean(),
    )


def cited_of(pool: Pool) -> npt.NDArray[np.bool_]:
    """Return which judgements of a pool are of papers that the query cites."""
    papers = pool.corpus.rows_of([query.rpartition("_")[0] for query in facet_query_ids(pool)])
    cited = [{*pool.corpus.outgoing.of(paper).tolist()} for paper in papers.tolist()]
    query, row = (pool.qrels.column(name).to_pylist() for name in ("query", "row"))
    return np.array([candidate in cited[number] for number, candidate in zip(query, row, strict=True)], bool)


def by_citation(pool: Pool, ranking: Ranking, measure: str) -> npt.NDArray[np.float64]:
    """Return a measure with citations as judgements, float64 ``[queries that have a cited candidate]``."""
    judged = pl.DataFrame(pl.from_arrow(pool.qrels.filter(cited_of(pool)))).with_columns(grade=pl.lit(1, pl.Int16))
    queries = len(pool.query_rows)
    qrels, run = Qrels.from_table(judged.to_arrow(), queries), Run.from_table(ranking.table(), queries)
    run, qrels = select(run, qrels, np.flatnonzero(qrels.positives()))
    values: npt.NDArray[np.float64] = evaluate(qrels, run, parse_measures(measure))[0]
    return values


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists; None where it is not defined."""
    tau = float(kendalltau(first, second).statistic) if len(first) > 1 else float("nan")
    return None if np.isnan(tau) else tau
