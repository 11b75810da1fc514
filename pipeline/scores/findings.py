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
from pipeline.scores.facts import effective
from pipeline.scores.layout import cell_of, runs_behind
from pipeline.scores.sources import cited_until, trainings_of
from pipeline.scores.tables import label_of, points

_NAMED = 4
"""Maximum number of systems that a sentence names; it counts the others."""

_FEW = 50
"""Queries below which their number is named as a limit."""


def headline(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the first measure in the mean over fields, else on the largest pool of the first table."""
    rows = summary.filter(measure=summary["measure"][0])
    means = rows.filter(field=AVERAGE)
    rows = rows.filter(table=(rows if means.is_empty() else means)["table"][0])
    return rows.filter(field=AVERAGE) if len(means) else rows.filter(pl.col("size") == pl.col("size").max())


def best_of(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[dict[str, Any], str]:
    """Return the row of :func:`headline` with the best mean, of equals the first, and where it is, in words."""
    rows = headline(summary)
    down = sign_of(rows["measure"][0]) > 0
    best = rows.sort("value", descending=down, maintain_order=True).row(0, named=True)
    over = "mean over fields" if best["field"] == AVERAGE else scope(runs_behind(rows, runs).row(0, named=True))
    return best, over + ("" if best["size"] is None else f", {format_count(best['size'])} candidates")


def findings(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, ...]:
    """Return what a summary shows by its first measure: the best row, tested differences, and what limits them."""
    rows, (best, where) = headline(summary), best_of(summary, runs)
    systems, end = rows["label"].n_unique(), "highest" if sign_of(best["measure"]) > 0 else "lowest"
    rank = "" if systems == 1 else f", the {end} of {systems} systems"
    figure = f"{label_of(best['measure'])} {cell_of(best).plain} ({where}, {counted(best['queries'], 'query')})"
    tested = rows.filter(pl.col("p_value").is_not_null())
    return (
        f"{best['label']} has {figure}{rank}.",
        *_tested(tested),
        *_limits(runs_behind(rows, runs), best, tested),
    )


def _tested(tested: pl.DataFrame) -> Iterator[str]:
    """Yield the sentence on the differences of some rows from their baseline, by what the paired test shows."""
    better, worse, unknown = FINDINGS
    texts = dict[str, list[str]]()
    for row in tested.iter_rows(named=True):
        finding, low, high = (row[name] for name in ("finding", "difference_low", "difference_high"))
        details = [points((row["difference"], low, high)), f"p {row['p_adjusted']:.2g}"]
        if low is not None and (low > 0 or high < 0) != (finding != unknown):
            details.append("test and interval disagree")
        if finding == unknown and row["detectable"] is not None:
            details.append(f"detectable {100 * row['detectable']:.1f}")
        texts.setdefault(finding, []).append(f"{row['label']} ({', '.join(details)})")
    if not texts:
        return
    base = tested["baseline"][0]
    words = {better: f"better than {base}", worse: f"worse than {base}"}
    words |= {unknown: f"no difference from {base} is shown for"}
    shown = (f"{words[name]}: {_listed(texts[name])}" for name in FINDINGS if name in texts)
    yield f"By the paired test, in points, {'; '.join(shown)}."


def _limits(runs: pl.DataFrame, row: Mapping[str, Any], tested: pl.DataFrame) -> Iterator[str]:
    """Yield the sentence on what limits the figures of some rankings; none if nothing does."""
    limits = [f"{counted(row['queries'], 'query')} are few"] if row["queries"] < _FEW else []
    least = (least_p_value(test["queries"], test["permutations"]) * test["tests"] for test in tested.rows(named=True))
    if any(smallest >= alpha for smallest, alpha in zip(least, tested["alpha"], strict=True)):
        limits.append("so few queries that no test can show a difference")
    year = effective(runs.row(0, named=True)).get("year")
    last_of = {run["label"]: cited_until(trainings_of(run).values()) or 0 for run in runs.iter_rows(named=True)}
    late = [f"{label} (to {last})" for label, last in last_of.items() if year and last >= year]
    if late:
        limits.append(f"training data may hold the citations of the queries of {year}: {_listed(late)}")
    if limits:
        yield f"Limits: {'; '.join(limits)}."


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts with commas, and the number of others."""
    named = texts[:_NAMED]
    return ", ".join(named) + (f" and {counted(len(texts) - _NAMED, 'other')}" if len(texts) > _NAMED else "")
