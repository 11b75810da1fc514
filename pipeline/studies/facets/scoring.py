"""Figures of facets: values of every query, means over folds or queries with intervals, differences with tests.

A mean over folds is the mean of the folds' means, as the authors report it. Bootstrap and permutation test treat the
queries of one paper as one unit. Agreement and sizes: Mysore et al. 2021, tables 1 and 2, figure 2.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import spearmanr

from pipeline.studies import kit
from pipeline.studies.facets.pools import facet_of, facet_query_ids, judgements_of
from pipeline.studies.kit import Pool, counted, csfcube, label_of

ALL = "all"
"""All facets together."""

RANDOM = ("random ranking", "expected")
"""System and form of the rows of random rankings."""

FOLDS, QUERIES = "folds", "queries"
"""Kinds of averages."""

_MEANS = {FOLDS: "folds of the means of their queries", QUERIES: "queries"}
_ALPHA = 0.05
_ANNOTATOR = re.compile(r"relevance_ann\w+")
_AGREEMENT = dict.fromkeys(("spearman", "krippendorff", "kappa", "equal"), pl.Float64)


def values_of(scores: kit.Artifact, pool: Pool, form: str) -> pl.DataFrame:
    """Return one value a row: ``system``, ``form``, ``facet``, ``query`` (``PAPER_FACET``), ``measure``, ``value``."""
    frame = pl.DataFrame(pl.from_arrow(scores.arrow("scores.arrow")))
    query = pl.Series(facet_query_ids(pool), dtype=pl.String).gather(frame["query"])
    of_pool = {"form": pl.lit(form), "facet": pl.lit(facet_of(pool)), "query": query}
    return frame.select("system", **of_pool, measure="measure", value="value")


def chance_of(pool: Pool, measures: Sequence[str], seed: int) -> pl.DataFrame:
    """Return the expected values of a random ranking of the judged candidates, in the columns of :func:`values_of`."""
    qrels, parsed = kit.Qrels.from_table(pool.qrels, pool), kit.parse_measures(measures)
    candidates = np.bincount(pool.qrels.column("query").to_numpy(), minlength=len(pool.query_rows))
    expected = dict(zip(map(str, parsed), kit.by_chance(qrels, candidates, parsed, seed), strict=True))
    wide = pl.DataFrame({"query": facet_query_ids(pool), **expected})
    of_pool = {"system": pl.lit(RANDOM[0]), "form": pl.lit(RANDOM[1]), "facet": pl.lit(facet_of(pool))}
    return wide.unpivot(index="query", variable_name="measure").select(
        **of_pool, query="query", measure="measure", value="value"
    )


def summaries(values: pl.DataFrame, folds: Mapping[str, Sequence[str]], seed: int) -> pl.DataFrame:
    """Return means with 95% intervals: of each facet and of all, over folds (if there are any) and over queries.

    All systems have the same queries (:func:`values_of`), and share the resamples of a mean.
    """
    figures = kit.estimate(_by_facet(values, folds), _BY_FACET, seed)
    figures = figures.rename({"items": "queries", "units": "drawn", "value": "mean"})
    return figures.select(
        "system", "form", "measure", "facet", "average", "queries", "drawn", "interval", "mean", "low", "high"
    )


_BY_FACET = kit.Design(row=("system", "form"), of=("facet", "average"), group="group", unit="paper")


def _by_facet(values: pl.DataFrame, folds: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the values of each facet and of all, over queries and over folds, with ``group`` and ``paper``."""
    facets = sorted(values["facet"].unique())
    placed = []
    for facet in (*facets, ALL):
        queries = values.filter(pl.lit(facet == ALL) | (pl.col("facet") == facet))["query"].unique().sort().to_list()
        parts_of = {QUERIES: [queries], FOLDS: [sorted({*queries} & {*folds[name]}) for name in sorted(folds)]}
        placed += [
            (query, facet, average, f"{facet} {average} {position}")
            for average, parts in parts_of.items()
            if all(parts)
            for position, members in enumerate(parts)
            for query in members
        ]
    places = pl.DataFrame(placed, ["query", "facet", "average", "group"], orient="row")
    joined = places.join(values.drop("facet"), on="query", maintain_order="left_right")
    return joined.with_columns(paper=pl.col("query").str.extract("(.*)_"))


def differences(values: pl.DataFrame, measure: str, baseline: str, seed: int) -> pl.DataFrame:
    """Return the differences of a measure from the baseline, over the queries of each facet and of all.

    Holm's correction is over the comparisons on one facet.
    """
    of_measure = values.filter(measure=measure)
    base = next(key for key in of_measure.select("system", "form").iter_rows() if key[0] == baseline)
    tests = kit.estimate(_by_facet(of_measure, {}), _BY_FACET, seed, base).filter(pl.col("p").is_not_null())
    facts = {"low": "difference_low", "high": "difference_high", "queries": "items"}
    columns = ("difference", "effect", "p", "p_adjusted", "error", "detectable", "wins", "losses")
    than = {"than": pl.lit(base[0]), "than_form": pl.lit(base[1])}
    return tests.select("facet", "system", "form", **than, **facts, **{name: name for name in columns})


def shown_average(figures: pl.DataFrame) -> str:
    """Return the kind of average that tables show: over folds, if there are any."""
    return FOLDS if FOLDS in figures["average"] else QUERIES


def score_table(figures: pl.DataFrame, shown: Sequence[str], pools: Mapping[str, Pool]) -> kit.Table:
    """Return the table of scores by facet; the CSV file has all measures and both averages."""
    averaged = figures.filter(average=shown_average(figures))
    signs = {name: kit.sign_of(name) for name in averaged["measure"].unique(maintain_order=True)}
    goodness = pl.col("mean") * pl.col("measure").replace_strict(signs)
    labels = pl.col("measure").replace_strict({name: label_of(name) for name in signs})
    best = goodness > goodness.max().over("facet", "measure") - 1e-12
    rows = averaged.with_columns(best=best, label=labels, value="mean")
    explanation = (
        f"Percent: mean over {_MEANS[averaged['average'][0]]} [95% interval, by papers where a paper has several "
        "queries]. Bold: best. Random ranking: its expected values."
    )
    read = next(iter(pools.values())).corpus.artifact.manifest.counts
    numbers = {"judgements_of_unknown_papers": read["judgements_of_nothing"], **read["noted"], **read["dropped"]}
    left_out = "; ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in numbers.items() if count)
    notes = [explanation, *([f"Counted in the files: {left_out}."] if left_out else [])]
    for facet, pool in pools.items():
        counts = pool.artifact.manifest.counts
        notes.append(
            f"{facet}: {counted(counts['queries'], 'query')}, {counted(counts['judgements'], 'judgement')}, "
            f"{counts['relevant']} relevant; {counted(counts['queries_without_relevant'], 'query')} without a relevant "
            f"candidate left out, {counted(counts['candidates_without_text'], 'candidate')} without text."
        )
    label, order = "system, query: {system}, {form}", pl.col("facet").cast(pl.Enum([*pools, ALL]))
    measure = pl.col("measure").cast(pl.Enum(shown))
    by_facet = rows.filter(pl.col("measure").is_in(shown)).sort(order, measure, maintain_order=True)
    layout = {"rows": by_facet, "across": "{label}", "group": "{facet}"}
    return kit.table("scores", "Systems by facet", figures, label, kit.figure(), notes, **layout)


def published_table(figures: pl.DataFrame, collection: str) -> kit.Table:
    """Return the means over folds beside the published ones; empty where none is published."""
    folds = figures.filter(average=FOLDS).rename({"mean": "value"})
    compared = kit.with_published(folds, pl.format("{}.{}", pl.lit(collection), "facet")).drop_nulls("published")
    frame = compared.select("system", "facet", "measure", pl.col("value", "published", "difference") * 100)
    note = "Percent: mean of the folds; published by the authors' evaluation of the same ranking."
    shown = {name: f"{{{name}}}" for name in ("facet", "measure")}
    shown |= {name: f"{{{name}:.2f}}" for name in ("value", "published", "difference")}
    return kit.table("published", "Beside the published figures", frame, "{system}", shown, [note])


def difference_table(frame: pl.DataFrame, measure: str) -> kit.Table:
    """Return :func:`differences` as a table."""
    shown: dict[str, kit.Show] = {
        "facet": "{facet}",
        "difference": lambda row: f"{kit.points()(row)}{'†' * (row['p_adjusted'] < _ALPHA)}",
        "p, Holm": "{p_adjusted:.4f}",
        "wins : losses": "{wins} : {losses}",
        "detectable": kit.figure("detectable", None, None),
    }
    notes = (
        f"Points of {label_of(measure)}, mean over queries [95% interval].",
        f"† paired permutation test, signs flipped paper by paper, p < {_ALPHA}; Holm's correction over the systems.",
        f"detectable: smallest true difference they reveal with power {kit.POWER:g} at the corrected level.",
    )
    label = "system, query, than: {system}, {form} − {than}, {than_form}"
    return kit.table("differences", "Differences between systems", frame, label, shown, notes)


def agreement_table(annotations: Mapping[str, csfcube.Annotations]) -> kit.Table:
    """Return the table of :func:`agreement`."""
    frame = agreement(annotations)
    notes = [
        "Medians over queries (Mysore et al. 2021, table 2). annotators: of each two of them; adjudicated: of the "
        "adjudicated grades with each. rho: Spearman; alpha: Krippendorff, ordinal; kappa: Cohen; equal: share of "
        "equal grades.",
    ]
    return kit.table("agreement", "Agreement of annotators", frame, "{facet}", _decimals(frame, 3), notes)


def _decimals(frame: pl.DataFrame, digits: int) -> dict[str, kit.Show]:
    """Return how columns but the first are written, floats with some decimals."""
    specs = {name: f":.{digits}f" if kind == pl.Float64 else "" for name, kind in frame.schema.items()}
    return {name: f"{{{name}{spec}}}" for name, spec in itertools.islice(specs.items(), 1, None)}


def agreement(annotations: Mapping[str, csfcube.Annotations]) -> pl.DataFrame:
    """Return the medians over queries of four measures of agreement, two rows for each facet and for all.

    ``stage`` is ``annotators`` (each two of them) or ``adjudicated`` (these grades with each annotator's). Candidates
    with only one of two grades are left out, and so are queries whose grades are all equal, of which a measure is null.
    """
    rows = []
    for (facet, queries_of_facet), stage in itertools.product(annotations.items(), ("annotators", "adjudicated")):
        for query, lists in queries_of_facet.items():
            names = sorted(filter(_ANNOTATOR.fullmatch, lists))
            adjudicated = np.array(lists.get("relevance_adju", ()))
            grade_pairs = list[tuple[Any, Any]](itertools.combinations(map(lists.get, names), 2))
            if stage == "adjudicated":
                grade_pairs = [(lists[name], adjudicated) for name in names if len(adjudicated)]
            rows += [(facet, stage, query, *measure_agreement(np.array(pair))) for pair in grade_pairs]
    if not rows:
        return pl.DataFrame()
    columns = ["facet", "stage", "query", "candidates", *_AGREEMENT]
    pair_frame = pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)
    queries = pair_frame.group_by("facet", "stage", "query", maintain_order=True).agg(
        pl.col("candidates").max(), pl.col(*_AGREEMENT).cast(pl.Float64).mean()
    )
    with_all = pl.concat([queries, queries.with_columns(facet=pl.lit(ALL))])
    return with_all.group_by("facet", "stage", maintain_order=True).agg(
        pl.len().alias("queries"), pl.col("candidates").sum(), pl.col(*_AGREEMENT).median()
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
    judged = [
        judgements_of(pool).select("row", "paper", facet=pl.lit(facet), place=pl.lit(place), grade="grade")
        for place, (facet, pool) in enumerate(pools.items())
    ]
    first = pl.concat(judged)
    both = first.join(first, on=["row", "paper"], suffix="_second").filter(pl.col("place") < pl.col("place_second"))
    columns = {"first": "facet", "second": "facet_second", "first_grade": "grade", "second_grade": "grade_second"}
    frame = both.group_by(**{name: pl.col(column) for name, column in columns.items()}).agg(count=pl.len())
    frame = frame.sort(*columns)
    notes = ["Candidates that are judged for both facets of one query paper."]
    label, title = "grade: {first_grade} of {first}, {second} of columns", "Grades for two facets of one paper"
    return kit.table("facet_grades", title, frame, label, "{count}", notes, across="{second_grade}")
