"""Frames of scores in memory, as :func:`pipeline.scores.store.values` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.scores.frames import SCORES_SCHEMA, load_runs
from pipeline.scores.layout import build_tables, select_measures
from pipeline.scores.tables import Table

Values = Mapping[str, Sequence[float]]
"""Fractions of every query, by measure."""


def scored(
    system: str, values: Values, *, field: str | None = None, size: int = 200_000, sample: int = 1, **facts: Any
) -> pl.DataFrame:
    """Scores of one system on one pool; ``facts`` replace columns."""
    pool = f"{field or 'dataset'}-{size}-s{sample}"
    run = {
        "corpus": "tiny-0123456789ab",
        "field": field,
        "size": size,
        "sample": sample,
        "seed": 13,
        "system": system,
        "label": system,
        "aliases": [],
        "kind": "all",
        "depth": 500,
        "pool": pool,
        "ranking": f"{system} on {pool}",
        "settings": "",
        "size_asked": size,
        "scores": [],
        "measures": list(values),
        "positives": 100,
        "positives_not_in_collection": 0,
        "queries_without_positive": 0,
        "queries_without_results": 0,
        "replaced": False,
        **facts,
    }
    rows = [
        run | {"queries": len(of_queries), "query": query, "measure": measure, "value": value}
        for measure, of_queries in values.items()
        for query, value in enumerate(of_queries)
    ]
    return pl.DataFrame(rows, schema=SCORES_SCHEMA, orient="row")


def made_up(
    systems: Sequence[str],
    setups: Sequence[tuple[str | None, int]],
    *,
    measures: Sequence[str] = ("map", "ndcg"),
    samples: int = 3,
    queries: int = 40,
) -> pl.DataFrame:
    """Every system on every setup; later systems are better, samples differ a little."""
    parts = []
    for field, size in setups:
        hardness = np.random.default_rng(size).random(queries)
        for number, system in enumerate(systems):
            for sample in range(1, samples + 1):
                noise = np.random.default_rng([number, sample, size]).random((len(measures), queries))
                level = 0.3 * hardness + 0.1 * number + 0.1 * noise
                values = {measure: row.tolist() for measure, row in zip(measures, level, strict=True)}
                parts.append(scored(system, values, field=field, size=size, sample=sample))
    return pl.concat(parts)


def tables_of(scores: pl.DataFrame, summary: pl.DataFrame, measures: Sequence[str] | None = None) -> tuple[Table, ...]:
    """The tables of a summary; of all measures, or some."""
    return build_tables(summary if measures is None else select_measures(summary, measures), load_runs(scores))


def figure(summary: pl.DataFrame, label: str, field: str | None, size: int | None, measure: str) -> dict[str, Any]:
    """One row of a summary."""
    own = summary.filter(
        pl.col("label") == label,
        pl.col("field").eq_missing(pl.lit(field, pl.String)),
        pl.col("size").eq_missing(pl.lit(size, pl.Int64)),
        pl.col("measure") == measure,
    )
    return own.row(0, named=True)
