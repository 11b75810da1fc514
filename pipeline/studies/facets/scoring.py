"""Figures of facets: values of every query, means over folds or queries with intervals, differences with tests.

A mean over folds is the mean of the folds' means, as the authors report it; the other mean is over all queries at once.
Bootstrap and permutation test treat the queries of one paper as one unit. Every table has the expected values of a
random ranking.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.config import counted
from pipeline.corpus.pool import Pool
from pipeline.measure.design import Design, estimate
from pipeline.measure.engines import above_chance, by_chance
from pipeline.measure.estimates import POWER
from pipeline.measure.inputs import Qrels
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.scores.plot import COLOURS
from pipeline.scores.published import with_published
from pipeline.scores.tables import Cell, Column, Table, TableRow, frame_table, label_of, percent
from pipeline.studies.base import StudyFigure
from pipeline.studies.common import in_points
from pipeline.studies.facets.pools import FACET, WHOLE, facet_of, facet_query_ids

ALL = "all"
"""All facets together."""

RANDOM = ("random ranking", "expected")
"""System and form of the rows of random rankings."""

FOLDS, QUERIES = "folds", "queries"
"""Kinds of averages."""

_MEANS = {FOLDS: "folds of the means of their queries", QUERIES: "queries"}
_ALPHA = 0.05


def values_of(scores: Artifact, pool: Pool, form: str) -> pl.DataFrame:
    """Return one value a row: ``system``, ``form``, ``facet``, ``query`` (``PAPER_FACET``), ``measure``, ``value``."""
    frame = pl.DataFrame(pl.from_arrow(scores.arrow("scores.arrow")))
    query = pl.Series(facet_query_ids(pool), dtype=pl.String).gather(frame["query"])
    of_pool = {"form": pl.lit(form), "facet": pl.lit(facet_of(pool)), "query": query}
    return frame.select("system", **of_pool, measure="measure", value="value")


def chance_of(pool: Pool, measures: Sequence[str], seed: int) -> pl.DataFrame:
    """Return the expected values of a random ranking of the judged candidates, in the columns of :func:`values_of`."""
    qrels, parsed = Qrels.from_table(pool.qrels, pool), parse_measures(measures)
    candidates = np.bincount(pool.qrels.column("query").to_numpy(), minlength=len(pool.query_rows))
    expected = dict(zip(map(str, parsed), by_chance(qrels, candidates, parsed, seed), strict=True))
    wide = pl.DataFrame({"query": facet_query_ids(pool), **expected})
    of_pool = {"system": pl.lit(RANDOM[0]), "form": pl.lit(RANDOM[1]), "facet": pl.lit(facet_of(pool))}
    return wide.unpivot(index="query", variable_name="measure").select(
        **of_pool, query="query", measure="measure", value="value"
    )


def standardised(values: pl.DataFrame, chance: pl.DataFrame) -> pl.DataFrame:
    """Return values standardised, query by query, by those of random rankings (:func:`chance_of`)."""
    expected = chance.select("query", "measure", expected="value")
    joined = values.join(expected, on=["query", "measure"], how="left", maintain_order="left")
    return joined.with_columns(value=above_chance(joined["value"], joined["expected"])).drop("expected")


def summaries(values: pl.DataFrame, folds: Mapping[str, Sequence[str]], seed: int) -> pl.DataFrame:
    """Return means with 95% intervals: of each facet and of all, over folds (if there are any) and over queries.

    All systems have the same queries (:func:`values_of`), and share the resamples of a mean.
    """
    figures = estimate(_by_facet(values, folds), _BY_FACET, seed)
    figures = figures.rename({"items": "queries", "units": "drawn", "value": "mean"})
    return figures.select(
        "system", "form", "measure", "facet", "average", "queries", "drawn", "interval", "mean", "low", "high"
    )


_BY_FACET = Design(row=("system", "form"), of=("facet", "average"), group="group", unit="paper")


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

    Every system is compared with the baseline (empty: the first). A system with queries of both forms is also compared
    with itself: facet against whole paper. Holm's correction is over the comparisons of one kind on one facet.
    """
    of_measure = values.filter(measure=measure)
    keys = of_measure.select("system", "form").unique(maintain_order=True).rows()
    base = next(key for key in keys if baseline in ("", key[0]))
    pairs = {key: base for key in keys if key != base}
    forms = {(name, FACET): (name, WHOLE) for name, form in keys if form == FACET and (name, WHOLE) in keys}
    forms = {key: than for key, than in forms.items() if pairs.get(key) != than}
    frames = []
    for bases in filter(None, (pairs, forms)):
        tests = estimate(_by_facet(of_measure, {}), _BY_FACET, seed, bases).filter(pl.col("p").is_not_null())
        than, than_form = zip(*(bases[key] for key in tests.select("system", "form").iter_rows()), strict=True)
        facts = {"low": "difference_low", "high": "difference_high", "queries": "items"}
        columns = ("difference", "effect", "p", "p_adjusted", "error", "detectable", "wins", "losses")
        keys = tests.select("facet", "system", "form", than=pl.Series(than), than_form=pl.Series(than_form))
        frames.append(keys.hstack(tests.select(**facts, **{name: name for name in columns})))
    return pl.concat(frames) if frames else pl.DataFrame()


def shown_average(figures: pl.DataFrame) -> str:
    """Return the kind of average that tables show: over folds, if there are any."""
    return FOLDS if FOLDS in figures["average"] else QUERIES


def best_line(figures: pl.DataFrame, measure: str) -> str:
    """Return a line for the index of reports: the best system by a measure over all facets, and its mean in percent."""
    rows = figures.filter(pl.col("system") != RANDOM[0], facet=ALL, measure=measure, average=shown_average(figures))
    best = rows.sort("mean", descending=sign_of(measure) > 0, maintain_order=True).row(0, named=True)
    return f"{best['system']}, {best['form']}: {label_of(measure)} {percent(best['mean'])} (all facets)"


def score_tables(figures: pl.DataFrame, shown: Sequence[str], pools: Mapping[str, Pool]) -> Iterator[Table]:
    """Yield the table of scores by facet, and that of all measures over all facets."""
    averaged = figures.filter(average=shown_average(figures))
    measures = averaged["measure"].unique(maintain_order=True).to_list()
    goodness = pl.col("mean") * pl.col("measure").replace_strict({name: sign_of(name) for name in measures})
    averaged = averaged.with_columns(best=goodness > goodness.max().over("facet", "measure") - 1e-12)
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
    yield replace(_table("Systems by facet", averaged, [*pools, ALL], shown, notes), name="scores", frame=figures)
    yield replace(_table("All measures", averaged, [ALL], measures, [explanation]), name="measures", frame=wide)


def published_tables(figures: pl.DataFrame, collection: str) -> Iterator[Table]:
    """Yield the means over folds beside the published ones; nothing where none is published."""
    folds = figures.filter(average=FOLDS).rename({"mean": "value"})
    compared = with_published(folds, pl.format("{}.{}", pl.lit(collection), "facet")).drop_nulls("published")
    columns = pl.col("value", "published", "difference") * 100
    if len(compared):
        note = "Percent: mean of the folds; published by the authors' evaluation of the same ranking."
        frame = compared.select("system", "facet", "measure", columns)
        yield frame_table("published", "Beside the published figures", frame, [note], 2)


def _table(
    title: str, figures: pl.DataFrame, facets: Sequence[str], measures: Sequence[str], notes: Sequence[str]
) -> Table:
    columns = {(facet, name): Column(facet, label_of(name)) for facet, name in itertools.product(facets, measures)}
    lines = []
    for rows in figures.partition_by("system", "form", maintain_order=True):
        cells = {
            (row["facet"], row["measure"]): Cell(row["mean"], row["low"], row["high"], best=row["best"])
            for row in rows.iter_rows(named=True)
        }
        lines.append(TableRow(rows["system"][0], (rows["form"][0], *(cells[column] for column in columns))))
    return Table(title, "system", (Column("", "query"), *columns.values()), tuple(lines), tuple(notes))


def difference_tables(values: pl.DataFrame, measure: str, baseline: str, seed: int) -> Iterator[Table]:
    """Yield the table of differences from the baseline, and of facet from whole paper; nothing without comparisons."""
    frame = differences(values, measure, baseline, seed)
    if frame.is_empty():
        return
    lines = []
    for key, rows in frame.group_by("system", "form", "than", "than_form", maintain_order=True):
        system, form, than, than_form = key
        marks = ("†" * (p_value < _ALPHA) for p_value in rows["p_adjusted"])
        cells = [f"{change}{mark}" for change, mark in zip(rows.select(in_points()).to_series(), marks, strict=True)]
        overall = rows.row(-1, named=True)
        shown = "–" if overall["detectable"] is None else f"{100 * overall['detectable']:.1f}"
        last_cells = (f"{overall['p_adjusted']:.4f}", f"{overall['wins']} : {overall['losses']}", shown)
        lines.append(TableRow(f"{system}, {form}", (f"{than}, {than_form}", *cells, *last_cells)))
    names = ("than", *frame["facet"].unique(maintain_order=True), f"p, Holm ({ALL})", f"wins : losses ({ALL})",
             f"detectable ({ALL})")  # fmt: skip
    notes = (
        f"Points of {label_of(measure)}, mean over queries [95% interval].",
        f"† paired permutation test, signs flipped paper by paper, p < {_ALPHA}; Holm's correction over the systems "
        "compared with the baseline on one facet, and over those compared with themselves.",
        f"detectable: smallest true difference they reveal with power {POWER:g} at the corrected level.",
    )
    columns = tuple(Column("", name) for name in names)
    title = "Differences between systems"
    yield Table(title, "system, query", columns, tuple(lines), notes, "differences", frame)


def query_figure(values: pl.DataFrame, measure: str) -> StudyFigure:
    """Return the figure of every query's value: one panel per facet, one line of dots per system, the mean as a bar."""
    of_measure = values.filter(measure=measure).sort("query", maintain_order=True)
    systems = values.select("system", "form").unique(maintain_order=True).rows()
    facets = values["facet"].unique(maintain_order=True).to_list()

    def draw(figure_class: Any) -> Any:
        figure = figure_class(figsize=(2.4 * len(facets) + 1, 0.28 * len(systems) + 0.9), layout="constrained")
        panels = figure.subplots(1, len(facets), sharey=True, sharex=True, squeeze=False)[0]
        for panel, facet, colour in zip(panels, facets, COLOURS, strict=False):
            for line, (system, form) in enumerate(systems):
                dots = of_measure.filter(system=system, form=form, facet=facet)["value"].to_numpy()
                panel.plot(dots, np.full(len(dots), line), "o", color=colour, alpha=0.5, ms=3, mew=0)
                panel.plot([dots.mean()], [line], "|", color="black", ms=10)
            panel.set_title(facet)
            panel.set_xlabel(label_of(measure))
        panels[0].set_yticks(range(len(systems)), [f"{name}, {form}" for name, form in systems])
        panels[0].invert_yaxis()
        return figure

    return StudyFigure("queries", draw)
