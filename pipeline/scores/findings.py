"""What a page shows, in three to six sentences made from its figures."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.measure.measures import sign_of
from pipeline.scores.average import AVERAGE, Draws
from pipeline.scores.caption import flatten, scope
from pipeline.scores.compare import compare
from pipeline.scores.labels import trainings_of
from pipeline.scores.layout import runs_of
from pipeline.scores.notes import differ_in_abstracts
from pipeline.scores.tables import Table, label_of, percent
from pipeline.stages.tune import LIMITS_K1

_NAMED = 4
"""Systems that a sentence names; it counts the others."""

_FEW = 50
"""Queries below which their number is named as a limit."""


def headline(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the first measure in the mean over fields, else on the largest pool of the first table."""
    first = summary.filter(measure=summary["measure"][0])
    means = first.filter(field=AVERAGE)
    if not means.is_empty():
        return means.filter(table=means["table"][0])
    return first.filter(table=first["table"][0]).filter(pl.col("size") == pl.col("size").max())


def findings(summary: pl.DataFrame, scores: pl.DataFrame, runs: pl.DataFrame, draws: Draws) -> tuple[str, ...]:
    """Return what a summary shows by its first measure: the best system, differences from the baseline, and limits.

    Differences have the intervals of :func:`pipeline.scores.compare.compare`, and the tests of the summary.
    """
    rows = headline(summary)
    measure, best = rows["measure"][0], _best(rows)
    place = _place(rows.row(0, named=True), runs_of(rows, runs))
    figure = f"{percent(best['value'])} [{percent(best['low'])}, {percent(best['high'])}]"
    sentences = [
        f"By {label_of(measure)} ({place}, {best['queries']:,} queries), {best['label']} has {figure}"
        + (", the best of " + f"{rows['label'].n_unique()} systems." if rows["label"].n_unique() > 1 else ".")
    ]
    tested = rows.filter(pl.col("p_value").is_not_null()).rows(named=True)
    widths: list[float] = []
    for base in dict.fromkeys(row["baseline"] for row in tested):
        texts: dict[str, list[str]] = {"marked": [], "equivalent": [], "other": []}
        for row in (row for row in tested if row["baseline"] == base):
            difference = _difference(row, scores, draws)
            kind = "marked" if row["marked"] else "equivalent" if _is_equivalent(row) else "other"
            texts[kind].append(f"{row['label']} ({_signed(difference)}, p {row['p_adjusted']:.2g})")
            widths += [(difference["high"] - difference["low"]) / 2] if kind == "other" else []
        sentences += (
            [f"Better or worse than {base} (paired test): {_listed(texts['marked'])}."] if texts["marked"] else []
        )
        if texts["equivalent"]:
            sentences.append(
                f"Equivalent to {base} within {100 * tested[0]['margin']:g} points: {_listed(texts['equivalent'])}."
            )
        if texts["other"]:
            sentences.append(f"No difference from {base} is shown for {_listed(texts['other'])}.")
    sentences += _elsewhere(summary, rows)
    limits = limits_of(runs_of(rows, runs), best["queries"])
    limits += [f"differences below about {100 * max(widths):.1f} points cannot be seen with these queries"] * bool(
        widths
    )
    return (*sentences, *_limits_sentence(limits))


def findings_of_pair(differences: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, ...]:
    """Return what a comparison of two systems shows, and its limits; columns of ``differences`` as in compare."""
    first = differences.filter(measure=differences["measure"][0])
    row = max(first.rows(named=True), key=lambda row: (row["field"] == AVERAGE, row["size"] or 0))
    where = row["scope"] + ("" if row["size"] is None else f" {format_count(row['size'])}")
    sentences = [
        f"By {label_of(row['measure'])} ({where}, {row['queries']:,} queries), {row['second']} has "
        f"{percent(row['second_value'])} and {row['first']} {percent(row['first_value'])}: {_signed(row)} points, "
        f"p {row['p_adjusted']:.2g}, {row['finding']}.",
        f"{row['second']} is better on {row['wins']:,} queries, the same on {row['ties']:,}, "
        f"worse on {row['losses']:,}.",
    ]
    others = first.filter(pl.col("field").ne_missing(AVERAGE))
    if len(others) > 1:
        counts = others.group_by("finding", maintain_order=True).len().iter_rows()
        sentences.append(f"Of {len(others)} pools: {', '.join(f'{name} on {count}' for name, count in counts)}.")
    limits = limits_of(runs, row["queries"])
    if row["finding"] == "no difference shown":
        width = 50 * (row["high"] - row["low"])
        limits.append(f"differences below about {width:.1f} points cannot be seen with these queries")
    return (*sentences, *_limits_sentence(limits))


def findings_of_table(table: Table) -> tuple[str, ...]:
    """Return which rows of a table have its best figures, and where its tests show a difference."""
    cells = [
        (line.label, column, value)
        for line in table.lines
        if not line.summary
        for column, value in zip(table.columns, line.values, strict=True)
        if not isinstance(value, str | None)
    ]
    best = [(label, column, cell) for label, column, cell in cells if cell.best]
    title = table.title.partition(" (")[0]
    sentences = []
    for name, count, (column, cell) in _counted(best):
        where = " ".join(filter(None, (column.group, column.label)))
        sentences.append(f"{title}: {name} is best in {count} of {len(best)} comparisons, such as {where} with {cell}.")
    marked = sum("†" in cell.marks for _, _, cell in cells)
    sentences += [f"{marked} of {len(cells)} figures differ from the baseline (†)."] if marked else []
    return tuple(sentences)


def _counted(best: Sequence[tuple[str, Any, Any]]) -> Iterator[tuple[str, int, tuple[Any, Any]]]:
    """Yield the two labels with the most best figures, their counts and their first figures."""
    by_label: dict[str, list[tuple[Any, Any]]] = {}
    for label, column, cell in best:
        by_label.setdefault(label, []).append((column, cell))
    for label in sorted(by_label, key=lambda label: -len(by_label[label]))[:2]:
        yield label, len(by_label[label]), by_label[label][0]


def limits_of(runs: pl.DataFrame, queries: int) -> list[str]:
    """Return what limits the figures of some rankings: queries, training data, texts, and tuning."""
    limits = [f"only {queries} queries"] if queries < _FEW else []
    year = flatten(json.loads(runs["pool_settings"][0])).get("year")
    labels = dict(runs.select("label", "system").unique(maintain_order=True).iter_rows())
    lasts = {
        label: max((t.until or 0 for t in trainings_of(system).values()), default=0) for label, system in labels.items()
    }
    late = [f"{label} (to {last})" for label, last in lasts.items() if year and last >= year]
    if late:
        limits.append(f"training data may hold the citations of the queries of {year}: {_listed(late)}")
    gaps = [json.loads(text) for text in runs.unique("pool", maintain_order=True)["metadata_gaps"]]
    totals = {
        role: (sum(gap[role]["without_abstract"] for gap in gaps), sum(gap[role]["papers"] for gap in gaps))
        for role in ("positives", "negatives")
        if gaps and all(role in gap for gap in gaps)
    }
    if any(differ_in_abstracts(json.dumps(gap)) for gap in gaps) and len(totals) == 2:
        shares = [f"{count / max(papers, 1):.1%} of the {role}" for role, (count, papers) in totals.items()]
        limits.append(f"{' and '.join(shares)} have no abstract")
    edge = runs.filter(pl.col("k1").is_in(LIMITS_K1), ~pl.col("system").str.contains("k1=", literal=True))
    if not edge.is_empty():
        names = ", ".join(edge["label"].unique(maintain_order=True))
        limits.append(f"{names} was tuned at the edge of the grid (k1={edge['k1'][0]:g})")
    return limits


def _limits_sentence(limits: Sequence[str]) -> tuple[str, ...]:
    return (f"Limits: {'; '.join(limits)}.",) if limits else ()


def _best(rows: pl.DataFrame) -> dict[str, Any]:
    return rows.sort("value", descending=sign_of(rows["measure"][0]) > 0, maintain_order=True).row(0, named=True)


def _place(row: Mapping[str, Any], runs: pl.DataFrame) -> str:
    where = "mean over fields" if row["field"] == AVERAGE else scope(runs.row(0, named=True))
    return where if row["size"] is None else f"{where}, {format_count(row['size'])} candidates"


def _difference(row: Mapping[str, Any], scores: pl.DataFrame, draws: Draws) -> Mapping[str, Any]:
    """Return the difference of a row of a summary from its baseline, with its interval."""
    of_pair = scores.filter(pl.col("pool").is_in(row["pools"]), pl.col("label").is_in([row["baseline"], row["label"]]))
    differences = compare(of_pair, row["baseline"], row["label"], [row["measure"]], draws)
    return differences.filter(pl.col("field").eq_missing(row["field"])).row(0, named=True)


def _is_equivalent(row: Mapping[str, Any]) -> bool:
    return row["p_equivalent"] is not None and row["p_equivalent"] < row["alpha"]


def _elsewhere(summary: pl.DataFrame, rows: pl.DataFrame) -> Iterator[str]:
    """Yield in how many of the other fields or sizes of its table the best tested system differs from the baseline."""
    tested = rows.filter(pl.col("p_value").is_not_null())
    if tested.is_empty():
        return
    best = _best(tested)
    of_system = summary.filter(table=best["table"], measure=best["measure"], label=best["label"])
    others = of_system.filter(pl.col("field").ne_missing(AVERAGE), pl.col("p_value").is_not_null())
    if len(others) > 1:
        kind = "fields" if best["over"] == "fields" else "pool sizes"
        names = [
            row["field"] if best["over"] == "fields" else format_count(row["size"])
            for row in others.filter(~pl.col("marked")).iter_rows(named=True)
        ]
        missing = f"; not in {_listed(names)}" if names else ""
        yield f"{best['label']} differs from {best['baseline']} in {others['marked'].sum()} of {len(others)} {kind}{missing}."


def _signed(row: Mapping[str, Any]) -> str:
    return f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def _listed(texts: Iterable[str]) -> str:
    """Return the first texts with commas, and the number of others."""
    shown = list(texts)
    named = ", ".join(itertools.islice(shown, _NAMED))
    return named if len(shown) <= _NAMED else f"{named} and {len(shown) - _NAMED} others"
