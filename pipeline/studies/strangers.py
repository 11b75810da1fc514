"""The study ``strangers``: does an encoder find related papers, or papers of acquaintances?

A positive is *self* (the papers share an author), *collaborator* (an author of one and an author of the other wrote a
paper of the corpus together before), *stranger*, or *unknown* (:meth:`pipeline.corpus.authors.Authors.classes`). A
*third* is that of all positives by citation count. A *resolution* is what tells authors apart: their ``id`` in the
release, ``initial`` and last name (several people are one), or the ``full`` name (one may be several).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from pipeline.studies import kit

_ITEM = ["label", "pool", "query"]
_THIRDS = ("least cited", "middle", "most cited")


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study."""

    field: str
    size: str
    baseline: str = kit.required("the system that the others are compared with")
    cutoff: int = kit.required("ranks that recall counts")


@kit.study("strangers", "whether systems find related papers, or papers of acquaintances", Recipe)
def strangers(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the shares of the classes, scores of each, and the parts of leads."""
    if not 0 < recipe.cutoff <= recipe.depth:
        problem = f"cutoff must be from 1 to depth, got {recipe.cutoff} and {recipe.depth}"
        raise kit.InputError(problem, f"Write --set=cutoff={recipe.depth}")
    corpus = kit.corpus_of(workspace, recipe)
    made = yield [kit.authors_task(corpus.artifact)]
    found = yield from kit.scored(workspace, recipe, [kit.selection(**kit.pools_of(recipe))])
    classes = classes_of(found, kit.Authors(made[0], corpus))
    baseline, pools = found.label(recipe.baseline), found.values.select("pool", "size", "sample").unique()
    positives = with_thirds(found.positives).join(pools, "pool", maintain_order="left")
    positives = positives.join(classes, ["pool", "query", "paper"], maintain_order="left")
    one = positives.filter(label=found.labels[0])

    def estimated(values: Iterator[pl.DataFrame], row: tuple[str, ...], *of: str, compared: bool) -> pl.DataFrame:
        sets, family = ("size", "resolution", *of), ("size", "resolution")
        design = kit.Design(row=row, of=sets, group="field", over="sample", family=family)
        return kit.estimate(pl.concat(values), design, recipe.seed, (baseline,) if compared else None)

    tables = [
        shares_table(estimated(shares(one), ("class",), "third", compared=False)),
        scores_table(
            estimated(scores(positives, recipe.cutoff), ("label",), "class", "third", compared=True), baseline
        ),
        leads_table(estimated(lead_parts(positives), ("label",), "class", compared=True), baseline),
    ]
    return found.report("map", baseline=baseline, tables=tables)


def classes_of(found: kit.Scored, authors: kit.Authors) -> pl.DataFrame:
    """Return the ``class`` of each positive (``pool``, ``query``, ``paper``) by each ``resolution``."""
    frames = []
    for name in found.runs["pool"].unique(maintain_order=True):
        rankings = found.open(name)
        rows, years = rankings.pool.query_papers
        query, cited = kit.query_of(rankings.qrels.offsets), rankings.qrels.rows
        facts = pl.DataFrame({"query": query, "paper": cited}).select(pl.lit(name).alias("pool"), pl.all())
        for resolution in authors.resolutions:
            places = authors.classes(rows, years, query, cited, resolution)
            names = pl.Series("class", [kit.CLASSES[place] for place in places], pl.String)
            frames.append(facts.select(pl.all(), names, pl.lit(resolution).alias("resolution")))
    return pl.concat(frames)


def with_thirds(positives: pl.DataFrame) -> pl.DataFrame:
    """Return positives with the ``third`` of their citation counts, over all queries."""
    ends = [positives["citations"].quantile(third / 3, "lower") for third in (1, 2)]
    place = sum(((pl.col("citations") > end).cast(pl.Int64) for end in ends), pl.lit(0))
    return positives.with_columns(third=place.replace_strict(dict(enumerate(_THIRDS)), return_dtype=pl.String))


def _by_third(positives: pl.DataFrame) -> Iterator[pl.DataFrame]:
    yield positives.with_columns(third=pl.lit("all"))
    yield from (positives.filter(third=third) for third in _THIRDS)


def _means(positives: pl.DataFrame, value: pl.Expr, *by: str) -> pl.DataFrame:
    """Return an aggregate ``value`` of the positives of each query of each ranking."""
    keys = [*_ITEM, "field", "size", "sample", "resolution", *by]
    return positives.group_by(keys, maintain_order=True).agg(value=value.cast(pl.Float64))


def shares(positives: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the share of each class in the positives of each query, of all and of each third."""
    for of_third in _by_third(positives):
        for name in kit.CLASSES:
            means = _means(of_third, (pl.col("class") == name).mean(), "third")
            yield means.with_columns(pl.lit(name).alias("class"))


def scores(positives: pl.DataFrame, cutoff: int) -> Iterator[pl.DataFrame]:
    """Yield recall and average precision of each class, in rankings without the positives of other classes.

    Of a third, it is the mean over its positives; those of the class in other thirds stay relevant.
    """
    rank, item = pl.col("rank").cast(pl.Int64), (*_ITEM, "resolution")
    nth = rank.rank("ordinal").cast(pl.Int64)
    alone = positives.with_columns(rank=rank - nth.over(item) + nth.over(*item, "class"))
    for ranked in (positives.with_columns(pl.lit("all").alias("class")), alone.filter(pl.col("class") != "unknown")):
        precise = ranked.with_columns(precision=(nth.over(*item, "class") / rank).fill_null(0.0))
        for of_third in _by_third(precise):
            recall = (rank <= cutoff).fill_null(value=False).mean()
            for measure, value in {f"recall@{cutoff}": recall, "map": pl.col("precision").mean()}.items():
                yield _means(of_third, value, "class", "third").with_columns(measure=pl.lit(measure))


def lead_parts(positives: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield what the positives of each class contribute to the average precision of a query; parts add up to it."""
    for name in ("all", *kit.CLASSES):
        part = pl.when(pl.lit(name == "all") | (pl.col("class") == name)).then("precision").otherwise(0.0)
        yield _means(positives, part.mean()).with_columns(pl.lit(name).alias("class"))


def shares_table(frame: pl.DataFrame) -> kit.Table:
    """Return the share of each class in the positives, by third."""
    notes = (
        "Percent of a query's positives, mean over queries; brackets: 95% interval over queries.",
        "Thirds: of all positives by citation count. Resolution: what tells authors apart.",
    )
    label = "resolution, positives: {resolution}, {class}"
    return kit.table("shares", "By whom the positives are", frame, label, kit.figure(), notes, across="{third}")


def scores_table(frame: pl.DataFrame, baseline: str) -> kit.Table:
    """Return the scores of each class with the differences from the baseline; the CSV file has them by third too."""
    notes = (
        "In percent. Positives of other classes are left out of the qrels: neither relevant nor negative. "
        "Queries: those with a positive of the class (and third); the others are left out.",
        f"Lead: points over {baseline} on the same queries. Brackets: 95% interval over queries. p: paired permutation "
        "test, with Holm's correction over all classes and thirds of a measure and resolution.",
    )
    lead = kit.points("difference", "difference_low", "difference_high")
    shown: kit.Columns = {
        "queries": "{items:,}", "value": kit.figure(),
        "lead": lambda row: None if row["difference"] is None else lead(row), "p, Holm": "{p_adjusted:.4f}",
    }  # fmt: skip
    label = "resolution, positives, system: {resolution}, {class}, {label}"
    frame = frame.sort("resolution", maintain_order=True)
    rows, title = frame.filter(third="all"), "Scores by class of the positives"
    return kit.table("classes", title, frame, label, shown, notes, rows=rows, across="{measure}")


def leads_table(frame: pl.DataFrame, baseline: str) -> kit.Table:
    """Return what the positives of each class contribute to the lead of each system."""
    notes = (
        f"Points of MAP over {baseline} that come from the positives of a class, all positives being relevant: the "
        "classes add up to all. Brackets: 95% interval over queries.",
    )
    rows, show = frame.drop_nulls("difference"), kit.points("difference", "difference_low", "difference_high")
    title, label = "Which class a lead comes from", "resolution, system: {resolution}, {label}"
    return kit.table("leads", title, frame, label, show, notes, rows=rows, across="{class}")
