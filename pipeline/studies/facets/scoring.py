"""Figures of facets: values of every query, means over folds or queries with intervals, differences with tests.

A mean over folds is the mean of each fold's mean, as the authors report it; the other is over all queries at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.corpus.pool import Pool
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import holm, interval_kind, mean_of_means, paired_differences
from pipeline.studies.facets.pools import FACET, WHOLE, facet_query_ids

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

    All systems have the same queries (:func:`values_of`), and share the resamples of a mean.
    """
    wide = values.pivot("query", index=["system", "form", "measure"], values="value", maintain_order=True)
    names = wide.select("system", "form", "measure")
    found = []
    for facet, queries in _groups(wide.columns[3:]).items():
        groups = {QUERIES: [queries]}
        if folds:
            groups[FOLDS] = [sorted({*queries} & {*members}) for _, members in sorted(folds.items())]
        for average, parts in groups.items():
            if all(parts):
                each = {f"{facet} {average} {n}": wide.select(part).to_numpy() for n, part in enumerate(parts)}
                mean, low, high, _ = mean_of_means(each, seed)
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


def _groups(queries: Sequence[str]) -> dict[str, list[str]]:
    """Return the queries of each facet and of all, sorted."""
    found: dict[str, list[str]] = {}
    for query in sorted(queries):
        found.setdefault(query.rpartition("_")[2], []).append(query)
    return {**dict(sorted(found.items())), ALL: sorted(queries)}


def differences(values: pl.DataFrame, measure: str, baseline: str, seed: int) -> pl.DataFrame:
    """Return how a measure differs between systems, over all queries of each facet and of all.

    Every system is compared with the baseline (empty: the first), and each that ranks by the facet's sentences with
    itself by the whole paper. Holm's correction is over the comparisons of one kind on one facet.
    """
    wide = values.filter(measure=measure).pivot("query", index=["system", "form"], values="value", maintain_order=True)
    keys = wide.select("system", "form").rows()
    base = next(key for key in keys if baseline in ("", key[0]))
    pairs = [(key, base) for key in keys if key != base]
    forms = [((name, FACET), (name, WHOLE)) for name, form in keys if form == FACET and (name, WHOLE) in keys]
    rows = []
    for facet, queries in _groups(wide.columns[2:]).items():
        each = dict(zip(keys, wide.select(queries).to_numpy(), strict=True))
        for kind in filter(None, (pairs, [pair for pair in forms if pair not in pairs])):
            change = np.stack([each[one] - each[other] for one, other in kind])
            tested = paired_differences({f"{facet} {QUERIES} 0": change}, seed, signs=sign_of(measure), item=facet)
            columns = (tested.low, tested.high, tested.value, tested.p_value, holm(tested.p_value))
            for (one, other), *figures in zip(kind, *columns, tested.wins, tested.losses, strict=True):
                rows.append((facet, *one, *other, len(queries), *(figure.item() for figure in figures)))
    pairs_of = ["facet", "system", "form", "than", "than_form", "queries"]
    tests = ["low", "high", "difference", "p", "p_adjusted", "wins", "losses"]
    return pl.DataFrame(rows, schema=[*pairs_of, *tests], orient="row")
