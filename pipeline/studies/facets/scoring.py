"""Figures of facets: values of every query, means over folds or queries with intervals, differences with tests.

A mean over folds is the mean of the folds' means, as the authors report it; the other mean is over all queries at once.
Bootstrap and permutation test treat the queries of one paper as one unit. Every table has the expected values of a
random ranking. Agreement of annotators, sizes and pairs of facets: Mysore et al. 2021, tables 1 and 2, figures 2 and 3.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import spearmanr

from pipeline.studies import kit
from pipeline.studies.facets.pools import FACET, WHOLE, facet_of, facet_query_ids, judgements_of
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
    """Return the differences of a measure between systems, over the queries of each facet and of all.

    Every system is compared with the baseline. A system with queries of both forms is also compared with itself: facet
    against whole paper. Holm's correction is over the comparisons of one kind on one facet.
    """
    of_measure = values.filter(measure=measure)
    keys = of_measure.select("system", "form").unique(maintain_order=True).rows()
    base = next(key for key in keys if key[0] == baseline)
    pairs = {key: base for key in keys if key != base}
    forms = {(name, FACET): (name, WHOLE) for name, form in keys if form == FACET and (name, WHOLE) in keys}
    forms = {key: than for key, than in forms.items() if pairs.get(key) != than}
    frames = []
    for bases in filter(None, (pairs, forms)):
        tests = kit.estimate(_by_facet(of_measure, {}), _BY_FACET, seed, bases).filter(pl.col("p").is_not_null())
        than, than_form = zip(*(bases[key] for key in tests.select("system", "form").iter_rows()), strict=True)
        facts = {"low": "difference_low", "high": "difference_high", "queries": "items"}
        columns = ("difference", "effect", "p", "p_adjusted", "error", "detectable", "wins", "losses")
        keys = tests.select("facet", "system", "form", than=pl.Series(than), than_form=pl.Series(than_form))
        frames.append(keys.hstack(tests.select(**facts, **{name: name for name in columns})))
    return pl.concat(frames) if frames else pl.DataFrame()


def shown_average(figures: pl.DataFrame) -> str:
    """Return the kind of average that tables show: over folds, if there are any."""
    return FOLDS if FOLDS in figures["average"] else QUERIES


def score_tables(figures: pl.DataFrame, shown: Sequence[str], pools: Mapping[str, Pool]) -> list[kit.Table]:
    """Return the table of scores by facet, and that of all measures over all facets."""
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
    index = ["system", "form", "facet", "average", "queries", "drawn"]
    wide = figures.pivot("measure", index=index, values="mean", maintain_order=True)
    layout = {"across": "{label}", "group": "{facet}"}
    label, order = "system, query: {system}, {form}", pl.col("facet").cast(pl.Enum([*pools, ALL]))
    measure = pl.col("measure").cast(pl.Enum(shown))
    by_facet = rows.filter(pl.col("measure").is_in(shown)).sort(order, measure, maintain_order=True)
    over_all, title = rows.filter(facet=ALL), "Systems by facet"
    return [
        kit.table("scores", title, figures, label, kit.figure(), notes, rows=by_facet, **layout),
        kit.table("measures", "All measures", wide, label, kit.figure(), [explanation], rows=over_all, **layout),
    ]


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
        f"† paired permutation test, signs flipped paper by paper, p < {_ALPHA}; Holm's correction over the systems "
        "compared with the baseline on one facet, and over those compared with themselves.",
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
