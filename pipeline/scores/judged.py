"""Tables of measures by judgements, beside those by citations: of systems, of their differences, and of relevance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs

from pipeline.core.artifact import Artifact, oldest_first, published
from pipeline.core.config import counted
from pipeline.core.workspace import JUDGED
from pipeline.measure.design import DIFFERENCE as DIFFERENCES
from pipeline.measure.design import ESTIMATE, Design, estimate
from pipeline.measure.judged import BANDS, ENOUGH, FEWEST, Estimate, by_queries, greatest, mean_of_pairs
from pipeline.measure.measures import parse_measures
from pipeline.measure.resampling import Floats
from pipeline.scores.tables import DIFFERENCE, Cell, Column, Table, cell, frame_table, grid, label_of
from pipeline.stages.judge import labels_of, pairs_of
from pipeline.stages.judged import BY_CITATIONS, BY_MODEL, VALUES

BY = {"judged": VALUES, "citations": BY_CITATIONS}
"""Files of the measures by what decides relevance."""

_NOTES = {
    "pairs": "judged: estimated for all queries from the labels of a random part of the pairs",
    "queries": "judged: estimated for all queries from those judged in full, corrected by what citations say of the "
    "others; a query without a relevant paper counts as 0",
}
_NOTE = (
    " (docs/judging.md). citations: the same measures with the pool's positives alone. Brackets: 95% interval over "
    "queries and, for judged, the draw. Papers beyond the first {ranks} ranks of every system that no query cites "
    "count as not relevant."
)
_FEW = (
    f"Fewer than {FEWEST} queries are judged in full: too few to conclude, so estimates have no interval.",
    f"Fewer than {ENOUGH} queries are judged in full: intervals of a system may be too narrow. With 20 judged queries, "
    "92 to 97% of them held the true value in simulations (docs/judging.md).",
)


def stored_judged(root: Path, stage: str) -> list[Artifact]:
    """Return the artifacts of a stage of judgements (``draw``, ``labels``, ``judged``), oldest first."""
    return oldest_first(artifact for artifact in published(root / JUDGED) if artifact.manifest.stage == stage)


def judged_frame(judged: Artifact) -> pl.DataFrame:
    """Return the estimates of an artifact of stage ``judged``, a row for each system, measure and kind of relevance.

    Columns ``by`` (a key of :data:`BY`), ``system``, ``measure``, those of
    :data:`pipeline.measure.design.ESTIMATE` and, against the first system, :data:`pipeline.measure.design.DIFFERENCE`.
    """
    citations, first = pl.DataFrame(judged.arrow(BY_CITATIONS)), judged.manifest.config["systems"][0]
    found = estimate(citations.with_columns(by=pl.lit("citations")), Design(row=("system",), of=("by",)), 0, (first,))
    predictors = [citations, *(pl.DataFrame(judged.arrow(file.path)) for file in judged.outputs(BY_MODEL))]
    of_labels = _by_labels(judged, predictors, first)
    return pl.concat([of_labels, found.select(of_labels.columns)])


def _by_labels(judged: Artifact, predictors: Sequence[pl.DataFrame], baseline: str) -> pl.DataFrame:
    """Return the estimates from labels, columns as those of :func:`pipeline.measure.design.estimate`."""
    people, queries = pl.DataFrame(judged.arrow(VALUES)), judged.manifest.counts["queries"]

    def values(frame: pl.DataFrame, system: str, measure: str) -> Floats:
        array, of = np.full(queries, np.nan), frame.filter(system=system, measure=measure)
        array[of["query"]] = of["value"]
        return array

    def mean(measure: str, own: Floats, *known: Floats, difference: bool = False) -> Estimate:
        if judged.manifest.config["design"] == "queries":
            return by_queries(own, np.stack(known), difference=difference)
        return mean_of_pairs(
            own, most=greatest(parse_measures(measure)[0], judged.manifest.counts["grades"]), difference=difference
        )

    rows = []
    for measure, system in people.select("measure", "system").unique(maintain_order=True).rows():
        own, first = ([values(frame, name, measure) for frame in (people, *predictors)] for name in (system, baseline))
        items, of_system = int(np.isfinite(own[0]).sum()), mean(measure, *own)
        row = {"by": "judged", "system": system, "measure": measure, "value": of_system.value, "low": of_system.low}
        row |= {"high": of_system.high, "items": items, "units": items, "interval": "Student's t"}
        if system != baseline:
            less = [one - other for one, other in zip(own, first, strict=True)]
            of_pair = mean(measure, *less, difference=True)
            row |= {"difference": of_pair.value, "difference_low": of_pair.low, "difference_high": of_pair.high}
            row |= {"error": of_pair.error}
        rows.append(row)
    keys = {"by": pl.String, "system": pl.String, "measure": pl.String}
    return pl.DataFrame(rows, keys | ESTIMATE | DIFFERENCES, orient="row").with_columns(cs.float().fill_nan(None))


def stands_on(judged: Artifact) -> str:
    """Return how many judgements stand behind the figures, as a sentence."""
    counts = judged.manifest.counts
    annotators = counted(counts["annotators"], "annotator")
    people = f"{counts['judged']:,} of {counts['pairs']:,} pairs judged by {annotators}"
    if judged.manifest.config["design"] == "queries":
        people += f", {counts['queries_judged']:,} of {counts['queries']:,} queries in full"
    return people + (f", {counts['by_model']:,} pairs by a model (PPI++)." if counts["by_model"] else ".")


def judged_tables(judged: Artifact, draw: Artifact, labels: Artifact) -> Iterator[Table]:
    """Yield the tables of an artifact of stage ``judged``: measures, differences from the first system, relevance."""
    frame, first = judged_frame(judged), judged.manifest.config["systems"][0]
    counts, design = judged.manifest.counts, judged.manifest.config["design"]
    people = ", ".join(name for name, _ in labels.manifest.config["people"])
    notes = [
        _NOTES[design] + _NOTE.format(ranks=counts["ranks"]),
        f"{stands_on(judged)} Labels: {people} ({labels.name}).",
    ]
    if design == "queries" and counts["queries_judged"] < ENOUGH:
        notes.append(_FEW[counts["queries_judged"] >= FEWEST])
    if counts.get("queries_in_part"):
        notes.append(f"{counted(counts['queries_in_part'], 'query')} with labels of some pairs alone left out.")
    outside = {name: count for name, count in counts["outside"].items() if count}
    if outside:
        texts = ", ".join(f"{count:,} of {name}" for name, count in outside.items())
        notes.append(f"Pairs of the first ranks that were no part of the draw, and count as not relevant: {texts}.")
    cells, differences = dict[tuple[str, Column], Cell | None](), dict[tuple[str, Column], Cell | None]()
    for row in itertools.chain.from_iterable(of.rows(named=True) for of in frame.partition_by("measure")):
        column = Column(label_of(row["measure"]), row["by"])
        cells[row["system"], column] = cell(row["value"], row["low"], row["high"])
        if row["difference"] is not None:
            figures = (row[name] for name in ("difference", "difference_low", "difference_high"))
            differences[f"{row['system']} minus {first}", column] = cell(*figures, form=DIFFERENCE)
    pool = judged.manifest.slug.removeprefix("judged-")
    yield grid("judged", f"Measures by judgements: {pool}", "system", cells, notes, frame)
    if differences:
        yield grid("judged-differences", f"Differences by judgements: {pool}", "pair", differences, notes[:1])
    yield relevance_table(draw, labels)


def relevance_table(draw: Artifact, labels: Artifact) -> Table:
    """Return how often cited and uncited papers are relevant, by the best rank of any system."""
    share = (pl.col("grade") >= 1).mean().alias("relevant")
    by_people = labels_of(labels).filter(~pl.col("machine")).group_by("query", "row").agg(share)
    pairs = pairs_of(draw).join(by_people, on=["query", "row"]).with_columns(weight=1 / pl.col("probability"))
    hajek = 100 * pl.col("relevant").dot("weight") / pl.col("weight").sum()
    kind = pl.when("cited").then(pl.lit("cited")).otherwise(pl.lit("not cited")).alias("pairs")
    ranks = pl.col("band").replace_strict({**dict(enumerate(map(str, BANDS))), len(BANDS): "not ranked"})
    frame = pairs.group_by(kind, "band").agg(judged=pl.len(), relevant=hajek).sort("pairs", "band")
    notes = [
        "Percent of judged pairs with a grade of 1 or more, weighted by one over the probability of being drawn "
        "(Hajek), in bands of the best rank of any system."
    ]
    shown = frame.select("pairs", ranks.alias("from rank"), "judged", "relevant")
    return frame_table("judged-relevance", "Relevance of cited and uncited papers", frame, notes, shown=shown)


def price_table(prices: pl.DataFrame) -> Table:
    """Return the prices of both designs (:func:`pipeline.stages.judge.prices`), before labelling."""
    points = {name: (100 * pl.col(name)).round(1) for name in ("system", "difference")}
    shown = prices.select(
        pl.format("{}, {} labels", "design", "labels").alias("design"), "measure",
        *(of.map_elements("± {:.1f}".format, pl.String).alias(name) for name, of in points.items()),
        pl.col("needed").cast(pl.String).fill_null("all are too few").alias("labels for ± 2"),
    )  # fmt: skip
    both = {row["design"]: row for row in prices.filter(measure="precision@10").rows(named=True)}
    labels, width = both["pairs"]["labels"], "system" if both["pairs"]["difference"] is None else "difference"
    scaled = both["queries"][width] * (both["queries"]["labels"] / labels) ** 0.5
    halves = {"pairs": 100 * both["pairs"][width], "queries": 100 * scaled}
    best = min(halves, key=halves.__getitem__)
    other = {"pairs": "queries", "queries": "pairs"}[best]
    notes = [
        "Half-widths of 95% intervals in points, expected if people find papers relevant as often as they are cited. "
        "system: of the widest one; difference: of the first two systems; labels for ± 2: of the difference.",
        f"Recommended: --design={best} for precision@10 (± {halves[best]:.1f} with {labels:,} labels, --design={other} "
        f"± {halves[other]:.1f}); --design=queries for recall, MAP and nDCG, which single pairs cannot tell.",
    ]
    return frame_table("prices", "What the labels will tell", prices, notes, shown=shown)
