"""Figures of facets: values of every query, means over folds or queries with intervals.

A mean over folds is the mean of each fold's mean, as the authors report it; the other is over all queries at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.corpus.pool import Pool
from pipeline.measure.statistics import Floats, bootstrap_means, confidence_interval, interval_kind
from pipeline.studies.facets.pools import facet_query_ids

ALL = "all"
"""All facets together."""

FOLDS, QUERIES = "folds", "queries"
"""How values are averaged."""


def values_of(scores: Artifact, pool: Pool, form: str) -> pl.DataFrame:
    """Return one value a row: ``system``, ``form``, ``facet``, ``query`` (``PAPER_FACET``), ``measure``, ``value``."""
    frame = pl.DataFrame(pl.from_arrow(scores.arrow("scores.arrow")))
    ids = np.array(facet_query_ids(pool), object)[frame["query"].to_numpy()]
    return frame.select(
        "system",
        pl.lit(form).alias("form"),
        pl.lit(pool.artifact.manifest.config["field"]).alias("facet"),
        pl.Series("query", ids.tolist(), pl.String),
        "measure",
        "value",
    )


def summaries(values: pl.DataFrame, folds: Mapping[str, Sequence[str]], seed: int) -> pl.DataFrame:
    """Return means with 95% intervals: of each facet and of all, over folds (where there are any) and over queries.

    All systems share the resamples of a mean.

    Args:
        values: of :func:`values_of`, all systems with the same queries.
        folds: queries of each fold.
        seed: of the resamples.
    """
    wide = values.pivot("query", index=["system", "form", "measure"], values="value", maintain_order=True)
    names = wide.select("system", "form", "measure")
    facets = {each: {q for q in wide.columns[3:] if q.endswith(f"_{each}")} for each in values["facet"].unique().sort()}
    found = []
    for facet, queries in {**facets, ALL: set(wide.columns[3:])}.items():
        groups = {QUERIES: [sorted(queries)]}
        if folds:
            groups[FOLDS] = [sorted(queries & set(members)) for _, members in sorted(folds.items())]
        for average, parts in groups.items():
            if all(parts):
                each = [wide.select(part).to_numpy() for part in parts]
                low, high, mean = _interval(each, seed, f"{facet} {average}")
                found.append(
                    names.with_columns(
                        pl.lit(facet).alias("facet"),
                        pl.lit(average).alias("average"),
                        pl.lit(sum(map(len, parts))).alias("queries"),
                        pl.lit(interval_kind(sum(map(len, parts)), len(parts))).alias("interval"),
                        *(pl.Series(name, column) for name, column in (("mean", mean), ("low", low), ("high", high))),
                    )
                )
    return pl.concat(found)


def _interval(values: Sequence[Floats], seed: int, item: str) -> tuple[Floats, Floats, Floats]:
    means = [bootstrap_means(each, seed=seed, item=f"{item} {number}") for number, each in enumerate(values)]
    low, high = confidence_interval(np.mean(means, axis=0), *values)
    return low, high, np.mean([each.mean(axis=1) for each in values], axis=0)
