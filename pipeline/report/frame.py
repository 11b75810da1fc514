"""Scores as one tidy table: a row for each query and measure, with everything that identifies it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import CorruptError
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.report.identity import Chosen, found_in

_IDENTITY = {
    "corpus": pl.String,
    "field": pl.String,
    "year": pl.Int32,
    "split": pl.String,
    "size": pl.Int64,
    "seed": pl.Int64,
    "sample": pl.Int32,
    "queries": pl.Int64,
    "system": pl.String,
    "depth": pl.Int64,
    "k1": pl.Float64,
    "b": pl.Float64,
    "precision": pl.String,
    "engine": pl.String,
    "revision": pl.String,
    "settings": pl.String,
    "pool_settings": pl.String,
    "pool": pl.String,
    "ranking": pl.String,
}

SCHEMA = {**_IDENTITY, "query": pl.UInt32, "query_id": pl.String, "measure": pl.String, "value": pl.Float64}
"""Columns of :func:`frame`. ``size`` and ``queries`` count candidates and queries of the pool; ``field`` is null at
the dataset level; ``settings`` and ``pool_settings`` are JSON; ``query`` is the position in the pool."""


def identity(chosen: Chosen) -> dict[str, Any]:
    """Return what identifies the scores of one ranking, by the names of :data:`SCHEMA`."""
    config, counts = chosen.pool.manifest.config, chosen.pool.manifest.counts
    settings = chosen.settings
    return {
        "corpus": chosen.corpus_name,
        "field": config.get("field"),
        "year": config.get("year"),
        "split": config.get("split"),
        "size": counts["candidates"],
        "seed": config.get("seed"),
        "sample": int(config.get("sample", 1)),
        "queries": counts["queries"],
        "system": chosen.system,
        "depth": chosen.depth,
        "k1": settings.get("k1"),
        "b": settings.get("b"),
        "precision": "+".join(chosen.precisions) or None,
        "engine": chosen.engine,
        "revision": "+".join(sorted({each for each in found_in(settings, "revision") if each})) or None,
        "settings": as_json(settings),
        "pool_settings": as_json(config),
        "pool": chosen.pool.name,
        "ranking": chosen.ranking.name,
    }


def as_json(settings: Any) -> str:
    """Return settings as JSON with one spelling."""
    return json.dumps(canonical(settings), sort_keys=True, ensure_ascii=False)


def values_of(chosen: Chosen) -> pl.DataFrame:
    """Return ``query, measure, value`` of one ranking, each once, from all its artifacts."""
    found = [_read(artifact) for artifact in chosen.scores]
    kept = pl.concat(found).filter(pl.col("measure").is_in(list(chosen.measures)))
    return kept.unique(["query", "measure"], keep="first", maintain_order=True)


def _read(artifact: Artifact) -> pl.DataFrame:
    found: Any = pl.from_arrow(artifact.arrow("scores.arrow").select(["query", "measure", "value"]))
    table, measures = pl.DataFrame(found), artifact.manifest.config["measures"]
    values = table["query"].n_unique() * len(measures)
    whole = set(table["measure"]) == set(measures) and table.select("query", "measure").n_unique() == len(table)
    if not whole or len(table) != values or table["value"].null_count():
        raise CorruptError(f"{artifact.path} does not have one value for each query and measure", "Score it again")
    return table


def frame(chosen: Sequence[Chosen]) -> pl.DataFrame:
    """Return scores as one table, columns :data:`SCHEMA`, in the order given.

    ``query_id`` is null where the corpus of a pool is gone.
    """
    ids: dict[str, list[str]] = {}
    parts = [pl.DataFrame(schema=SCHEMA)]
    for each in chosen:
        values = values_of(each)
        if each.corpus is not None and each.pool.id not in ids:
            ids[each.pool.id] = Pool(each.pool, Corpus(each.corpus)).query_ids()
        named = pl.Series(ids.get(each.pool.id, []), dtype=pl.String)
        position = values["query"]
        query_id = named.gather(position) if len(named) else pl.Series([None] * len(values), dtype=pl.String)
        columns = [pl.lit(value, dtype=_IDENTITY[name]).alias(name) for name, value in identity(each).items()]
        parts.append(values.with_columns(*columns, query_id.alias("query_id")).select(list(SCHEMA)).cast(SCHEMA))
    return pl.concat(parts)
