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
from pipeline.studies.facets.scoring import ALL, QUERIES

Rankings = Mapping[tuple[str, str, str], tuple[Pool, Ranking]]
"""Pool and ranking by system, form and facet."""

_ANNOTATOR = re.compile(r"relevance_ann\w+")


def agreement_tables(annotations: Mapping[str, Judged]) -> Iterator[StudyTable]:
    """Yield the table of agreement; nothing where no annotator is recorded."""
    frame = agreement(annotations)
    if not frame.is_empty():
        notes = ["rho: mean over queries of each two annotators; alpha is ordinal; kappa also with quadratic weights."]
        yield StudyTable("agreement", frame_table("Agreement of annotators", frame, notes, 3), frame)


def agreement(annotations: Mapping[str, Judged]) -> pl.DataFrame:
    """Return a row for each facet and for all: Spearman's rho, Krippendorff's alpha, Cohen's kappa.

    rho is the mean over queries with two annotators or more, of each two of them; kappa (also with quadratic weights)
    pools the pairs of grades of each two; alpha is ordinal, over all candidates. A candidate that fewer than two
    annotators judged counts in ``judged_once`` alone. A query whose grades are all equal has no rho.

    Raises:
        InputError: the package krippendorff is not installed.
    """
    by_facet = {facet: [*_grades(judged)] for facet, judged in annotations.items()}
    by_facet[ALL] = [*itertools.chain.from_iterable(by_facet.values())]
    rows = [{"facet": facet, **_agreement(queries)} for facet, queries in by_facet.items() if queries]
    return pl.DataFrame(rows, infer_schema_length=None)


def _grades(judged: Judged) -> Iterator[pl.DataFrame]:
    """Yield the grades of every query with an annotator: a row for each candidate, a column for each annotator."""
    for lists in judged.values():
        if names := sorted(filter(_ANNOTATOR.fullmatch, lists)):
            grades = pl.DataFrame({name: lists[name] for name in names})
            yield grades.select(pl.all().replace(NOT_JUDGED, None).cast(pl.Float64))


def _agreement(queries: Sequence[pl.DataFrame]) -> dict[str, Any]:
    try:
        import krippendorff
    except ImportError as error:
        raise InputError(f"agreement needs krippendorff ({error})", pip_extra("facets")) from error
    from sklearn.metrics import cohen_kappa_score

    whole = pl.concat(queries, how="diagonal")
    twice = whole.filter(pl.sum_horizontal(pl.all().is_not_null()) > 1)
    pairs = [
        grades.select(names).drop_nulls().to_numpy().T
        for grades in queries
        for names in itertools.combinations(grades.columns, 2)
    ]
    rhos = [spearmanr(*pair).statistic for pair in pairs if pair.shape[1] > 1 and np.ptp(pair, axis=1).all()]
    first, second = np.concatenate([np.empty((2, 0)), *pairs], axis=1).astype(int)
    alpha = kappa = quadratic = None
    if len(np.unique([first, second])) > 1:
        alpha = float(krippendorff.alpha(twice.to_numpy().T, level_of_measurement="ordinal"))
        kappa, quadratic = (float(cohen_kappa_score(first, second, weights=w)) for w in (None, "quadratic"))
    return {
        "annotators": whole.width,
        "queries": len(queries),
        "judged_twice": len(twice),
        "judged_once": len(whole) - len(twice),
        "spearman": float(np.mean(rhos)) if rhos else None,
        "krippendorff": alpha,
        "kappa": kappa,
        "kappa_quadratic": quadratic,
    }


def citation_tables(
    pools: Mapping[str, Pool], rankings: Rankings, figures: pl.DataFrame, measure: str, relevant: int
) -> Iterator[StudyTable]:
    """Yield how citations and grades overlap, and the systems under either; nothing where no paper is cited.

    ``pools`` are the judged ones by facet, ``figures`` of :func:`pipeline.studies.facets.scoring.summaries`.
    """
    overlap = citations(pools, relevant)
    if not overlap["cited"].sum():
        return
    graded = figures.filter(facet=ALL, measure=measure, average=QUERIES)
    mean_of = dict(zip(graded.select("system", "form").rows(), graded["mean"], strict=True))
    values: dict[tuple[str, str], list[npt.NDArray[np.float64]]] = {}
    for (system, form, _), (pool, ranking) in rankings.items():
        values.setdefault((system, form), []).append(by_citation(pool, ranking, measure))
    rows = [(*key, mean_of[key], np.concatenate(parts).mean(), sum(map(len, parts))) for key, parts in values.items()]
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
