"""Figures of facets: values of every query, means over folds or queries with intervals, differences with tests.

A mean over folds is the mean of the folds' means, as the authors report it; the other mean is over all queries at once.
Bootstrap and permutation test treat the queries of one paper as one unit. Every table has the expected values of a
random ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.facets.pools import FACET, WHOLE, facet_of, facet_query_ids
from pipeline.studies.kit import Pool, counted, label_of

ALL = "all"
"""All facets together."""

RANDOM = ("random ranking", "expected")
"""System and form of the rows of random rankings."""

FOLDS, QUERIES = "folds", "queries"
"""Kinds of averages."""

_MEANS = {FOLDS: "folds of the means of their queries", QUERIES: "queries"}
_ALPHA = 0.05


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


def query_figure(values: pl.DataFrame, measure: str) -> Any:
    """Return what draws every query's value: a panel per facet, a line of dots per system, the mean as a bar."""
    of_measure = values.filter(measure=measure).sort("query", maintain_order=True)
    systems = values.select("system", "form").unique(maintain_order=True).rows()
    facets = values["facet"].unique(maintain_order=True).to_list()

    def draw(figure_class: Any) -> Any:
        figure = figure_class(figsize=(2.4 * len(facets) + 1, 0.28 * len(systems) + 0.9), layout="constrained")
        panels = figure.subplots(1, len(facets), sharey=True, sharex=True, squeeze=False)[0]
        for panel, facet, colour in zip(panels, facets, kit.COLOURS, strict=False):
            for line, (system, form) in enumerate(systems):
                dots = of_measure.filter(system=system, form=form, facet=facet)["value"].to_numpy()
                panel.plot(dots, np.full(len(dots), line), "o", color=colour, alpha=0.5, ms=3, mew=0)
                panel.plot([dots.mean()], [line], "|", color="black", ms=10)
            panel.set(title=facet, xlabel=label_of(measure))
        panels[0].set_yticks(range(len(systems)), [f"{name}, {form}" for name, form in systems])
        panels[0].invert_yaxis()
        return figure

    return draw
