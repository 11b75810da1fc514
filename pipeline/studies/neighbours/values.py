"""What was measured, query by query, and its means."""

from __future__ import annotations

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.studies.neighbours.geometry import overlap
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES
from pipeline.studies.neighbours.plan import RankedPool

TASKS = {"titles": "I", "titles-among-titles": "II"}
"""The tasks by kind of pool."""
_TITLES = {"mrr": "MRR", "recall@100": "T100"}
_NEIGHBOURS = {"precision@1": "NN1_Ret", "recall@10": "NN10_Ret", "mrr": "MRR"}

CATEGORY = pl.col("name").replace_strict({each.name: each.category for each in CLASSES.values()}, default="")
"""The category of the class ``name``; empty for titles."""


def values_of(workspace: Workspace, corpus: Artifact, ranked: RankedPool) -> pl.DataFrame:
    """Return what one system has on one pool: ``original`` (its row), ``name``, ``measure``, ``value`` (a fraction)."""
    pool = Pool(workspace.make([ranked.pool])[0], Corpus(corpus))
    if ranked.kind == "overlap":
        (ranking,) = workspace.make([ranked.ranking])
        found = {f"AOP-{depth}": overlap(ranking, pool, depth) for depth in (10, 20)}
        frames = [pl.DataFrame({"original": o, "measure": m, "value": v}) for m, (o, v) in found.items()]
        return pl.concat(frames).select("original", pl.lit(ranked.pool.config.name).alias("name"), "measure", "value")
    names = _NEIGHBOURS if ranked.kind == "neighbours" else _TITLES
    queries = pl.DataFrame(
        {"original": pool.qrels["row"].to_numpy(), "name": pool.artifact.arrow("queries.arrow")["field"].to_pylist()}
    ).with_row_index("query")
    scores = pl.from_arrow(workspace.make(ranked.scores[:1])[0].arrow("scores.arrow"))
    scores = scores.filter(pl.col("measure").is_in(list(names))).join(queries, on="query", maintain_order="left")
    return scores.select(pl.col("original").cast(pl.Int64), "name", pl.col("measure").replace(names), "value")


def means_of(values: pl.DataFrame, corpus: str, ranked: RankedPool) -> pl.DataFrame:
    """Return the means of :func:`values_of` in percent, a row for each class and measure."""
    figures = {"value": pl.col("value").mean() * 100, "queries": pl.len()}
    means = values.group_by("name", "measure", maintain_order=True).agg(**figures)
    named = {"corpus": corpus, "system": ranked.system, "task": TASKS.get(ranked.kind, ranked.kind)}
    columns = {key: pl.lit(text) for key, text in named.items()}
    return means.select(**columns, category=CATEGORY, **{each: each for each in means.columns})


def cosines_of(artifact: Artifact, corpus: str, system: str) -> pl.DataFrame:
    """Return the similarities of one encoder on one corpus (:data:`geometry.SIMILARITY`), category by category."""
    found = pl.from_arrow(artifact.arrow("similarities.arrow"))
    order = pl.DataFrame({"name": in_order(found["name"])}, {"name": pl.String})
    return order.join(found, on="name", maintain_order="left").select(
        corpus=pl.lit(corpus), system=pl.lit(system), category=CATEGORY, **{name: name for name in found.columns}
    )


def by_category(classes: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Return the mean of a measure over the classes of each category, a row a corpus, system and category."""
    found = classes.filter(pl.col("measure") == measure)
    return found.group_by("corpus", "system", "category", "measure", maintain_order=True).agg(pl.col("value").mean())


def in_order(names: pl.Series) -> list[str]:
    """Return the classes that a column has, category by category."""
    held = sorted(set(names), key=list(CLASSES).index)
    return sorted(held, key=lambda name: CATEGORIES.index(CLASSES[name].category))
