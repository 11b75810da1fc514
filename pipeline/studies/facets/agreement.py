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

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.corpus.pool import Pool
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, select
from pipeline.measure.measures import parse_measures
from pipeline.sources.csfcube import NOT_JUDGED, Judged
from pipeline.stages.search import read_ranking
from pipeline.studies.facets.pools import facet_query_ids
from pipeline.studies.facets.scoring import ALL

Grades = npt.NDArray[np.float64]

_ANNOTATOR = re.compile(r"relevance_ann\w+")


def agreement(annotations: Mapping[str, Judged]) -> pl.DataFrame:
    """Return a row for each facet and for all: Spearman's rho, Krippendorff's alpha, Cohen's kappa.

    rho is the mean over queries with two annotators or more, of each two of them; kappa (also with quadratic weights)
    pools the pairs of grades of each two; alpha is ordinal, over all candidates. A candidate that fewer than two
    annotators judged counts in ``judged_once`` alone. A query whose grades are all equal has no rho.

    Raises:
        InputError: the package krippendorff is not installed.
    """
    facets = {facet: list(_frames(judged)) for facet, judged in annotations.items()}
    groups = {**facets, ALL: [each for frames in facets.values() for each in frames]}
    rows = [_agreement(facet, frames) for facet, frames in groups.items() if frames]
    return pl.DataFrame(rows, infer_schema_length=None)


def _frames(judged: Judged) -> Iterator[pl.DataFrame]:
    """Yield the grades of every query with an annotator: a row for each candidate, a column for each annotator."""
    for lists in judged.values():
        if names := sorted(filter(_ANNOTATOR.fullmatch, lists)):
            grades = pl.DataFrame({name: lists[name] for name in names})
            yield grades.select(pl.all().replace(NOT_JUDGED, None).cast(pl.Float64))


def _agreement(facet: str, frames: Sequence[pl.DataFrame]) -> dict[str, Any]:
    try:
        import krippendorff
    except ImportError as error:
        raise InputError(f"agreement needs krippendorff ({error})", pip_extra("facets")) from error
    from sklearn.metrics import cohen_kappa_score

    whole = pl.concat(frames, how="diagonal")
    twice = whole.filter(pl.sum_horizontal(pl.all().is_not_null()) > 1)
    pairs, rhos = [np.empty((2, 0))], []
    for each in frames:
        for names in itertools.combinations(each.columns, 2):
            both = each.select(names).drop_nulls().to_numpy().T
            pairs.append(both)
            if both.shape[1] > 1 and np.ptp(both, axis=1).all():
                rhos.append(float(spearmanr(*both).statistic))
    first, second = np.concatenate(pairs, axis=1).astype(int)
    varied = len(first) and len(np.unique([first, second])) > 1
    alpha = krippendorff.alpha(twice.to_numpy().T, level_of_measurement="ordinal") if varied else None
    return {
        "facet": facet,
        "annotators": whole.width,
        "queries": len(frames),
        "judged_twice": len(twice),
        "judged_once": len(whole) - len(twice),
        "spearman": float(np.mean(rhos)) if rhos else None,
        "krippendorff": alpha if alpha is None else float(alpha),
        "kappa": float(cohen_kappa_score(first, second)) if varied else None,
        "kappa_quadratic": float(cohen_kappa_score(first, second, weights="quadratic")) if varied else None,
    }


def citations(pools: Mapping[str, Pool], relevant: int) -> pl.DataFrame:
    """Return how citations and grades overlap, a row for each facet and for all.

    ``cited_relevant`` is the share of cited candidates whose grade is ``relevant`` or more; ``relevant_cited`` the
    share of those that are cited; grades are means.
    """
    found: dict[str, list[npt.NDArray[Any]]] = {}
    for facet, pool in pools.items():
        cited, grade = cited_of(pool), pool.qrels.column("grade").to_numpy()
        found[facet] = [np.stack([cited.astype(np.int64), grade.astype(np.int64)])]
    found[ALL] = [part for parts in found.values() for part in parts]
    rows = []
    for group, parts in found.items():
        cited, grade = np.concatenate(parts, axis=1)
        rows.append(
            {
                "facet": group,
                "judged": len(grade),
                "relevant": int(np.count_nonzero(grade >= relevant)),
                "cited": int(cited.sum()),
                "cited_relevant": _mean(grade[cited == 1] >= relevant),
                "relevant_cited": _mean(cited[grade >= relevant]),
                "grade_cited": _mean(grade[cited == 1]),
                "grade_not_cited": _mean(grade[cited == 0]),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def cited_of(pool: Pool) -> npt.NDArray[np.bool_]:
    """Return which judgements of a pool are of papers that the query cites."""
    papers = pool.corpus.rows_of([query.rpartition("_")[0] for query in facet_query_ids(pool)])
    query, row = (pool.qrels.column(name).to_numpy() for name in ("query", "row"))
    return np.array(
        [r in pool.corpus.outgoing.of(int(papers[q])) for q, r in zip(query.tolist(), row.tolist(), strict=True)], bool
    )


def by_citation(pool: Pool, ranking: Artifact, measure: str) -> Grades:
    """Return a measure of a ranking with citations as judgements, a value for each query that has a cited candidate."""
    queries, found = len(pool.query_rows), read_ranking(ranking).table()
    cited = cited_of(pool)
    judged = pool.qrels.filter(cited)
    ones = np.ones(judged.num_rows, np.int16)
    judged = judged.set_column(2, judged.schema.field("grade"), [ones])
    qrels, run = Qrels.from_table(judged, queries), Run.from_table(found, queries)
    run, qrels = select(run, qrels, np.flatnonzero(qrels.positives()))
    values: Grades = evaluate(qrels, run, parse_measures(measure))[0]
    return values


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists; None where it is not defined."""
    tau = float(kendalltau(first, second).statistic) if len(first) > 1 else float("nan")
    return None if np.isnan(tau) else tau
