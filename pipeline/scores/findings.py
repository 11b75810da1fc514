"""What a page shows, in a few sentences from its main table and the tests of that table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.measure.measures import sign_of
from pipeline.scores.average import AVERAGE, FINDINGS
from pipeline.scores.caption import scope
from pipeline.scores.facts import effective
from pipeline.scores.layout import cell_of, runs_behind
from pipeline.scores.sources import cited_until, trainings_of
from pipeline.scores.tables import label_of, points

_NAMED = 4
"""Maximum number of systems that a sentence names; it counts the others."""


def best_of(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Any], str]:
    """Return the rows of the first measure in the mean over fields, else on the largest pool of the first table.

    Then the one with the best mean, of equals the first, and where it is, in words.
    """
    rows = summary.filter(measure=summary["measure"][0])
    means = rows.filter(field=AVERAGE)
    rows = rows.filter(table=(rows if means.is_empty() else means)["table"][0])
    rows = rows.filter(field=AVERAGE) if len(means) else rows.filter(pl.col("size") == pl.col("size").max())
    best = rows.sort("value", descending=sign_of(rows["measure"][0]) > 0, maintain_order=True).row(0, named=True)
    over = "mean over fields" if best["field"] == AVERAGE else scope(runs_behind(rows, runs).row(0, named=True))
    return rows, best, over + ("" if best["size"] is None else f", {format_count(best['size'])} candidates")


def findings(summary: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    """Return what a summary shows by its first measure: the best row, tested differences, and what limits them."""
    rows, best, where = best_of(summary, runs)
    systems, end = rows["label"].n_unique(), "highest" if sign_of(best["measure"]) > 0 else "lowest"
    rank = "" if systems == 1 else f", the {end} of {systems} systems"
    figure = f"{label_of(best['measure'])} {cell_of(best).plain} ({where}, {counted(best['queries'], 'query')})"
    sentences = [f"{best['label']} has {figure}{rank}."]
    texts = dict[str, list[str]]()
    for row in rows.filter(pl.col("p_value").is_not_null()).iter_rows(named=True):
        change = points(row[name] for name in ("difference", "difference_low", "difference_high"))
        texts.setdefault(row["finding"], []).append(f"{row['label']} ({change}, p {row['p_adjusted']:.2g})")
        base = row["baseline"]
    if texts:
        words = f"better than {base}", f"worse than {base}", f"no difference from {base} is shown for"
        named = dict(zip(FINDINGS, words, strict=True))
        shown = (f"{named[name]}: {_listed(texts[name])}" for name in FINDINGS if name in texts)
        sentences.append(f"By the paired test, in points, {'; '.join(shown)}.")
    own = runs_behind(rows, runs)
    year = effective(own.row(0, named=True)).get("year")
    last_of = {run["label"]: cited_until(trainings_of(run).values()) or 0 for run in own.iter_rows(named=True)}
    if late := [f"{label} (to {last})" for label, last in last_of.items() if year and last >= year]:
        sentences.append(f"Limits: training data may hold the citations of the queries of {year}: {_listed(late)}.")
    return sentences


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts with commas, and the number of others."""
    named = texts[:_NAMED]
    return ", ".join(named) + (f" and {counted(len(texts) - _NAMED, 'other')}" if len(texts) > _NAMED else "")
