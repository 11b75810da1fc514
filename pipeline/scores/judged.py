"""Tables of measures by judgements, beside those by citations: of systems, of their differences, and of relevance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from pipeline.core.artifact import Artifact, oldest_first, published
from pipeline.core.config import SHORT_ID, counted
from pipeline.core.workspace import JUDGED
from pipeline.measure.design import Design, estimate
from pipeline.measure.judged import BANDS
from pipeline.scores.tables import DIFFERENCE, Cell, Column, Table, cell, frame_table, grid, label_of
from pipeline.stages.judge import BY_CITATIONS, VALUES, labels_of, pairs_of

BY = {"judged": VALUES, "citations": BY_CITATIONS}
"""Files of the measures by what decides relevance."""

NOTE = (
    "judged: estimated from labels of a random part of the pairs (docs/judging.md); citations: the same measures with "
    "the pool's positives alone. Brackets: 95% interval over queries and, for judged, draws of pairs together. "
    "Papers beyond the first {ranks} ranks of every system that no query cites count as not relevant."
)


def stored_judged(root: Path, stage: str) -> list[Artifact]:
    """Return the artifacts of a stage of judgements (``draw``, ``labels``, ``judged``), oldest first."""
    return oldest_first(artifact for artifact in published(root / JUDGED) if artifact.manifest.stage == stage)


def judged_frame(judged: Artifact) -> pl.DataFrame:
    """Return the estimates of an artifact of stage ``judged``, a row for each system, measure and kind of relevance.

    Columns ``by`` (a key of :data:`BY`), ``system``, ``measure``, those of
    :data:`pipeline.measure.design.ESTIMATE` and, against the first system, :data:`pipeline.measure.design.DIFFERENCE`.
    """
    values = pl.concat(pl.DataFrame(judged.arrow(file)).with_columns(pl.lit(by).alias("by")) for by, file in BY.items())
    design = Design(row=("system",), of=("by",))
    return estimate(values, design, 0, (judged.manifest.config["systems"][0],))


def stands_on(judged: Artifact) -> str:
    """Return how many judgements stand behind the figures, as a sentence."""
    counts = judged.manifest.counts
    annotators = counted(counts["annotators"], "annotator")
    people = f"{counts['judged']:,} of {counts['pairs']:,} pairs judged by {annotators}"
    return people + (f", {counts['by_model']:,} by a model (PPI++)." if counts["by_model"] else ".")


def judged_parts(runs: pl.DataFrame) -> Iterator[Table]:
    """Yield the tables of the newest judgements of each pool of some rankings, for a page.

    ``runs`` has the columns :data:`pipeline.scores.frames.RUNS`.
    """
    for (workspace,), of_workspace in runs.drop_nulls("workspace").group_by("workspace", maintain_order=True):
        root = Path(str(workspace))
        pools = {name[-SHORT_ID:]: number for number, name in enumerate(of_workspace["pool"].unique().sort())}
        stored = stored_judged(root, "judged")
        newest = {artifact.manifest.inputs["pool"][:SHORT_ID]: artifact for artifact in stored}
        by_id = {artifact.id: artifact for stage in ("draw", "labels") for artifact in stored_judged(root, stage)}
        for pool, judged in newest.items():
            inputs = [by_id.get(judged.manifest.inputs[name]) for name in ("draw", "labels")]
            if pool in pools and None not in inputs:
                several = sum(one.manifest.inputs["pool"] == judged.manifest.inputs["pool"] for one in stored) > 1
                used = [f"Of several judgements the newest: {judged.name}."] * several
                for table in judged_tables(judged, *filter(None, inputs)):
                    table = replace(table, notes=(*table.notes, *used))
                    yield replace(table, name=f"{table.name}-{pools[pool] + 1}" if len(pools) > 1 else table.name)


def judged_tables(judged: Artifact, draw: Artifact, labels: Artifact) -> Iterator[Table]:
    """Yield the tables of an artifact of stage ``judged``: measures, differences from the first system, relevance."""
    frame, first = judged_frame(judged), judged.manifest.config["systems"][0]
    notes = [NOTE.format(ranks=judged.manifest.counts["ranks"]), stands_on(judged)]
    outside = {name: count for name, count in judged.manifest.counts["outside"].items() if count}
    if outside:
        texts = ", ".join(f"{count:,} of {name}" for name, count in outside.items())
        notes.append(f"Pairs of the first ranks that were no part of the draw, and count as not relevant: {texts}.")
    cells, differences = dict[tuple[str, Column], Cell | None](), dict[tuple[str, Column], Cell | None]()
    for row in itertools.chain.from_iterable(of.rows(named=True) for of in frame.partition_by("measure")):
        column = Column(label_of(row["measure"]), row["by"])
        cells[row["system"], column] = cell(row["value"], row["low"], row["high"])
        if row["difference"] is not None:
            figures = (row[name] for name in ("difference", "difference_low", "difference_high"))
            differences[f"{row['system']} less {first}", column] = cell(*figures, form=DIFFERENCE)
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
