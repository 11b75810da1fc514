"""What a page shows, in a few sentences from its main table and the tests of that table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.measure.measures import sign_of
from pipeline.measure.permutation import least_p_value
from pipeline.scores.average import AVERAGE, FINDINGS
from pipeline.scores.caption import scope
from pipeline.scores.facts import applied
from pipeline.scores.layout import cell_of, runs_behind
from pipeline.scores.notes import gap_in_abstracts
from pipeline.scores.sources import cited_until, trainings_of
from pipeline.scores.tables import label_of, points
from pipeline.stages.systems import TUNED
from pipeline.stages.tune import LIMITS_K1

_NAMED = 4
"""Maximum number of systems that a sentence names; it counts the others."""

_FEW = 50
"""Queries below which their number is named as a limit."""


def headline(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the first measure in the mean over fields, else on the largest pool of the first table."""
    rows = summary.filter(measure=summary["measure"][0])
    means = rows.filter(field=AVERAGE)
    if not means.is_empty():
        return means.filter(table=means["table"][0])
    return rows.filter(table=rows["table"][0]).filter(pl.col("size") == pl.col("size").max())


def best_row(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row with the best mean, of rows of a summary that have one measure; of equals the first."""
    down = sign_of(rows["measure"][0]) > 0
    best: dict[str, Any] = rows.sort("value", descending=down, maintain_order=True).row(0, named=True)
    return best


def findings(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, ...]:
    """Return what a summary shows by its first measure: the best row, tested differences, and what limits them."""
    rows = headline(summary)
    best, of_rows = best_row(rows), runs_behind(rows, runs)
    where = "mean over fields" if best["field"] == AVERAGE else scope(of_rows.row(0, named=True))
    where += "" if best["size"] is None else f", {format_count(best['size'])} candidates"
    systems, end = rows["label"].n_unique(), "highest" if sign_of(best["measure"]) > 0 else "lowest"
    rank = "" if systems == 1 else f", the {end} of {systems} systems"
    figure = f"{label_of(best['measure'])} {cell_of(best).plain} ({where}, {counted(best['queries'], 'query')})"
    tested = rows.filter(pl.col("p_value").is_not_null())
    return (
        f"{best['label']} has {figure}{rank}.",
        *_tested(tested, "the paired test"),
        *_limits(of_rows, best, tested),
    )


def findings_of_pair(differences: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, ...]:
    """Return what a comparison shows by its first measure (:data:`pipeline.scores.compare.DIFFERENCES`), and limits."""
    first = differences.filter(measure=differences["measure"][0])
    row = max(first.rows(named=True), key=lambda row: (row["field"] == AVERAGE, not row["field"], row["size"] or 0))
    where = row["scope"] + ("" if row["size"] is None else f", {format_count(row['size'])} candidates")
    of_pair = pl.DataFrame([row], schema=differences.schema).select(
        pl.exclude("low", "high"), label="second", baseline="first", difference_low="low", difference_high="high"
    )
    of_pair = of_pair.with_columns(alpha=1 - pl.col("level"))
    tested = _tested(of_pair, f"{label_of(row['measure'])} ({where}, {counted(row['queries'], 'query')})")
    pools = first.filter(pl.col("field").ne_missing(AVERAGE))["finding"]
    counts = ", ".join(f"{name} on {count}" for name, count in pools.value_counts(sort=True).iter_rows())
    return (*tested, *([f"On {len(pools)} pools: {counts}."] if len(pools) > 1 else []), *_limits(runs, row, of_pair))


def _tested(tested: pl.DataFrame, by: str) -> Iterator[str]:
    """Yield the sentence on the differences of some rows from their baseline, by what the test shows."""
    better, worse, equivalent, unknown = FINDINGS
    texts = dict[str, list[str]]()
    for row in tested.iter_rows(named=True):
        finding, low, high = (row[name] for name in ("finding", "difference_low", "difference_high"))
        details = [points((row["difference"], low, high)), f"p {row['p_adjusted']:.2g}"]
        if finding != equivalent and low is not None and (low > 0 or high < 0) != (finding != unknown):
            details.append("test and interval disagree")
        if finding == unknown and row["detectable"] is not None:
            details.append(f"detectable {100 * row['detectable']:.1f}")
        texts.setdefault(finding, []).append(f"{row['label']} ({', '.join(details)})")
    if not texts:
        return
    base, margin = tested["baseline"][0], tested["margin"][0]
    words = {better: f"better than {base}", worse: f"worse than {base}"}
    words |= {equivalent: f"equivalent to {base} within {margin or 0:g} points"}
    words |= {unknown: f"no difference from {base} is shown for"}
    shown = (f"{words[name]}: {_listed(texts[name])}" for name in FINDINGS if name in texts)
    yield f"By {by}, in points, {'; '.join(shown)}."


def _limits(runs: pl.DataFrame, row: Mapping[str, Any], tested: pl.DataFrame) -> Iterator[str]:
    """Yield the sentence on what limits the figures of some rankings; none if nothing does."""
    limits = [f"{counted(row['queries'], 'query')} are few"] if row["queries"] < _FEW else []
    least = (least_p_value(test["queries"], test["permutations"]) * test["tests"] for test in tested.rows(named=True))
    if any(smallest >= alpha for smallest, alpha in zip(least, tested["alpha"], strict=True)):
        limits.append("so few queries that no test can show a difference")
    year = applied(runs.row(0, named=True)).get("year")
    unknown, late = [], []
    for run in runs.unique("label", maintain_order=True).iter_rows(named=True):
        trainings = list(trainings_of(run).values())
        last = cited_until(trainings) or 0
        unknown += [run["label"]] if not all(training.on for training in trainings) else []
        late += [f"{run['label']} (to {last})"] if year and last >= year else []
    if late:
        limits.append(f"training data may hold the citations of the queries of {year}: {_listed(late)}")
    if unknown:
        limits.append(f"the training data of {_listed(unknown)} is unknown")
    limits += [gap] if (gap := gap_in_abstracts(runs)) else []
    absent = runs.unique("pool")["positives_not_in_collection"].sum()
    limits += [f"{absent:,} positives are not in the collection"] if absent else []
    edge = runs.filter(pl.col("also").list.contains(TUNED), pl.col("k1").is_in(LIMITS_K1))
    if not edge.is_empty():
        limits.append(f"{edge['label'][0]} was tuned to the edge of the grid (k1={edge['k1'][0]:g})")
    if limits:
        yield f"Limits: {'; '.join(limits)}."


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts with commas, and the number of others."""
    named = texts[:_NAMED]
    return ", ".join(named) + (f" and {counted(len(texts) - _NAMED, 'other')}" if len(texts) > _NAMED else "")
