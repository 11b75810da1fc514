"""Scores of every query as one tidy frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.corpus.pool import Pool
from pipeline.exchange.rankings import check_format
from pipeline.measure import trec

FORMATS = {name: name for name in ("csv", "csv.gz", "parquet")}
"""Formats of scores, and the ending of each file's name."""


def scores_frame(scores: Iterable[Artifact], pools: Mapping[str, Pool]) -> pl.DataFrame:
    """Return scores, one row a query and measure.

    Args:
        scores: artifacts of the stage ``score``; of several values of a query, the first counts.
        pools: the pools by identity.

    Returns:
        Columns corpus, field, size (candidates), sample, pool, system, query (its id), measure, value (a fraction).
    """
    parts = [_part(artifact, pools[artifact.manifest.inputs["pool"]]) for artifact in scores]
    keys = ["pool", "system", "query", "measure"]
    return pl.concat(parts).unique(keys, keep="first", maintain_order=True)


def write_scores(path: Path, frame: pl.DataFrame, output: str = "csv") -> None:
    """Write a frame, atomically, in one of :data:`FORMATS`.

    Raises:
        InputError: the format is unknown.
    """
    check_format(output, FORMATS)
    if output.startswith("csv"):
        trec.write(path, [frame.write_csv().encode()])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            frame.write_parquet(temporary)


def _part(artifact: Artifact, pool: Pool) -> pl.DataFrame:
    table = artifact.arrow("scores.arrow")
    made = pool.artifact.manifest
    return pl.DataFrame(
        {
            "query": pl.Series(pool.query_ids(), dtype=pl.String)[table.column("query").to_numpy()],
            "measure": pl.Series(table.column("measure").to_pylist(), dtype=pl.String),
            "value": table.column("value").to_numpy(),
        }
    ).select(
        pl.lit(pool.corpus.artifact.name).alias("corpus"),
        pl.lit(made.config.get("field"), pl.String).alias("field"),
        pl.lit(made.counts["candidates"], pl.Int64).alias("size"),
        pl.lit(made.config.get("sample", 1), pl.Int64).alias("sample"),
        pl.lit(pool.artifact.name).alias("pool"),
        pl.lit(artifact.manifest.config["system"]).alias("system"),
        "query",
        "measure",
        "value",
    )
