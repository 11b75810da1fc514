"""The notes below a table: how to read it, and its provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.corpus.prefilter import describe_gaps, uneven_abstracts
from pipeline.measure.design import RESAMPLED
from pipeline.measure.measures import parse_measures
from pipeline.measure.permutation import patterns_text
from pipeline.scores.average import AVERAGE
from pipeline.scores.caption import DATASET, provenance
from pipeline.scores.choose import labels_of
from pipeline.scores.facts import format_setting, gaps_of, has_own_queries
from pipeline.scores.sources import UNKNOWN, cut_note, trainings_of
from pipeline.scores.summary import of_fewer_samples
from pipeline.scores.tables import label_of, points
from pipeline.stages.systems import TUNED

_FEW = 10
"""Queries below which the note on intervals says that there are few."""

_NO_POSITIVE = {"ignore": "left out", "zero": "counted as 0"}
_MISSING = {"ignore": "left out of denominators", "count": "counted in denominators"}


def notes(table: pl.DataFrame, runs: pl.DataFrame, compared: str) -> tuple[str, ...]:
    """Return the notes of one table of a summary, provenance last.

    ``compared`` says which figures are compared with each other, such as ``column``.
    """
    pools = runs.unique("pool", keep="first", maintain_order=True)
    lines = [
        _how_to_read(table, runs, compared),
        _significance(table, runs),
        _collection(table, runs) if has_own_queries(pools.row(0, named=True)) else _pools(table, runs),
        _fewer_samples(table),
        _missing(runs),
        _unrated(table, runs),
        among_abstracts(table, runs),
        describe_gaps(map(gaps_of, pools.iter_rows(named=True))),
        _trained_on(runs),
        cut_note(runs),
        _parameters(runs),
        _depths(runs),
        provenance(table, runs),
    ]
    return tuple(note for note in lines if note)


def notes_on_systems(runs: pl.DataFrame, differences: pl.DataFrame | None = None) -> tuple[str, ...]:
    """Return the notes on the systems alone: differences among abstracts, texts that encoders cut, and parameters."""
    among = "" if differences is None else among_abstracts(differences, runs)
    return tuple(filter(None, (among, cut_note(runs), _parameters(runs))))


def _how_to_read(table: pl.DataFrame, runs: pl.DataFrame, compared: str) -> str:
    sampled, resample, fewest = (table["samples"].list.len() > 1).any(), table["resample"][0], table["queries"].min()
    statistic = "mean over samples of the mean over queries" if sampled else "mean over queries"
    deviation = " ± standard deviation over samples" * sampled
    bootstrap = "" if resample == "queries" else f" over {RESAMPLED[resample]}; tests are over queries"
    brackets = f" [{table['level'][0]:.0%} interval{bootstrap}]" if table["queries"].max() > 2 else ""
    few = f" Only {fewest} queries: intervals are wide and tests have little power." if fewest < _FEW else ""
    same_depth = " among rows of its depth" * (runs["depth"].n_unique() > 1)
    best = f" Bold or *: best of its {compared}{same_depth}." * (table["label"].n_unique() > 1)
    return f"Percent: {statistic}{deviation}{brackets}.{best}{few if brackets else ' Under 3 queries: no interval.'}"


def _significance(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    baseline = table["requested_baseline"][0]
    if baseline is None:
        return ""
    tested = table.filter(pl.col("p_value").is_not_null())
    bases = list(dict.fromkeys(tested["baseline"]))
    tested_or_base = {*labels_of(runs, baseline), *tested["label"]}
    untested = [label for label in dict.fromkeys(table["label"]) if label not in tested_or_base]
    untested_note = f"Not tested against {baseline}: {', '.join(untested)} (another depth or other samples)."
    if tested.is_empty():
        return untested_note if untested else ""
    macro = pl.col("field").eq_missing(AVERAGE)
    of_pools = tested.filter(~macro)
    tests = 1 if of_pools.is_empty() else of_pools["tests"].max()
    correction = f" and Holm's correction over {counted(tests, 'pool')}" if tests > 1 else ""
    base = bases[0] if len(bases) == 1 else f"the baseline of its depth ({', '.join(bases)})"
    parts = [
        f"† differs from {base}: paired permutation test over "
        f"queries ({patterns_text(tested['queries'], tested['permutations'].max(), table['bootstrap_seed'][0])})"
        f"{correction}, "
        f"p < {table['alpha'][0]:g}."
    ]
    if not tested.filter(macro).is_empty():
        parts.append("The mean over fields is tested separately; fields weigh equally.")
    return " ".join([*parts, untested_note] if untested else parts)


def _pools(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the number of samples of each pool; also of queries and positives if the table has no columns for them."""
    papers = dict(runs.select("size", "positives_papers").rows()[::-1])  # of the first sample
    drawn = pl.col("samples").list.len().max().alias("drawn")
    facts = table.group_by("field", "size").agg(drawn, pl.col("queries", "positives").max())
    if facts["field"].n_unique() > 1:
        return f"Samples of each field's pool: {' or '.join(map(str, facts['drawn'].unique().sort()))}."
    parts = [
        f"{format_count(size or 0)} in {counted(samples, 'sample')}, {counted(queries, 'query')}, "
        f"{counted(positives, 'citation')}" + (f" of {counted(papers[size], 'paper')}" if papers[size] else "")
        for _, size, samples, queries, positives in facts.sort("size").iter_rows()
    ]
    return f"Pools: {'; '.join(parts)}."


def _fewer_samples(table: pl.DataFrame) -> str:
    """Return the systems with figures of fewer samples than the others; empty without any."""
    fewer = (
        table.filter(of_fewer_samples()).group_by("label", maintain_order=True).agg(pl.col("samples").list.len().min())
    )
    labels = ", ".join(f"{label} {count}" for label, count in fewer.iter_rows())
    return f"Of fewer samples, apart from the others: {labels}." if labels else ""


def _collection(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the size of a collection with queries from its release; empty for a table by field, which has columns."""
    row, heading = table.row(0, named=True), "Collection" if runs["workspace"][0] else "Named in the files"
    nouns = {"size": "document", "queries": "query", "positives": "positive"}
    size = f"{heading}: {', '.join(counted(row[column], noun) for column, noun in nouns.items())}."
    return size if set(table["field"]) == {None} else ""


def _missing(runs: pl.DataFrame) -> str:
    pools = runs.unique("pool", keep="first", maintain_order=True)
    without = runs.group_by("label", maintain_order=True).agg(pl.col("queries_without_results").sum())
    unjudged, absent = pools["queries_without_positive"].sum(), pools["positives_not_in_collection"].sum()
    labels_with_counts = ", ".join(f"{label} {count:,}" for label, count in without.iter_rows() if count)
    parts = [f"Queries without results, scored 0: {labels_with_counts}."] if labels_with_counts else []
    way = _NO_POSITIVE[pools["no_positive"][0] or "ignore"]
    parts += [f"Queries without a positive, {way}: {unjudged:,}."] if unjudged else []
    ways = set(runs["missing_positives"].fill_null("ignore"))
    counted = _MISSING[ways.pop()] if len(ways) == 1 else "counted in denominators of the rows that say so"
    parts += [f"Positives that are not in the collection: {absent:,}, {counted}."] if absent else []
    return " ".join(parts)


def _unrated(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return how many queries lack a document of the grade that a measure calls relevant."""
    counts = dict(table.group_by("measure", maintain_order=True).agg(pl.col("queries").max()).iter_rows())
    most = max(*counts.values(), (runs["queries"] - runs["queries_without_positive"]).max() or 0)
    return " ".join(
        f"{name}: {most - count:,} of {most:,} queries without a document of grade {grade} left out."
        for name, count in counts.items()
        if (grade := parse_measures(name)[0].relevant) > 1 and count < most
    )


def _parameters(runs: pl.DataFrame) -> str:
    """Return the parameters of each system, followed by their fields if they differ between fields."""
    parameters_of_rows = []
    for of_label in runs.partition_by("label", maintain_order=True):
        fields_of: dict[str, list[str]] = {}
        for run in of_label.iter_rows(named=True):
            if parameters := _run_parameters(run):
                fields_of.setdefault(parameters, []).append(run["field"] or DATASET)
        values = [
            f"{parameters} ({', '.join(dict.fromkeys(fields))})" if len(fields_of) > 1 else parameters
            for parameters, fields in fields_of.items()
        ]
        parameters_of_rows += [f"{of_label['label'][0]} {', '.join(values)}"] if values else []
    replaced = runs.filter("replaced")["label"].unique(maintain_order=True)
    newest = f" Of several tunings the newest: {', '.join(replaced)}." if len(replaced) else ""
    return (f"Parameters: {'; '.join(parameters_of_rows)}." if parameters_of_rows else "") + newest


def _run_parameters(run: Mapping[str, Any]) -> str:
    """Return the settings of a ranking that the name of its system may leave out."""
    spelled = run["system"].startswith("bm25:")
    parts = [f"{name}={run[name]:g}" for name in ("k1", "b") if run[name] is not None and not spelled]
    parts = [f"tuned to {parts[0]}", *parts[1:]] if parts and TUNED in (run["aliases"] or ()) else parts
    parts += [f"precision {run['precision']}"] if run["precision"] else []
    parts += [f"revision {format_setting(run['revision'])}"] if run["revision"] else []
    return ", ".join(parts + ([run["without_vector"]] if run["without_vector"] else []))


def _depths(runs: pl.DataFrame) -> str:
    labels_of_depth = (
        runs.group_by("label", maintain_order=True).agg(pl.col("depth").last()).group_by("depth").agg("label")
    )
    tops = [
        f"the top {depth:,}" + (f" ({', '.join(labels)})" if len(labels_of_depth) > 1 else "")
        for depth, labels in labels_of_depth.sort("depth").iter_rows()
    ]
    return f"Scores use {' and '.join(tops)} of each query. Recall and MAP divide by all of its positives."


def _trained_on(runs: pl.DataFrame) -> str:
    found = [(run["system"], trainings_of(run)) for run in runs.iter_rows(named=True)]
    label_of = {name: system for system, of_run in found if len(of_run) == 1 for name in of_run}
    trained = {
        name if training.on else label_of.get(name, name): training
        for _, of_run in found
        for name, training in of_run.items()
    }
    texts = [
        f"{name}: {training.on} (to {training.until or 'an unknown year'})" if training.on else f"{name}: {UNKNOWN}"
        for name, training in trained.items()
    ]
    return f"Trained on: {'. '.join(texts)}." if texts else ""


def among_abstracts(figures: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the differences among the candidates with an abstract that figures have; empty without any.

    ``figures`` are tested rows of a summary, or differences of a pair with labels in ``second``.
    """
    found = figures.filter(pl.col("among_difference").is_not_null())
    disagree = pl.col("among_finding") != pl.col("finding")
    shown = found.filter(disagree | (pl.col("measure") == figures["measure"][0]))
    several, texts = figures.select("field", "size").n_unique() > 1, []
    for row in shown.iter_rows(named=True):
        label = row.get("label") or row["second"]
        field = "mean over fields" if row["field"] == AVERAGE else row["field"] or DATASET
        place = [field, *([] if row["size"] is None else [format_count(row["size"])])] if several else []
        among = points((row["among_difference"], row["among_low"], row["among_high"]))
        also = f"; of all {points([row['difference']])}, {row['finding']}: the two disagree"
        also = also if row["among_finding"] != row["finding"] else ""
        texts.append(f"{', '.join([label, *place, label_of(row['measure'])])} {among}, {row['among_finding']}{also}")
    gaps = map(gaps_of, runs.unique("pool", maintain_order=True).iter_rows(named=True))
    start = f"Differences among the candidates with an abstract ({gap_in_abstracts([*gaps])})"
    return f"{start}: {'. '.join(texts)}." if texts else ""


def gap_in_abstracts(gaps: Sequence[Mapping[str, Any]]) -> str:
    """Return the shares of positives and negatives without an abstract in all pools; empty if none differs by much."""
    if not any(map(uneven_abstracts, gaps)):
        return ""
    texts = []
    for kind in ("positives", "negatives"):
        without, papers = (sum(gap[kind][mark] for gap in gaps if gap) for mark in ("without_abstract", "papers"))
        texts.append(f"{without / max(papers, 1):.1%} of the {kind}")
    return f"{' and '.join(texts)} have no abstract"
