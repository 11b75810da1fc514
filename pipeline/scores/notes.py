"""The notes below a table: how to read it, and its provenance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.core.fields import MAG_FIELDS
from pipeline.corpus.prefilter import PrefilterConfig, describe_gaps, has_text
from pipeline.encode import registry
from pipeline.measure.engines import precision_among
from pipeline.measure.statistics import mean_of_means
from pipeline.scores.average import AVERAGE, RESAMPLED
from pipeline.scores.caption import DATASET, collection, is_given, provenance
from pipeline.scores.labels import text, trainings_of
from pipeline.scores.published import made_with, published
from pipeline.scores.store import open_rankings, opened_pool, under
from pipeline.scores.tables import percent

_MISSING = {"ignore": "left out of denominators", "count": "counted in denominators"}


def notes(table: pl.DataFrame, runs: pl.DataFrame, compared: str) -> tuple[str, ...]:
    """Return the notes of one table of a summary, provenance last.

    ``compared`` says which figures are compared with each other, such as ``column``.
    """
    pools = runs.unique("pool", keep="first", maintain_order=True)
    given = is_given(json.loads(pools["pool_settings"][0]))
    lines = [
        _reading(table, runs, compared),
        _significance(table, runs),
        _collection(table, runs) if given else _pools(table),
        _missing(runs),
        describe_gaps(map(json.loads, pools["metadata_gaps"])),
        _text_only(runs, table["bootstrap_seed"][0], by_field=table["over"][0] == "fields"),
        "" if given else _origins(runs),
        _trained_on(table["system"].unique(maintain_order=True)),
        _published(table, runs),
        _parameters(runs),
        _prompts(runs),
        _measured(runs),
        provenance(table, runs),
    ]
    return tuple(note for note in lines if note)


def _reading(table: pl.DataFrame, runs: pl.DataFrame, compared: str) -> str:
    several = (table["samples"].list.len() > 1).any()
    what = "mean over samples of the mean over queries" if several else "mean over queries"
    deviation = " ± standard deviation over samples" if several else ""
    resample = table["resample"][0]
    over = "" if resample == "queries" else f" over {RESAMPLED[resample]}; tests are over queries"
    alike = " among rows of its depth" if runs["depth"].n_unique() > 1 else ""
    best = f" Bold or *: best of its {compared}{alike}." if table["label"].n_unique() > 1 else ""
    return f"Percent: {what}{deviation} [{table['level'][0]:.0%} interval{over}].{best}"


def _significance(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    baseline = table["wanted"][0]
    if baseline is None:
        return ""
    tested = table.filter(pl.col("p_value").is_not_null())
    bases = list(dict.fromkeys(tested["baseline"]))
    is_base = (pl.col("label") == baseline) | (pl.col("system") == baseline)
    named = {*runs.filter(is_base)["label"], *tested["label"]}
    untested = [label for label in dict.fromkeys(table["label"]) if label not in named]
    lacking = f"Not tested against {baseline}: {', '.join(untested)} (another depth or other samples)."
    if tested.is_empty():
        return lacking if untested else ""
    macro = pl.col("field").eq_missing(AVERAGE)
    of_pools = tested.filter(~macro)
    tests = 1 if of_pools.is_empty() else of_pools["tests"].max()
    pools = "tests of the table" if table["family"][0] == "table" else "pools"
    over = f" and Holm's correction over {tests} {pools}" if tests > 1 else ""
    base = bases[0] if len(bases) == 1 else f"the baseline of its depth ({', '.join(bases)})"
    alpha, margin = table["alpha"][0], table["margin"][0]
    parts = [
        f"† differs from {base}: paired permutation test over "
        f"queries ({table['permutations'][0]:,} sign flips, seed {table['bootstrap_seed'][0]}){over}, "
        f"p < {alpha:g}."
    ]
    if not (averages := tested.filter(macro)).is_empty():
        count = averages["tests"].max()
        apart = f"with Holm's correction over {count} systems" if count > 1 else "apart"
        parts.append(f"The mean over fields is tested {apart}; fields count alike.")
    if margin is not None:
        parts.append(f"≈ equivalent to {base}: two one-sided t-tests with margin {100 * margin:g}, p < {alpha:g}.")
    return " ".join([*parts, lacking] if untested else parts)


def _pools(table: pl.DataFrame) -> str:
    """Return the samples of the pools; also queries and positives if the table has no columns for them."""
    drawn = pl.col("samples").list.len().alias("drawn")
    facts = table.group_by("field", "size").agg(drawn.max(), pl.col("queries", "positives").max())
    if facts["field"].n_unique() > 1:
        return f"Samples of each field's pool: {' or '.join(map(str, facts['drawn'].unique().sort()))}."
    parts = [
        f"{format_count(size or 0)} in {drawn} sample{'s' * (drawn > 1)}, {queries:,} queries, {positives:,} positives"
        for _, size, drawn, queries, positives in facts.sort("size").iter_rows()
    ]
    return f"Pools: {'; '.join(parts)}."


def _collection(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the size of a collection that has queries of its own; a table by field has columns for it."""
    row = table.row(0, named=True)
    named = json.loads(runs["pool_settings"][0]).get("documents") == "named"
    what = "Named in the files" if named else "Collection"
    size = f"{what}: {row['size']:,} documents, {row['queries']:,} queries, {row['positives']:,} positives."
    return size if set(table["field"]) == {None} else ""


def _missing(runs: pl.DataFrame) -> str:
    pools = runs.unique("pool", keep="first", maintain_order=True)
    without = runs.group_by("label", maintain_order=True).agg(pl.col("queries_without_results").sum())
    unjudged, absent = pools["queries_without_positive"].sum(), pools["positives_not_in_collection"].sum()
    named = ", ".join(f"{label} {count:,}" for label, count in without.iter_rows() if count)
    parts = [f"Queries without results, scored 0: {named}."] if named else []
    parts += [f"Queries without a positive, left out: {unjudged:,}."] if unjudged else []
    ways = set(runs["settings"].str.json_path_match("$.missing_positives").fill_null("ignore"))
    counted = _MISSING[ways.pop()] if len(ways) == 1 else "counted in denominators of the rows that say so"
    parts += [f"Positives that are not in the collection: {absent:,}, {counted}."] if absent else []
    return " ".join(parts)


def _published(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the published figures of the systems shown, if the pools are of the kind of a published experiment.

    Those of a collection that a release brought say which text they were made with.
    """
    fields = set(table["field"]) - {AVERAGE}
    sizes = [format_count(size or 0) for size in table["size"].unique(maintain_order=True)]
    experiments: list[str] = []
    given = is_given(json.loads(runs["pool_settings"][0]))
    if fields == {None}:
        experiments = [collection(runs["corpus"][0])] if given else [f"dataset-{size}" for size in sizes]
    elif len(fields) == len(MAG_FIELDS) and "100k" in sizes:
        experiments = ["fields"]
    measures = table["measure"].unique(maintain_order=True)
    parts = []
    for label, system in table.select("label", "system").unique(maintain_order=True).iter_rows():
        names = [(experiment, measure) for experiment in experiments for measure in measures]
        figures = {
            ".".join(name): published(system, *name) if given else registry.published(system).get(".".join(name))
            for name in names
        }
        scale = 100 if given else 1
        printed = [f"{name} {registry.as_printed(round(scale * f, 2))}" for name, f in figures.items() if f is not None]
        text = "; ".join(filter(None, [made_with(system, experiment) for experiment in experiments]))
        parts += [f"{label} {', '.join(printed)}{f' ({text})' if text else ''}"] if printed else []
    return f"Published, on the papers' own releases: {'; '.join(parts)}." if parts else ""


def _parameters(runs: pl.DataFrame) -> str:
    """Return the parameters of each system, followed by their fields if they differ between fields."""
    named = []
    for of_label in runs.partition_by("label", maintain_order=True):
        fields_of: dict[str, list[str]] = {}
        for run in of_label.iter_rows(named=True):
            if parameters := _of_run(run):
                fields_of.setdefault(parameters, []).append(run["field"] or DATASET)
        values = [
            f"{parameters} ({', '.join(dict.fromkeys(fields))})" if len(fields_of) > 1 else parameters
            for parameters, fields in fields_of.items()
        ]
        named += [f"{of_label['label'][0]} {', '.join(values)}"] if values else []
    replaced = runs.filter("replaced")["label"].unique(maintain_order=True)
    newest = f" Of several tunings the newest: {', '.join(replaced)}." if len(replaced) else ""
    return (f"Parameters: {'; '.join(named)}." if named else "") + newest


def _of_run(run: Mapping[str, Any]) -> str:
    """Return the settings that a system's name may not say."""
    parts = [f"{name}={run[name]:g}" for name in ("k1", "b") if run[name] is not None]
    parts += [f"{weight:g} {name}" for name, weight in (json.loads(run["settings"]).get("weights") or {}).items()]
    parts += [f"precision {run['precision']}"] if run["precision"] else []
    return ", ".join(parts + ([f"revision {text(run['revision'])}"] if run["revision"] else []))


def _prompts(runs: pl.DataFrame) -> str:
    """Return what was put before the texts that encoders read."""
    named: dict[str, None] = {}
    for label, settings, pool in runs.select("label", "settings", "pool_settings").iter_rows():
        encoders = json.loads(settings)
        ad_hoc = json.loads(pool).get("queries_are") == "texts"
        papers = [*under([*under(encoders, "encoder")], "paper_prefix")]
        asking = [*under([*under(encoders, "query_encoder")], "query_prefix" if ad_hoc else "paper_prefix")]
        queries = [*(asking or papers), *under([*under(encoders, "encoder")], "prompt")]
        by_role = {"papers": papers, "queries": queries}
        said = {role: ", ".join(dict.fromkeys(repr(text) for text in texts if text)) for role, texts in by_role.items()}
        if any(said.values()):
            named[f"{label} {', '.join(f'{role} {prompts}' for role, prompts in said.items() if prompts)}"] = None
    return f"Put before the text: {'; '.join(named)}." if named else ""


def _measured(runs: pl.DataFrame) -> str:
    entries = (pl.col("tied_share") * pl.col("retrieved")).sum() / pl.col("retrieved").sum()
    by_row = runs.group_by("label", maintain_order=True).agg(pl.col("depth").last(), entries.fill_nan(0).alias("tied"))
    depths = sorted(set(by_row["depth"]))
    tops = [
        f"the top {depth:,}" + (f" ({', '.join(by_row.filter(depth=depth)['label'])})" if len(depths) > 1 else "")
        for depth in depths
    ]
    tied = ", ".join(f"{label} {share:.1%}" for label, share in by_row.select("label", "tied").iter_rows())
    return (
        f"Measured on {' and '.join(tops)} of each query; denominators count all positives of the query in the pool. "
        f"Ranked entries with a tied score: {tied}."
    )


def _trained_on(systems: Iterable[str]) -> str:
    known = {name: training for system in systems for name, training in trainings_of(system).items() if training.on}
    texts = [f"{name}: {training.on} (to {training.until or 'an unknown year'})" for name, training in known.items()]
    return f"Trained on: {'. '.join(texts)}." if texts else ""


_GAP = 0.01
"""Difference of the shares without an abstract from which on the figures are given."""


def _text_only(runs: pl.DataFrame, seed: int, *, by_field: bool) -> str:
    """Return MAP with its interval by system, for each size, or ``by_field`` the mean over fields.

    Only first samples whose positives and negatives differ in the share without an abstract count; empty without any.
    """
    if "pool_path" not in runs.columns:
        return ""
    gapped = runs.filter(pl.col("sample") == pl.col("sample").min().over("field", "size"))
    gapped = gapped.filter(pl.col("metadata_gaps").map_elements(_differ_in_abstracts, return_dtype=pl.Boolean))
    scopes = [gapped] if by_field else gapped.partition_by("size", maintain_order=True)
    texts = [text for scope in scopes if len(scope) for text in _of_scope(scope, seed, by_field)]
    return f"MAP among the candidates that have an abstract: {'; '.join(texts)}." if texts else ""


def _differ_in_abstracts(gaps: str) -> bool:
    counts = json.loads(gaps).values()
    shares = [count["without_abstract"] / max(count["papers"], 1) for count in counts]
    return bool(shares) and max(shares) - min(shares) >= _GAP


def _of_scope(runs: pl.DataFrame, seed: int, by_field: bool) -> Iterator[str]:
    labels, groups = list(runs["label"].unique(maintain_order=True)), {}
    for of_pool in runs.partition_by("pool", maintain_order=True):
        pool = opened_pool(of_pool.row(0, named=True))
        if pool is None or of_pool["label"].to_list() != labels:
            continue
        rankings, kept = open_rankings(of_pool, pool), has_text(pool.corpus.attributes, PrefilterConfig())
        values = np.stack([precision_among(rankings.qrels, run, kept) for run in rankings.runs.values()])
        answered = ~np.isnan(values[0])
        if answered.any():
            groups[of_pool["field"][0] or ""] = values[:, answered]
    if groups:
        means = mean_of_means(groups, seed)
        shown = (
            f"{label} {percent(value)} [{percent(low)}, {percent(high)}]"
            for label, value, low, high in zip(labels, means.value, means.low, means.high, strict=True)
        )
        where = f"mean over {', '.join(groups)}" if by_field else format_count(runs["size"][0])
        yield f"{where}: {', '.join(shown)}"


_KINDS = {"OpenAlex": r"W\d+", "arXiv": r"(\d{4}\.\d{4,5}|[a-z-]+(\.[A-Z]{2})?/\d{7})(v\d+)?", "number": r"\d+"}
"""Ids that tell where a record comes from; a joined corpus has several kinds."""

ORIGINS = {"field": pl.String, "year": pl.Int64, "ids": pl.String, "queries": pl.Int64}
"""Columns of :func:`origins`."""


def origins(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the number of queries by field, year and kind of id, columns :data:`ORIGINS`.

    Queries of one field and year count once, whatever number of pools they are in. Pools whose corpus is gone, and
    queries that are no papers, are left out.
    """
    queries: set[tuple[str, int, str, str]] = set()
    for run in runs.unique(["field", "year", "pool"], keep="first", maintain_order=True).iter_rows(named=True):
        pool = opened_pool(run)
        if pool is not None and pool.queries_are_papers:
            field, years = run["field"] or DATASET, pool.corpus.attributes["year"][pool.query_rows].tolist()
            papers = zip(years, pool.query_ids(), strict=True)
            queries |= {(field, year, kind_of(paper), paper) for year, paper in papers}
    frame = pl.DataFrame(sorted(queries), schema=["field", "year", "ids", "id"], orient="row")
    counted = frame.group_by("field", "year", "ids", maintain_order=True).agg(pl.len().alias("queries"))
    return counted.cast(ORIGINS)


def kind_of(paper_id: str) -> str:
    """Return which of the known kinds an id is of, else ``other``."""
    return next((name for name, pattern in _KINDS.items() if re.fullmatch(pattern, paper_id)), "other")


def _origins(runs: pl.DataFrame) -> str:
    """Return kinds of ids by field, and which fields have one kind alone; empty where all ids are of one kind."""
    if "pool_path" not in runs.columns:
        return ""
    frame = origins(runs)
    if frame["ids"].n_unique() < 2:
        return ""
    parts, alone = [], []
    for of_field in frame.partition_by("field", maintain_order=True):
        field, kinds = of_field["field"][0], of_field.group_by("ids", maintain_order=True).agg(pl.col("queries").sum())
        parts.append(f"{field} {', '.join(f'{kind} {count:,}' for kind, count in kinds.iter_rows())}")
        alone += [field] if len(kinds) == 1 and frame["field"].n_unique() > 1 else []
    warning = f" Of one source alone: {', '.join(alone)}; a difference between fields may be one between sources."
    return f"Queries by kind of id: {'; '.join(parts)}.{warning if alone else ''}"
