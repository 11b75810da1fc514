"""The study ``crossover``: from which number of candidates on does dense retrieval overtake sparse?

The design is crossed: every query has pools of every size, every kind of negatives and every sample of candidates. The
difference of two systems in MAP is modelled as a line over the logarithm of the size. Its intercept and slope vary
between queries and between samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit

RANDOM, GRAPH, MATCHED, MODEL = KINDS = ("random", "graph", "matched", "model")
"""Kinds of negatives. ``random``: as in every pool. ``graph``: papers that cite, or are cited by, a paper cited by a
query. ``matched``: papers with the positives' distribution of years, lengths and abstracts. ``model``: papers that the
first dense system ranks for any query in the largest random pool."""
STRATUM = ("text", "years", "length")


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study."""

    field: str
    year: int
    sizes: tuple[str, ...] = kit.required("numbers of candidates, such as 2k; smaller pools are subsets of larger ones")
    kinds: tuple[str, ...] = kit.required("kinds of negatives: random, graph, matched, model")
    samples: int
    sparse: str = kit.required(
        "what dense systems are compared with; bm25:tuned has the parameters of the largest pool"
    )

    def __post_init__(self) -> None:
        for kind in self.kinds:
            kit.require_known(kind, KINDS, f"a kind of negatives must be one of {', '.join(KINDS)}, got {kind!r}")
        if len(self.sizes) < 2 or not self.kinds:
            problem = f"sizes must be two or more, got {', '.join(self.sizes)}"
            raise kit.InputError(problem, "Write --set=sizes=1k,2k,4k")


def negatives(draw: kit.Draw) -> np.ndarray:
    """Return the negatives of a kind."""
    corpus = draw.pool.corpus
    if draw.kind == MODEL:
        return draw.first(kit.read_ranking(draw.inputs["ranking"]).row)
    if draw.kind == GRAPH:
        cited = np.unique(corpus.outgoing.of_many(draw.pool.query_rows)[1])
        return draw.first(np.concatenate([corpus.outgoing.of_many(cited)[1], corpus.incoming.of_many(cited)[1]]))
    # The n-th paper of a stratum with share s has turn n / s: others fill up for an exhausted stratum.
    shares = strata(corpus, draw.positives).group_by(*STRATUM).agg(share=pl.len() / len(draw.positives))
    rows = np.flatnonzero(draw.may_be).astype(np.uint32)
    papers = strata(corpus, rows).with_columns(chance=draw.priorities(rows))
    papers = papers.join(shares, on=STRATUM).sort("chance", "row")
    nth = pl.int_range(pl.len()).over(STRATUM) + 1
    ordered = papers.with_columns(turn=nth / pl.col("share")).sort("turn", "chance")
    return np.asarray(ordered["row"].head(draw.count).to_numpy())


def strata(corpus: kit.Corpus, rows: np.ndarray) -> pl.DataFrame:
    """Return papers (``row``): abstract or none (``text``), three ``years``, ``length`` within a factor of 1.4."""
    years, length = corpus.attributes["year"][rows] // 3, np.maximum(corpus.characters(rows), 1)
    text = corpus.attributes["abstract_chars"][rows] > 0
    return pl.DataFrame({"row": rows, "text": text, "years": years, "length": np.floor(2 * np.log2(length))})


@kit.study("crossover", "from which number of candidates on dense retrieval overtakes sparse", Recipe)
def crossover(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the crossover points and the difference at each size."""
    dense, sparse = kit.split_names(recipe.systems), recipe.sparse
    chosen = kit.selection(**kit.pools_of(recipe), nested=True)
    largest = chosen.but(size=chosen.given["size"][-1:])
    if sparse == kit.TUNED:
        (sparse,) = yield from kit.tuned(workspace, recipe, largest)
    random, (top, *_), near = kit.pool_tasks(workspace, recipe, chosen), kit.pool_tasks(workspace, recipe, largest), {}
    if MODEL in recipe.kinds:
        near = {MODEL: {"ranking": workspace.evaluations(top, dense[:1], depth=recipe.depth)[0].ranking}}
    pools = [
        pool if kind == RANDOM else kit.with_negatives(pool, kind, negatives, **near.get(kind, {}))
        for kind, pool in itertools.product(recipe.kinds, random)
    ]
    found = yield from kit.scored(workspace, recipe, pools, [sparse, *dense])
    kinds = {pool.name: getattr(pool.config, "negatives", RANDOM) for pool in pools}
    facts = found.rankings.select("pool", asked="size_asked", kind=pl.col("pool").replace_strict(kinds)).unique("pool")
    values = found.named(sparse).drop("kind").join(facts, on="pool", maintain_order="left")
    lines = [fitted(kind, *of) for kind, of in by_kind(values, sparse) if min(of[2].shape[1:]) > 1]
    short = values.filter(pl.col("size") < pl.col("asked")).select("kind", "asked", "size").unique(maintain_order=True)
    frame = pl.DataFrame(lines).drop("values", "coefficients")
    tables = [turn_table(frame, sparse, short), difference_table(lines, sparse)]
    return kit.Report(tables, sources=found.sources)


def by_kind(values: pl.DataFrame, sparse: str) -> Iterator[tuple[str, tuple[str, tuple[int, ...], np.ndarray]]]:
    """Yield kind, dense system, sizes, and differences to the sparse system ``[samples, queries, sizes]``."""
    full, keys = values.filter(pl.col("size") == pl.col("asked")), ["sample", "query", "size"]
    dense = [name for name in full["system"].unique(maintain_order=True) if name != sparse]
    for kind, system in itertools.product(full["kind"].unique(maintain_order=True), dense):
        pair = full.filter(pl.col("system").is_in([system, sparse]), kind=kind)
        wide = pair.pivot("system", index=keys, values="value").sort(keys)
        shape = [wide[name].n_unique() for name in keys]
        differences = (wide[system] - wide[sparse]).to_numpy().reshape(shape)
        yield kind, (system, tuple(wide["size"].unique().sort()), differences)


def fitted(kind: str, system: str, sizes: tuple[int, ...], values: np.ndarray) -> dict[str, Any]:
    """Return the line of a dense system over two sizes or more."""
    middle = float(np.exp(np.mean(np.log(sizes))))
    coefficients = values @ np.linalg.pinv(np.stack([np.ones(len(sizes)), np.log2(sizes) - np.log2(sizes).mean()]))
    slope = kit.crossed_mean(coefficients[..., 1])
    turn = turning(coefficients, middle, np.geomspace(sizes[0], sizes[-1], 400))
    names = ("slope", "slope_low", "slope_high", "turn", "turn_low", "turn_high")
    line = {"system": system, "negatives": kind, "queries": values.shape[1]}
    figures = dict(zip(names, (*slope, *turn), strict=True))
    return {**line, **figures, "sizes": sizes, "middle": middle, "values": values, "coefficients": coefficients}


def at(coefficients: np.ndarray, middle: float, size: float) -> tuple[float, float, float]:
    """Return the difference that a line gives at a size, with its interval over queries and samples."""
    return kit.crossed_mean(coefficients @ np.array([1.0, np.log2(size / middle)]))


def turning(coefficients: np.ndarray, middle: float, sizes: np.ndarray) -> tuple[float, float, float]:
    """Return the size at which a line is 0, and the range of sizes at which 0 is not rejected.

    Only the measured sizes are searched; ends beyond them are 0 or infinite. The size is NaN if it lies beyond
    them, or if the interval of the slope contains 0. All three are NaN if 0 is rejected everywhere.
    """
    bounds = np.array([at(coefficients, middle, size) for size in sizes])
    not_rejected = np.flatnonzero((bounds[:, 1] <= 0) & (bounds[:, 2] >= 0))
    if not len(not_rejected):
        return np.nan, np.nan, np.nan
    level, slope = coefficients.mean(axis=(0, 1))
    _, falls, rises = kit.crossed_mean(coefficients[..., 1])
    low = float(sizes[not_rejected[0]]) if not_rejected[0] else 0.0
    high = float(sizes[not_rejected[-1]]) if not_rejected[-1] < len(sizes) - 1 else np.inf
    turn = float(middle * 2 ** (-level / slope)) if falls > 0 or rises < 0 else np.nan
    return turn if sizes[0] <= turn <= sizes[-1] else np.nan, low, high


def turn_table(frame: pl.DataFrame, sparse: str, short: pl.DataFrame) -> kit.Table:
    """Return the size at which each line is 0, and its slope; ``short`` are pools smaller than configured."""

    def turns(row: Any) -> str:
        value, low, high = row["turn"], row["turn_low"], row["turn_high"]
        if np.isnan(low):
            return "not within these sizes"
        ends = (
            "below" if low == 0 else kit.format_count(round(low)),
            "above" if np.isinf(high) else kit.format_count(round(high)),
        )
        return f"{'not shown' if np.isnan(value) else kit.format_count(round(value))} [{ends[0]}, {ends[1]}]"

    notes = [
        f"Slope: points of MAP over {sparse} a doubling of the candidates. Turns at: the number of candidates at which "
        "the line is 0, if the slope differs from 0 [sizes at which 0 is not rejected]. Brackets: 95% intervals.",
        "Below, above: beyond the measured sizes, to which the line is not followed.",
        *(
            f"Left out: {kind} negatives, {asked:,} candidates: only {size:,} exist."
            for kind, asked, size in short.rows()
        ),
    ]
    slope, shown = kit.points("slope", "slope_low", "slope_high", digits=2), frame.drop("sizes", "middle")
    columns: kit.Columns = {"queries": "{queries:,}", "slope": slope, "turns at": turns}
    return kit.table("turns", "Where dense overtakes sparse", shown, "{system}, {negatives}", columns, notes)


def difference_table(lines: list[dict[str, Any]], sparse: str) -> kit.Table:
    """Return the measured difference at each size and that of the line."""
    rows = [
        (
            f"{line['system']}, {line['negatives']}",
            size,
            *kit.crossed_mean(of),
            at(line["coefficients"], line["middle"], size)[0],
        )
        for line in lines
        for size, of in zip(line["sizes"], np.moveaxis(line["values"], -1, 0), strict=True)
    ]
    frame = pl.DataFrame(rows, ["system", "size", "difference", "low", "high", "line"], orient="row")
    notes = [f"Points of MAP over {sparse}; brackets: 95% intervals over queries and samples of candidates."]
    title, label = "Differences by number of candidates", "system, negatives, size: {system}, {size}"
    return kit.table(
        "differences", title, frame, label, {"difference": kit.points(), "line": kit.figure("line", None, None)}, notes
    )
