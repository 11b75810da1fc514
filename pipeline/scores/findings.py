"""What a page shows, in three to six sentences made from its figures."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.measure.estimates import POWER
from pipeline.measure.measures import sign_of
from pipeline.measure.permutation import least_p_value
from pipeline.scores.average import AVERAGE, FINDINGS
from pipeline.scores.caption import scope
from pipeline.scores.facts import applied, gaps_of
from pipeline.scores.layout import cell_of, runs_behind
from pipeline.scores.notes import differ_in_abstracts
from pipeline.scores.sources import trainings_of
from pipeline.scores.tables import Cell, Table, label_of, percent, points
from pipeline.stages.systems import TUNED
from pipeline.stages.tune import LIMITS_K1

_BETTER, _WORSE, _EQUIVALENT, _UNKNOWN = FINDINGS

_NAMED = 4
"""Maximum number of systems, fields or sizes that a sentence names; it counts the others."""

_FEW = 50
"""Queries below which their number is named as a limit."""


def headline(summary: pl.DataFrame, measure: str = "") -> pl.DataFrame:
    """Return the rows of a measure (the first) in the mean over fields, else on the largest pool of the first table."""
    rows = summary.filter(measure=measure or summary["measure"][0])
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
    """Return what a summary shows by its first measure: the best system, differences from the baseline, and limits."""
    rows = headline(summary)
    best, of_rows = best_row(rows), runs_behind(rows, runs)
    tested = rows.filter(pl.col("p_value").is_not_null())
    bases = list(tested["baseline"].unique(maintain_order=True))
    against = [] if not bases else _against(tested.filter(baseline=bases[0]))
    if not bases:
        single = rows["label"].n_unique() == 1
        against = ["One system: there is nothing to test it against." if single else "No difference was tested."]
    limits = [_precision(best, label_of(best["measure"])), *_limits(of_rows, best, tested)]
    elsewhere = _elsewhere(summary, best_row(tested) if bases else best)
    return (_first(summary, best, of_rows), *against, *elsewhere, f"Limits: {'; '.join(limits)}.")


def findings_of_pair(differences: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, ...]:
    """Return what a comparison of two systems shows (:data:`pipeline.scores.compare.DIFFERENCES`), and its limits."""
    by_measure = differences.partition_by("measure", maintain_order=True)
    first = by_measure[0]
    row = max(first.rows(named=True), key=lambda row: (row["field"] == AVERAGE, not row["field"], row["size"] or 0))
    where = row["scope"] + ("" if row["size"] is None else f", {format_count(row['size'])} candidates")
    detectable = "" if row["detectable"] is None else f" (detectable {100 * row['detectable']:.1f})"
    finding = {
        _BETTER: f"{row['second']} is better",
        _WORSE: f"{row['first']} is better",
        _EQUIVALENT: f"equivalent within {row['margin'] or 0:g} points",
    }.get(row["finding"], f"no difference is shown{detectable}")
    sentences = [
        f"By {label_of(row['measure'])} ({where}, {counted(row['queries'], 'query')}), {row['second']} has "
        f"{percent(row['second_value'])} and {row['first']} {percent(row['first_value'])}, a difference of "
        f"{_interval(row)} points, p {_p(row['p_adjusted'])}: {finding}.",
        f"{row['second']} is better on {counted(row['wins'], 'query')}, the same on {row['ties']:,}, "
        f"worse on {row['losses']:,}.",
    ]
    others = first.filter(pl.col("field").ne_missing(AVERAGE))
    if len(others) > 1:
        counts = others.group_by("finding", maintain_order=True).len().iter_rows()
        sentences.append(f"On {len(others)} pools: {', '.join(f'{name} on {count}' for name, count in counts)}.")
    place = pl.col("field").eq_missing(row["field"]), pl.col("size").eq_missing(row["size"])
    named: dict[str, list[str]] = {}
    for other in (of_measure.filter(*place).row(0, named=True) for of_measure in by_measure[1:]):
        figure = f" ({_interval(other)})" if other["finding"] in (_BETTER, _WORSE) else ""
        named.setdefault(other["finding"], []).append(label_of(other["measure"]) + figure)
    if named:
        texts = [f"{name} by {_listed(named[name])}" for name in FINDINGS if name in named]
        sentences.append(f"By the other measures, {row['second']} against {row['first']}: {'; '.join(texts)}.")
    limits = [_precision(row, "the difference")]
    limits += _limits(runs, row, pl.DataFrame([row], schema=differences.schema).with_columns(alpha=1 - row["level"]))
    return (*sentences, f"Limits: {'; '.join(limits)}.")


def findings_of_tables(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return what tables without a summary show: rows with the best figures, and what their tests mark, or extremes."""
    of_best = next(filter(None, map(_of_best, tables)), [])
    extremes = list(itertools.islice(itertools.chain.from_iterable(map(_extremes, tables)), max(0, 3 - len(of_best))))
    untested = ["No test stands behind these figures."] if extremes and not of_best else []
    return (*of_best, *extremes, *untested)


def _of_best(table: Table) -> list[str]:
    cells = [
        (line.label, column, value)
        for line in table.lines
        if not line.summary
        for column, value in zip(table.columns, line.values, strict=True)
        if isinstance(value, Cell)
    ]
    best = [(label, column, cell) for label, column, cell in cells if cell.best]
    counts, sentences = Counter(label for label, _, _ in best), []
    for name, count in counts.most_common(2):
        column, cell = next((column, cell) for label, column, cell in best if label == name)
        where = column
        sentences.append(f"{name} has the best of {count} of {len(best)} comparisons, such as {where}: {cell}.")
    if sentences:
        marked = sum("†" in cell.marks for _, _, cell in cells)
        sentences[0] = f"{_short_title(table)}: {sentences[0]}"
        sentences.append(
            f"{marked} of {len(cells)} figures differ from the baseline by their test (†)."
            if marked
            else "No test marks these figures: the best are the largest, which does not show that they are larger."
        )
    return sentences


def _extremes(table: Table) -> Iterator[str]:
    """Yield the smallest and the largest figure of each column of numbers."""
    for number, column in enumerate(table.columns):
        texts = [(str(line.values[number]), line.label) for line in table.lines if line.values[number] is not None]
        figures = [(float(found[0].replace(",", "")), *row) for row in texts if (found := _NUMBER.match(row[0]))]
        if len(figures) == len(texts) > 1 and len({value for value, _, _ in figures}) > 1:
            (_, low, lowest), (_, high, highest) = min(figures), max(figures)
            yield f"{_short_title(table)}, {column}: from {low} ({lowest}) to {high} ({highest})."


_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(?![\w.])")


def _short_title(table: Table) -> str:
    return table.title.partition(" (")[0]


def _first(summary: pl.DataFrame, best: Mapping[str, Any], runs: pl.DataFrame) -> str:
    """Return the sentence on the best system by the first measure, and by the others."""
    where = "mean over fields" if best["field"] == AVERAGE else scope(runs.row(0, named=True))
    where += "" if best["size"] is None else f", {format_count(best['size'])} candidates"
    names: dict[str, list[str]] = {}
    for measure in summary["measure"].unique(maintain_order=True)[1:]:
        names.setdefault(best_row(headline(summary, measure))["label"], []).append(label_of(measure))
    systems = summary["label"].n_unique()
    rank = (
        "" if systems == 1 else f", the {'highest' if sign_of(best['measure']) > 0 else 'lowest'} of {systems} systems"
    )
    others = [f"also by {_and(names.pop(best['label']))}"] if best["label"] in names and systems > 1 else []
    others += [f"by {_and(measures)} it is {label}" for label, measures in names.items() if systems > 1]
    return (
        f"{best['label']} has {label_of(best['measure'])} {cell_of(best).plain} "
        f"({where}, {counted(best['queries'], 'query')}){rank}"
        f"{', ' if others else ''}{'; '.join(others)}."
    )


def _against(tested: pl.DataFrame) -> list[str]:
    """Return the sentences on differences from a baseline: shown, equivalent, and not shown."""
    texts: dict[str, list[str]] = {finding: [] for finding in FINDINGS}
    for row in tested.iter_rows(named=True):
        finding, low, high = (row[name] for name in ("finding", "difference_low", "difference_high"))
        details = [points((row["difference"], low, high)), f"p {_p(row['p_adjusted'])}"]
        shown = None if low is None else low > 0 or high < 0
        if finding != _EQUIVALENT and shown not in (None, finding != _UNKNOWN):
            details.append("test and interval disagree")
        if finding == _UNKNOWN and row["detectable"] is not None:
            details.append(f"detectable {100 * row['detectable']:.1f}")
        texts[finding].append(f"{row['label']} ({', '.join(details)})")
    base, margin = tested["baseline"][0], tested["margin"][0]
    shown = [f"{name} than {base}: {_listed(texts[name])}" for name in (_BETTER, _WORSE) if texts[name]]
    sentences = [f"By the paired test, {'; '.join(shown)}; differences are in points."] if shown else []
    if texts[_EQUIVALENT]:
        sentences.append(f"Equivalent to {base} within {margin:g} points: {_listed(texts[_EQUIVALENT])}.")
    if texts[_UNKNOWN]:
        sentences.append(
            f"No difference from {base} is shown for {_listed(texts[_UNKNOWN])}; detectable is the difference "
            f"that these queries show with power {POWER:g}."
        )
    return sentences


def _elsewhere(summary: pl.DataFrame, best: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a system fares in the fields, or at the sizes, of its table: its figures, and how it differs."""
    of_table = summary.filter(pl.col("field").ne_missing(AVERAGE), table=best["table"], measure=best["measure"])
    rows = of_table.filter(label=best["label"])
    if rows.height < 2:
        return
    is_by_field = best["over"] == "fields"
    found: dict[str, list[str]] = {}
    for row in rows.filter(pl.col("finding").is_not_null()).iter_rows(named=True):
        found.setdefault(row["finding"], []).append(row["field"] if is_by_field else format_count(row["size"]))
    texts = [f"{name} {'in' if is_by_field else 'at'} {_listed(found[name])}" for name in FINDINGS if name in found]
    ends = rows.sort("value" if is_by_field else "size")[:: rows.height - 1]
    values = [f"{percent(value)} ({field if is_by_field else format_count(size)})" for field, size, value in
              ends.select("field", "size", "value").iter_rows()]  # fmt: skip
    kind = "fields" if is_by_field else "pool sizes"
    yield (
        f"Over the {rows.height} {kind}, {label_of(best['measure'])} of {best['label']} goes from {' to '.join(values)}"
        + (f"; against {best['baseline']}: {'; '.join(texts)}." if texts else ".")
    )


def _limits(runs: pl.DataFrame, row: Mapping[str, Any], tested: pl.DataFrame) -> list[str]:
    """Return what limits the figures of some rankings: queries, training data, texts, and tuning."""
    limits = [f"{counted(row['queries'], 'query')} are few"] if 1 < row["queries"] < _FEW else []
    if any(
        least_p_value(test["queries"], test["permutations"]) * test["tests"] >= test["alpha"]
        for test in tested.iter_rows(named=True)
    ):
        limits.append("so few queries that no test can show a difference")
    year = applied(runs.row(0, named=True)).get("year")
    unknown, late = [], []
    for run in runs.unique("label", maintain_order=True).iter_rows(named=True):
        label, trainings = run["label"], list(trainings_of(run).values())
        last = max((training.until or 0 for training in trainings), default=0)
        unknown += [label] if not all(training.on for training in trainings) else []
        late += [f"{label} (to {last})"] if year and last >= year else []
    if late:
        limits.append(f"training data may hold the citations of the queries of {year}: {_listed(late)}")
    if unknown:
        limits.append(f"the training data of {_listed(unknown)} is unknown")
    limits += _gaps([gaps_of(run) for run in runs.unique("pool", maintain_order=True).iter_rows(named=True)])
    absent = runs.unique("pool")["positives_not_in_collection"].sum()
    limits += [f"{absent:,} positives are not in the collection"] if absent else []
    edge = runs.filter(pl.col("also").list.contains(TUNED), pl.col("k1").is_in(LIMITS_K1))
    if not edge.is_empty():
        points = edge["k1"].unique(maintain_order=True).to_list()
        limits.append(
            f"{edge['label'][0]} was tuned to the edge of the grid (k1={', '.join(f'{k1:g}' for k1 in points)})"
        )
    return limits


def _gaps(gaps: Sequence[Mapping[str, Mapping[str, int]]]) -> list[str]:
    """Return the shares of positives and negatives without an abstract, if they differ in a pool."""
    if not any(differ_in_abstracts(gap) for gap in gaps):
        return []
    totals = [[sum(gap.get(role, {}).get(key, 0) for gap in gaps) for key in ("without_abstract", "papers")]
              for role in ("positives", "negatives")]  # fmt: skip
    positives, negatives = (f"{count / max(papers, 1):.1%}" for count, papers in totals)
    return [f"{positives} of the positives and {negatives} of the negatives have no abstract"]


def _interval(row: Mapping[str, Any]) -> str:
    return points(row[name] for name in ("difference", "low", "high"))


def _precision(row: Mapping[str, Any], figure: str) -> str:
    """Return what limits a figure: its queries, with half the width of its interval."""
    if row["low"] is None:
        return f"{figure} has no interval ({counted(row['queries'], 'query')})"
    return f"{counted(row['queries'], 'query')} give {figure} to ± {50 * (row['high'] - row['low']):.1f} points"


def _p(value: float) -> str:
    return f"{value:.2g}"


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts with commas, and the number of others."""
    named = texts[:_NAMED]
    return ", ".join(named) + (f" and {counted(len(texts) - _NAMED, 'other')}" if len(texts) > _NAMED else "")
