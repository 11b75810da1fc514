"""Analyses of judged pools: agreement of annotators, citations as judgements, sources of pools, pairs of facets.

See Mysore et al. 2021: table 2, figures 2 and 3, appendix D.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import kendalltau, spearmanr

from pipeline.studies import kit
from pipeline.studies.facets.pools import judgements_of, query_papers
from pipeline.studies.facets.scoring import ALL
from pipeline.studies.kit import Floats, Pool, csfcube

Rankings = Mapping[tuple[str, str, str], tuple[Pool, kit.Ranking]]
"""Pool and ranking by system, form and facet."""

_ANNOTATOR = re.compile(r"relevance_ann\w+")
_AGREEMENT = dict.fromkeys(("spearman", "krippendorff", "kappa", "equal"), pl.Float64)


def agreement_table(annotations: Mapping[str, csfcube.Annotations]) -> kit.Table:
    """Return the table of :func:`agreement`."""
    frame = agreement(annotations)
    notes = [
        "Medians over queries (Mysore et al. 2021, table 2). annotators: of each two of them; adjudicated: of the "
        "adjudicated grades with each. rho: Spearman; alpha: Krippendorff, ordinal; kappa: Cohen; equal: share of "
        "equal grades; overruled: share of adjudicated grades that no annotator gave, mean over queries.",
    ]
    return kit.table("agreement", "Agreement of annotators", frame, "{facet}", _decimals(frame, 3), notes)


def _decimals(frame: pl.DataFrame, digits: int) -> dict[str, kit.Show]:
    """Return how columns but the first are written, floats with some decimals."""
    specs = {name: f":.{digits}f" if kind == pl.Float64 else "" for name, kind in frame.schema.items()}
    return {name: f"{{{name}{spec}}}" for name, spec in itertools.islice(specs.items(), 1, None)}


def agreement(annotations: Mapping[str, csfcube.Annotations]) -> pl.DataFrame:
    """Return the medians over queries of four measures of agreement, two rows for each facet and for all.

    ``stage`` is ``annotators`` (between each two annotators) or ``adjudicated`` (between the adjudicated grades and
    each annotator). A query with several pairs has their mean. Candidates with only one of two grades are left out. A
    measure is null for a query whose grades are all equal, and its median leaves this query out. ``overruled`` is the
    mean share of adjudicated grades that no annotator gave.

    Raises:
        InputError: the package krippendorff is not installed.
    """
    rows = []
    for (facet, queries_of_facet), stage in itertools.product(annotations.items(), ("annotators", "adjudicated")):
        for query, lists in queries_of_facet.items():
            names = sorted(filter(_ANNOTATOR.fullmatch, lists))
            adjudicated = np.array(lists.get("relevance_adju", ()))
            grade_pairs, overruled = list[tuple[Any, Any]](itertools.combinations(map(lists.get, names), 2)), None
            if stage == "adjudicated":
                grade_pairs = [(lists[name], adjudicated) for name in names if len(adjudicated)]
                if grade_pairs:
                    overruled = float((np.array([lists[name] for name in names]) != adjudicated).all(axis=0).mean())
            rows += [(facet, stage, query, overruled, *measure_agreement(np.array(pair))) for pair in grade_pairs]
    if not rows:
        return pl.DataFrame()
    columns = ["facet", "stage", "query", "overruled", "candidates", *_AGREEMENT]
    pair_frame = pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)
    queries = pair_frame.group_by("facet", "stage", "query", maintain_order=True).agg(
        pl.col("candidates").max(), pl.col(*_AGREEMENT).cast(pl.Float64).mean(), pl.col("overruled").first()
    )
    with_all = pl.concat([queries, queries.with_columns(facet=pl.lit(ALL))])
    return with_all.group_by("facet", "stage", maintain_order=True).agg(
        pl.len().alias("queries"), pl.col("candidates").sum(), pl.col(*_AGREEMENT).median(), pl.col("overruled").mean()
    )


def measure_agreement(pair: npt.NDArray[np.int64]) -> tuple[int | float | None, ...]:
    """Return the number of candidates with both grades, rho, ordinal alpha, kappa and the share of equal grades."""
    try:
        import krippendorff
    except ImportError as error:
        raise kit.InputError(f"agreement needs krippendorff ({error})", kit.pip_extra("facets")) from error
    from sklearn.metrics import cohen_kappa_score

    pair = pair[:, (pair != csfcube.NOT_JUDGED).all(axis=0)]
    rho = alpha = kappa = None
    if pair.size and np.ptp(pair, axis=1).all():
        rho = float(spearmanr(*pair).statistic)
    if len(np.unique(pair)) > 1:
        alpha = float(krippendorff.alpha(pair.astype(float), level_of_measurement="ordinal"))
        kappa = float(cohen_kappa_score(*pair))
    return pair.shape[1], rho, alpha, kappa, float((pair[0] == pair[1]).mean()) if pair.size else None


def citation_tables(
    pools: Mapping[str, Pool], rankings: Rankings, values: pl.DataFrame, measure: str, relevant: int
) -> list[kit.Table]:
    """Return the overlap of citations and grades, and the systems under both; nothing if no candidate is cited.

    ``pools`` are the judged pools by facet; ``values`` come from :func:`pipeline.studies.facets.scoring.values_of`.
    """
    overlap = citations(pools, relevant)
    if not overlap["cited"].sum():
        return []
    values_of: dict[tuple[str, str], list[Floats]] = {}
    for (system, form, _), (pool, ranking) in rankings.items():
        values_of.setdefault((system, form), []).append(by_citation(pool, ranking, measure))
    rows = [(*key, np.concatenate(arrays).mean(), sum(map(len, arrays))) for key, arrays in values_of.items()]
    frame = pl.DataFrame(rows, ["system", "form", "citation", "queries_cited"], orient="row")
    means = values.filter(measure=measure).group_by("system", "form", maintain_order=True).agg(pl.col("value").mean())
    frame = frame.join(means, on=["system", "form"], maintain_order="left")
    frame = frame.select("system", "form", pl.col("value").alias("graded"), "citation", "queries_cited")
    notes = [
        f"{measure} over all queries, with grades and with citations as judgements.",
        f"Kendall's tau of the systems under both: {tau(frame['graded'], frame['citation'])}.",
    ]
    title = "Systems by grades and by citations"
    return [
        kit.table("citations", "Citations and grades", overlap, "{facet}", _decimals(overlap, 3)),
        kit.table("citation_scores", title, frame, "{system}", _decimals(frame, 4), notes),
    ]


def tau(first: pl.Series, second: pl.Series) -> str:
    """Return Kendall's tau-b of two columns as text."""
    value = float(kendalltau(first, second).statistic) if len(first) > 1 else np.nan
    return "not defined" if np.isnan(value) else f"{value:.3f}"


def citations(pools: Mapping[str, Pool], relevant: int) -> pl.DataFrame:
    """Return the overlap of citations and grades, a row for each facet and for all.

    ``cited_relevant`` is the share of cited candidates whose grade is ``relevant`` or more; ``relevant_cited`` is
    the share of relevant candidates that are cited; grades are means.
    """
    judged = pl.concat(
        pl.DataFrame({"facet": facet, "is_cited": cited_of(pool), "grade": pool.qrels.column("grade").to_numpy()})
        for facet, pool in pools.items()
    )
    cited, is_relevant, grade = pl.col("is_cited"), pl.col("grade") >= relevant, pl.col("grade")
    with_all = pl.concat([judged, judged.with_columns(facet=pl.lit(ALL))])
    return with_all.group_by("facet", maintain_order=True).agg(
        judged=pl.len(),
        relevant=is_relevant.sum(),
        cited=cited.sum(),
        cited_relevant=is_relevant.filter(cited).mean(),
        relevant_cited=cited.filter(is_relevant).mean(),
        grade_cited=grade.filter(cited).mean(),
        grade_not_cited=grade.filter(~cited).mean(),
    )


def cited_of(pool: Pool) -> npt.NDArray[np.bool_]:
    """Return which judgements of a pool are of papers that the query cites, bool ``[judgements]``."""
    cited = kit.pack(*pool.corpus.outgoing.of_many(pool.corpus.rows_of(query_papers(pool))))
    return np.isin(kit.pack(*(pool.qrels.column(name).to_numpy() for name in ("query", "row"))), cited)


def by_citation(pool: Pool, ranking: kit.Ranking, measure: str) -> Floats:
    """Return a measure with citations as judgements, float64 ``[queries with a cited candidate]``."""
    queries = len(pool.query_rows)
    cited = judgements_of(pool).filter(cited_of(pool)).with_columns(grade=pl.lit(1, pl.Int16))
    run = kit.RankedRun(kit.offsets_of(ranking.query, queries), ranking.row)
    (values,) = kit.evaluate_all(kit.Qrels.from_table(cited.to_arrow(), queries), run, kit.parse_measures(measure))
    return np.asarray(values[~np.isnan(values)])


def _facet_pairs(frames: Mapping[str, pl.DataFrame], on: list[str]) -> Iterator[pl.DataFrame]:
    """Yield the joined rows of each two facets on ``on``; columns of the second facet end in ``_second``."""
    for first, second in itertools.combinations(frames, 2):
        joined = frames[first].join(frames[second], on=on, suffix="_second", maintain_order="left")
        yield joined.select(pl.lit(first).alias("first"), pl.lit(second).alias("second"), pl.all())


def collection_table(pools: Mapping[str, Pool]) -> kit.Table:
    """Return the queries, judged candidates and candidates of each grade, by facet (Mysore et al. 2021, table 1)."""
    judged = pl.concat(
        judgements_of(pool).select(pl.col("query").cast(pl.String), "grade", facet=pl.lit(facet))
        for facet, pool in pools.items()
    )
    judged = pl.concat([judged, judged.with_columns(query=pl.format("{} {}", "facet", "query"), facet=pl.lit(ALL))])
    grades = [(pl.col("grade") == grade).sum().alias(f"grade {grade}") for grade in sorted(set(judged["grade"]))]
    counts = judged.group_by("facet", maintain_order=True).agg(
        pl.col("query").n_unique().alias("queries"), pl.len().alias("judged"), *grades
    )
    return kit.table("collection", "Judgements by facet", counts, "{facet}", _decimals(counts, 1))


def grade_table(pools: Mapping[str, Pool]) -> kit.Table:
    """Return the number of candidates by their grades for two facets of one paper."""
    judged = {facet: judgements_of(pool).select("row", "grade", "paper") for facet, pool in pools.items()}
    pairs = pl.concat([*_facet_pairs(judged, ["paper", "row"]), pl.DataFrame()], how="diagonal")
    keys = ["first", "second", "first_grade", "second_grade"]
    grades = pairs.rename({"grade": "first_grade", "grade_second": "second_grade"}, strict=False)
    frame = grades.group_by(keys).agg(count=pl.len()).sort(keys) if len(grades) else pl.DataFrame()
    notes = ["Candidates that are judged for both facets of one query paper."]
    label, title = "grade: {first_grade} of {first}, {second} of columns", "Grades for two facets of one paper"
    return kit.table("facet_grades", title, frame, label, "{count}", notes, across="{second_grade}")


def paired(values: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Return a measure on papers queried by two facets: one row per system, pair of facets and paper.

    Columns: ``first``, ``second`` (facets), ``system``, ``form``, ``paper``, ``value``, ``value_second``.
    """
    with_paper = values.filter(measure=measure).with_columns(paper=pl.col("query").str.extract("(.*)_"))
    by_facet = with_paper.select("facet", "system", "form", "paper", "value").partition_by(
        "facet", maintain_order=True, as_dict=True, include_key=False
    )
    pairs = [*_facet_pairs({str(facet): frame for (facet,), frame in by_facet.items()}, ["system", "form", "paper"])]
    return pl.concat(pairs) if pairs else pl.DataFrame()


def paired_table(pairs: pl.DataFrame, measure: str, seed: int) -> kit.Table:
    """Return the differences of each system between two facets of the same papers; ``pairs`` come from :func:`paired`.

    Both facets have the same candidates but different judgements, so a difference is due to facet and judgements.
    """
    frame = _differences(pairs, seed) if len(pairs) else pl.DataFrame()

    def show(row: kit.Row) -> str:
        means = f"{100 * row['mean_first']:.1f} − {100 * row['mean_second']:.1f}"
        return f"{means} = {kit.points()(row)}, p {row['p_adjusted']:.3f}"

    notes = [
        f"{kit.label_of(measure)} of papers queried by both facets (their number), difference [95% interval], p of the "
        "paired permutation test with Holm's correction over systems."
    ]
    label, across = "system, query: {system}, {form}", "{first} − {second} ({papers})"
    return kit.table("facet_pairs", "Two facets of the same papers", frame, label, show, notes, across=across)


def _differences(pairs: pl.DataFrame, seed: int) -> pl.DataFrame:
    keys = ["first", "second", "system", "form", "paper"]
    values = pairs.rename({"value": "one", "value_second": "other"}).unpivot(index=keys, variable_name="of")
    values = values.with_columns(group=pl.format("{} {}", "first", "second"))
    design = kit.Design(row=("system", "form", "of"), of=("first", "second"), item="paper", group="group")
    systems = pairs.select("system", "form").unique().rows()
    tested = kit.estimate(values, design, seed, {(*key, "one"): (*key, "other") for key in systems})
    second_means = tested.filter(of="other").select(*keys[:4], mean_second="value")
    figures = {"papers": "items", "mean_first": "value", "low": "difference_low", "high": "difference_high"}
    frame = tested.filter(of="one").join(second_means, on=keys[:4], maintain_order="left")
    return frame.select(*keys[:4], "mean_second", "difference", "p", "p_adjusted", **figures)


def paired_figure(pairs: pl.DataFrame, measure: str) -> Any:
    """Return what draws the best system on two facets of each paper: one panel per pair, one line per paper."""
    means = pairs.group_by("system", "form", maintain_order=True).agg(
        (pl.col("value") + pl.col("value_second")).mean() * kit.sign_of(measure)
    )
    system, form, _ = means.sort("value", descending=True, maintain_order=True).row(0)
    panels = pairs.filter(system=system, form=form).partition_by("first", "second", maintain_order=True)

    def draw(figure_class: Any) -> Any:
        figure = figure_class(figsize=(2.2 * len(panels) + 0.6, 2.4), layout="constrained")
        for axes, papers in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            axes.plot([0, 1], papers.select("value", "value_second").to_numpy().T, "o-", color="C0", alpha=0.6, ms=3)
            axes.set_xticks([0, 1], papers.select("first", "second").row(0))
            axes.set_xlim(-0.3, 1.3)
        figure.axes[0].set_ylabel(kit.label_of(measure))
        figure.suptitle(f"{system}, {form}", fontsize="medium")
        return figure

    return draw
