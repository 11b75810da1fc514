"""Papers that are queried by two facets: grades of their candidates, and figures (Mysore et al. 2021, figures 2, 3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from pipeline.corpus.pool import Pool
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import holm, paired_differences
from pipeline.scores.tables import Value, frame_table, grid, label_of, percent
from pipeline.studies.base import StudyFigure, StudyTable
from pipeline.studies.facets.pools import facet_query_ids
from pipeline.studies.tables import points


def grade_tables(pools: Mapping[str, Pool]) -> Iterator[StudyTable]:
    """Yield how many candidates have each two grades for two facets of one paper; nothing without such a paper."""
    frame = grades(pools)
    if not frame.is_empty():
        wide = frame.sort("second_grade").pivot(
            "second_grade", index=["first", "second", "first_grade"], values="count"
        )
        shown = wide.sort("first", "second", "first_grade").select(
            pl.format("{} of {}, {} of columns", "first_grade", "first", "second").alias("grade"),
            pl.col(wide.columns[3:]).fill_null(0),
        )
        notes = ["Candidates that are judged for both facets of one query paper."]
        yield StudyTable("facet_grades", frame_table("Grades for two facets of one paper", shown, notes), frame)


def grades(pools: Mapping[str, Pool]) -> pl.DataFrame:
    """Return ``first``, ``second`` (facets), ``first_grade``, ``second_grade``, and ``count``, of candidates."""
    judged = {facet: _judged(pool) for facet, pool in pools.items()}
    parts = [
        judged[first]
        .join(judged[second], on=["paper", "row"], suffix="_second")
        .group_by(first_grade="grade", second_grade="grade_second")
        .agg(count=pl.len())
        .select(pl.lit(first).alias("first"), pl.lit(second).alias("second"), "first_grade", "second_grade", "count")
        for first, second in itertools.combinations(judged, 2)
    ]
    return pl.concat(parts) if parts else pl.DataFrame()


def _judged(pool: Pool) -> pl.DataFrame:
    papers = pl.Series([query.rpartition("_")[0] for query in facet_query_ids(pool)], dtype=pl.String)
    judged = pl.DataFrame(pl.from_arrow(pool.qrels))
    return judged.select("row", "grade", paper=papers.gather(judged["query"]))


def paired(values: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Return a measure of each system on the papers queried by two facets: a row a system, pair of facets and paper.

    Columns: ``system``, ``form``, ``first``, ``second``, ``paper``, ``value_first``, ``value_second``.
    """
    of_measure = values.filter(measure=measure).with_columns(paper=pl.col("query").str.extract("(.*)_"))
    facets = of_measure["facet"].unique(maintain_order=True).to_list()
    of_facet = {facet: of_measure.filter(facet=facet) for facet in facets}
    keys = ["system", "form", "paper"]
    parts = [
        of_facet[first]
        .join(of_facet[second], on=keys, suffix="_second", maintain_order="left")
        .select("system", "form", first=pl.lit(first), second=pl.lit(second), paper="paper",
                value_first="value", value_second="value_second")
        for first, second in itertools.combinations(facets, 2)
    ]  # fmt: skip
    return pl.concat(parts) if parts else pl.DataFrame()


def paired_tables(pairs: pl.DataFrame, measure: str, seed: int) -> Iterator[StudyTable]:
    """Yield how each system's figures differ between two facets of the same papers; ``pairs`` are of :func:`paired`.

    Candidates are the same, relevant ones differ, so a difference is one of facets with their judgements.
    """
    if pairs.is_empty():
        return
    rows = list[dict[str, Any]]()
    for part in pairs.partition_by("first", "second", maintain_order=True):
        first, second = part["first"][0], part["second"][0]
        systems = part.partition_by("system", "form", maintain_order=True)
        change = np.stack([(of["value_first"] - of["value_second"]).to_numpy() for of in systems])
        tested = paired_differences({f"{first} {second}": change}, seed, signs=sign_of(measure))
        columns = (tested.value, tested.low, tested.high, tested.p_value, holm(tested.p_value))
        for of, *figures in zip(systems, *columns, strict=True):
            names: dict[str, Any] = {"system": of["system"][0], "form": of["form"][0], "first": first, "second": second}
            keys = ("difference", "low", "high", "p", "p_adjusted")
            means = {"mean_first": of["value_first"].mean(), "mean_second": of["value_second"].mean()}
            rows.append({**names, "papers": len(of), **means, **dict(zip(keys, map(float, figures), strict=True))})
    cells: dict[tuple[str, str], Value] = {}
    for row in rows:
        system, pair = f"{row['system']}, {row['form']}", f"{row['first']} − {row['second']} ({row['papers']})"
        shown = f"{percent(row['mean_first'])} − {percent(row['mean_second'])}"
        cells[system, pair] = f"{shown} = {points(row)}, p {row['p_adjusted']:.3f}"
    notes = [
        f"{label_of(measure)} of papers queried by both facets (their number), difference [95% interval], p of the "
        "paired permutation test with Holm's correction over systems."
    ]
    frame = pl.DataFrame(rows)
    yield StudyTable("facet_pairs", grid("Two facets of the same papers", "system, query", cells, notes), frame)


def paired_figure(pairs: pl.DataFrame, measure: str) -> StudyFigure:
    """Return the figure of the best system's value for two facets of each paper: a panel a pair, a line a paper."""
    means = pairs.group_by("system", "form", maintain_order=True).agg(
        (pl.col("value_first") + pl.col("value_second")).mean() * sign_of(measure)
    )
    system, form, _ = means.sort("value_first", descending=True, maintain_order=True).row(0)
    panels = pairs.filter(system=system, form=form).partition_by("first", "second", maintain_order=True)

    def draw(figure_class: Any) -> Any:
        figure = figure_class(figsize=(2.2 * len(panels) + 0.6, 2.4), layout="constrained")
        for axes, part in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            axes.plot(
                [0, 1], part.select("value_first", "value_second").to_numpy().T, "o-", color="C0", alpha=0.6, ms=3
            )
            axes.set_xticks([0, 1], part.select("first", "second").row(0))
            axes.set_xlim(-0.3, 1.3)
        figure.axes[0].set_ylabel(label_of(measure))
        figure.suptitle(f"{system}, {form}", fontsize="medium")
        return figure

    return StudyFigure("facet_pairs", draw)
