"""Frames of scores: a row for each ranking, and a row for each of its queries and measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures
from pipeline.scores.facts import GAPS, REQUESTED, columns
from pipeline.scores.sources import ENCODER

IDENTITY = {
    **columns(pl.String, "corpus field"),
    "year": pl.Int32,
    "split": pl.String,
    **columns(pl.Int64, "size seed"),
    "sample": pl.Int32,
    "queries": pl.Int64,
    "system": pl.String,
    "depth": pl.Int64,
    **columns(pl.Float64, "k1 b"),
    **columns(pl.String, "precision engine revision missing_positives settings"),
    **REQUESTED,
    **columns(pl.String, "pool ranking"),
}
"""Columns that identify the scores of a ranking.

``size`` and ``queries`` count candidates and queries of the pool; in labelled rankings, the size is that of its largest
sample. ``field`` is null at the dataset level; ``settings`` are all settings of the ranking as text; what the pool was
asked for has a column each (:data:`pipeline.scores.facts.REQUESTED`); ``corpus``, ``pool`` and ``ranking`` are names of
folders.
"""

FACTS = {
    "label": pl.String,
    "aliases": pl.List(pl.String),
    "kind": pl.String,
    **columns(pl.List(pl.String), "scores measures"),
    **columns(pl.Int64, "positives positives_not_in_collection queries_without_positive queries_without_results"),
    **GAPS,
    "no_positive": pl.String,
    "without_vector": pl.String,
    "encoders": pl.List(ENCODER),
    "replaced": pl.Boolean,
    "workspace": pl.String,
}
"""Further columns of each ranking. ``label`` is the name of its row (:func:`pipeline.scores.labels.labelled`),
``aliases`` are further names of the system (:func:`pipeline.stages.systems.display_name`), ``kind`` identifies the
settings that the pools of one table share, ``scores`` are folder names, ``no_positive`` says what becomes of queries
without a positive, ``without_vector`` says how many papers have none (null:
all have one), ``encoders`` are those of :meth:`pipeline.scores.sources.Sources.encoders`, null for rankings of files,
``replaced``: older tunings were left out, ``workspace`` is the folder of the workspace, null for runs of files."""

_PRIVATE = {
    "row": pl.String,
    "row_settings": pl.List(pl.Struct({"name": pl.String, "value": pl.String})),
    **columns(pl.String, "setup variant"),
    "published": pl.Int64,
    "made": pl.String,
    "score_paths": pl.List(pl.String),
}

RUNS = IDENTITY | FACTS | _PRIVATE
"""Columns of a frame of rankings. ``row`` identifies the system on pools of all fields and sizes, ``variant`` on this
pool, tuned settings included; ``setup`` identifies the settings of the pool without its sample."""

_OF_QUERIES = {"query": pl.UInt32, "query_id": pl.String, "measure": pl.String, "value": pl.Float64}

AMONG = {"among_abstracts": pl.Float64}
"""The value among the candidates with an abstract; null unless positives and negatives of the pool differ by much in
the share without one (:func:`pipeline.corpus.prefilter.uneven_abstracts`), or for a query without such a positive."""

SCORES_SCHEMA = IDENTITY | FACTS | _OF_QUERIES | AMONG
"""Columns of a frame of scores, a row for each query and measure. ``query`` is the position in the pool; ``query_id``
is null if the corpus is gone or ids were not requested; ``value`` is a fraction."""

_PLACE = ("kind", "label", "pool", "ranking", "system", "field", "year", "size", "sample", "seed", "positives")
VALUES = {name: SCORES_SCHEMA[name] for name in (*_PLACE, "query", "measure", "value", *AMONG)}
"""Columns of a frame of values: what statistics take. All else stands once, in the frame of rankings."""

_REMEDY = "Give a frame of ws.evaluate, ws.scores or mdcr.evaluate, or some of its rows"


def check_scores(frame: pl.DataFrame, name: str) -> None:
    """Check a frame of scores, columns :data:`SCORES_SCHEMA`; further columns are ignored.

    Raises:
        InputError: columns are missing or of other types, there are no rows, or values are unknown or doubled.
    """
    if missing := [column for column in SCORES_SCHEMA if column not in frame.columns]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}", _REMEDY)
    for column, dtype in SCORES_SCHEMA.items():
        given = frame.schema[column]
        if given != pl.Null and _kind(given) != _kind(dtype):
            raise InputError(f"column {column} of {name} must be {dtype}, got {given}", _REMEDY)
    if frame.is_empty():
        raise InputError(f"{name} has no rows", _REMEDY)
    if unknown := frame.filter(pl.col("value").is_null() | ~pl.col("value").is_finite()).height:
        raise InputError(f"values of {name} are null, NaN or infinite: {unknown:,}", _REMEDY)
    if doubled := int(frame.select("pool", "label", "query", "measure").is_duplicated().sum()):
        raise InputError(f"rows of {name} are there more than once: {doubled:,}", _REMEDY)
    parse_measures(frame["measure"].unique().to_list())


def _kind(dtype: pl.DataType | type[pl.DataType]) -> object:
    """Return what types have in common that stand for each other: integers of all widths, floats of both."""
    return "integer" if dtype.is_integer() else "float" if dtype.is_float() else dtype


Scores = Annotated[pl.DataFrame, check_scores]
"""A frame of scores, columns :data:`SCORES_SCHEMA`."""


EXPORTED = [*IDENTITY, *_OF_QUERIES]
"""Columns of a file of scores."""


def joined(runs: pl.DataFrame, scores: Iterable[pl.DataFrame], schema: Mapping[str, Any] = VALUES) -> pl.DataFrame:
    """Return the scores of each ranking (``query``, ``measure``, ``value``, perhaps others of ``schema``) as one frame.

    ``schema`` has the columns of the frame: :data:`VALUES`, or :data:`SCORES_SCHEMA`.
    """
    own = {name: kind for name, kind in schema.items() if name in _OF_QUERIES | AMONG}
    numbered = (of_run.with_columns(run=pl.lit(number, pl.UInt32)) for number, of_run in enumerate(scores))
    values = pl.concat([pl.DataFrame(schema={"run": pl.UInt32} | own), *numbered], how="diagonal").select("run", *own)
    facts = runs.select(name for name in schema if name not in own).with_row_index("run")
    return values.join(facts, on="run", how="left", maintain_order="left").select(list(schema))


def load_runs(scores: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings of a frame of scores, a row for each, without columns of queries and measures."""
    return scores.select([*IDENTITY, *FACTS]).unique(["pool", "ranking", "label"], keep="first", maintain_order=True)


def own_runs(values: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings of some values, in the order in which these have them."""
    keys = ["pool", "ranking", "label"]
    return (
        values.select(keys).unique(maintain_order=True).join(runs, on=keys, maintain_order="left").select(runs.columns)
    )
