"""Benchmarks of a workspace, each with the systems that were scored on it: values, intervals, ranks and groups.

A benchmark is a pool with its samples, whatever made it (large pools, lists of the MDCR benchmark, queries of a
collection, titles, neighbours, facets), or the tasks of one format of SciRepEval.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical, digest, format_count, from_mapping
from pipeline.core.progress import say
from pipeline.core.workspace import VECTORS, corpus_folders
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig, value_in
from pipeline.encode import names
from pipeline.measure.measures import sign_of
from pipeline.measure.ranks import all_pairs, ends, letters, ranks
from pipeline.measure.statistics import Floats, bootstrap_means, confidence_interval, percentiles
from pipeline.scores.caption import DATASET, collection, unusual
from pipeline.scores.choose import option
from pipeline.scores.store import artifact, stored, values
from pipeline.stages.systems import stored_system
from pipeline.studies.scirepeval.report import counted_figures
from pipeline.studies.scirepeval.scoring import FiguresConfig
from pipeline.studies.scirepeval.steps import multi_format
from pipeline.studies.scirepeval.tasks import FOLDER, FORMATS

SCIREPEVAL = "scirepeval"
_STUDIES = {
    "benchmark": "mdcr eval --benchmark FOLDER",
    "titles": "mdcr study neighbours --corpus {corpus}",
    "neighbours": "mdcr study neighbours --corpus {corpus}",
    "facets": "mdcr study facets --corpus {corpus}",
    SCIREPEVAL: "mdcr study scirepeval --input FOLDER",
}
"""Commands that make the figures of benchmarks that are no pools of a corpus."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark with the systems that were scored on all of it, best first.

    Attributes:
        kind: ``pools``, ``queries`` (of a collection), ``benchmark`` (MDCR), ``titles``, ``neighbours``, ``facets`` or
            ``scirepeval``.
        name: for tables.
        field: of the queries; a facet or a format; None: of all fields.
        size: candidates; None: there is no pool.
        year: of the queries; None: unknown.
        measure: what systems are ranked by.
        systems: their names.
        values: of each query (or task), float64 ``[systems, queries]``.
        figures: value, and lower and upper end, float64 ``[3, systems]``.
        ranked: ranks, float64 ``[systems, 1 + resamples]``.
        apart: p-values of all pairs, Holm's correction over them, float64 ``[systems, systems]``.
        sources: artifacts of each system's figure.
        commands: what makes each system's figure again.
        runs: rankings, columns :data:`pipeline.scores.store.RUNS`; empty: there are none.
        scores: their scores by the measure.
    """

    kind: str
    name: str
    field: str | None
    size: int | None
    year: int | None
    measure: str
    systems: tuple[str, ...]
    values: Floats
    figures: Floats
    ranked: Floats
    apart: Floats
    sources: tuple[str, ...]
    commands: tuple[str, ...]
    runs: pl.DataFrame
    scores: pl.DataFrame

    def rank(self, place: int) -> tuple[float, float, float]:
        """Return the rank of a system with its interval."""
        low, high = ends(self.ranked[[place]])
        return float(self.ranked[place, 0]), float(low[0]), float(high[0])

    def groups(self, alpha: float) -> list[str]:
        """Return the letters of the systems: two share one unless a test tells them apart."""
        return letters(self.apart < alpha)


@dataclass(frozen=True)
class Chosen:
    """Which benchmarks and systems count, and how.

    Attributes:
        kinds: of :attr:`Benchmark.kind`; empty: all.
        systems: names; empty: all.
        measures: the measure of each kind.
        seed: of bootstrap and tests.
        resamples: of the bootstrap.
    """

    kinds: tuple[str, ...]
    systems: tuple[str, ...]
    measures: Mapping[str, str]
    seed: int
    resamples: int


def benchmarks(roots: Sequence[Path], chosen: Chosen) -> list[Benchmark]:
    """Return the benchmarks of some workspaces on which two systems or more were scored."""
    runs = pl.concat([stored(root) for root in roots]).filter(pl.col("split").ne_missing("validation"))
    if chosen.systems:
        runs = runs.filter(pl.col("system").is_in(chosen.systems))
    settings = pl.col("pool_settings").map_elements(_of_samples, return_dtype=pl.String)
    corpora = {folder: name for root in roots for folder, name in corpus_folders(root).items()}
    found = []
    for part in runs.with_columns(settings.alias("of")).sort("published").partition_by("corpus", "of", "kind"):
        one = _of_pools(part.drop("of"), json.loads(part["of"][0]), corpora, chosen)
        found += [one] if one is not None else []
    found += [one for root in roots for one in _of_formats(root, chosen)]
    order = list(_KINDS)
    counts = Counter(one.name for one in found)
    for name in (name for name, count in counts.items() if count > 1):
        say(f"{counts[name]} benchmarks are called {name}: their settings differ")
    return sorted(found, key=lambda one: (order.index(one.kind), one.name, one.size or 0))


_KINDS = ("pools", "queries", *_STUDIES)


def _of_samples(pool_settings: str) -> str:
    """Return the settings that the samples of a pool share."""
    settings = {name: value for name, value in json.loads(pool_settings).items() if name != "sample"}
    return json.dumps(settings, sort_keys=True)


def kind_of(settings: Mapping[str, Any]) -> str:
    """Return the kind of a pool by its settings."""
    if "lists" in settings:
        return "benchmark"
    if "relevant" in settings:
        return "facets"
    if "kind" in settings:
        return "titles" if settings["kind"].startswith("titles") else str(settings["kind"])
    return "queries" if settings.get("queries_are") == "texts" else "pools"


def _of_pools(
    runs: pl.DataFrame, settings: Mapping[str, Any], corpora: Mapping[str, str], chosen: Chosen
) -> Benchmark | None:
    """Return the benchmark of the pools of some settings; None where fewer than two systems count.

    Rankings of the depth that most systems have count, of several the deepest; of each system and sample the newest.
    Systems count that ranked every sample that most did.
    """
    kind = kind_of(settings)
    if (chosen.kinds and kind not in chosen.kinds) or kind not in chosen.measures:
        return None
    measure = chosen.measures[kind]
    runs = runs.filter(pl.col("measures").list.contains(measure))
    runs = runs.filter(depth=_most(runs, "depth")).unique(["system", "pool"], keep="last", maintain_order=True)
    wanted = runs.filter(pl.len().over("pool") == pl.len().over("pool").max())["pool"].unique()
    runs = runs.filter(pl.col("pool").is_in(wanted.implode()))
    runs = runs.filter(pl.len().over("system") == len(wanted)).sort("system", "sample")
    if runs["system"].n_unique() < 2:
        return None
    scores = values(runs).filter(measure=measure)
    of_queries = scores.group_by("system", "query").agg(pl.col("value").mean()).sort("system", "query")
    wide = of_queries.pivot("query", index="system", values="value")
    table, first = wide.drop("system").to_numpy(), runs.row(0, named=True)
    queries = next(one for one in artifact(first, "pool").outputs("queries.arrow"))
    drawn = bootstrap_means(table, seed=chosen.seed, item=queries.sha256, resamples=chosen.resamples)
    figures = np.stack([table.mean(axis=1), *confidence_interval(drawn, table)])
    corpus = corpora.get(first["corpus"], collection(first["corpus"]))
    rows = {run["system"]: run for run in runs.iter_rows(named=True)}
    facts = {
        "kind": kind, "field": first["field"], "size": int(first["size"]), "year": first["year"], "measure": measure,
        "name": _name(kind, settings, corpus, first), "runs": runs, "scores": scores,
    }  # fmt: skip
    sources = ["; ".join(part["ranking"]) for part in runs.partition_by("system", maintain_order=True)]
    commands = [_command(kind, settings, corpus, rows[name]) for name in wide["system"]]
    return _ranked(wide["system"].to_list(), table, figures, drawn, queries.sha256, chosen, sources, commands, facts)


def _most(runs: pl.DataFrame, column: str) -> Any:
    counts = runs.group_by(column).agg(pl.col("system").n_unique()).sort("system", column)
    return counts[column].last() if len(counts) else None


def _ranked(
    systems: Sequence[str],
    table: Floats,
    figures: Floats,
    drawn: Floats,
    item: str,
    chosen: Chosen,
    sources: Sequence[str],
    commands: Sequence[str],
    facts: Mapping[str, Any],
) -> Benchmark:
    """Return a benchmark with its systems in the order of their values; of equal ones by name."""
    sign = sign_of(facts["measure"]) if facts["kind"] != SCIREPEVAL else 1
    ranked = ranks(sign * np.hstack([figures[0][:, None], drawn]))
    order = np.lexsort((list(systems), ranked[:, 0]))
    apart = all_pairs(table[order], seed=chosen.seed, item=item)
    in_order = {
        name: tuple(texts[place] for place in order)
        for name, texts in {"systems": systems, "sources": sources, "commands": commands}.items()
    }
    return Benchmark(
        values=table[order], figures=figures[:, order], ranked=ranked[order], apart=apart, **in_order, **facts
    )


def _name(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    asked = "whole paper" if settings.get("queries_are") == "papers" else "facet's sentences"
    what = {
        "pools": f"{run['field'] or DATASET} {format_count(run['size'])}",
        "queries": "queries",
        "benchmark": f"{run['field']} lists",
        "titles": str(settings.get("kind", "")).replace("-", " "),
        "neighbours": "neighbours",
        "facets": f"{run['field']}, {asked}",
    }[kind]
    return ", ".join([f"{corpus}: {what}", *(unusual(settings) if kind == "pools" else ())])


def _command(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    """Return the command that makes the figure of a system again."""
    system = str(stored_system(Artifact.open(Path(run["score_paths"][0])).manifest))
    if kind in _STUDIES:
        return f"{_STUDIES[kind].format(corpus=corpus)} --model {shlex.quote(system)}"
    words, usual = (
        ["mdcr", "eval", "--corpus", corpus, "--model", system, "--depth", str(run["depth"])],
        canonical(PoolConfig()),
    )
    if kind == "pools":
        words += ["--year", str(run["year"]), "--size", str(settings["size"]), "--queries", str(settings["queries"])]
        words += ["--samples", str(run["sample"]), "--seed", str(run["seed"])]
        for name in (name for name, setting in SETTINGS.items() if setting.rule or name in ("field", "exclude")):
            value = value_in(settings, name)
            if value is not None and value != value_in(usual, name):
                listed = [file for file, _ in value] if name == "exclude" else [value]
                words += [
                    word
                    for one in listed
                    for word in ((option(name),) if one in (True, False) else (option(name), str(one)))
                ]
    return shlex.join(words)


def _of_formats(root: Path, chosen: Chosen) -> Iterator[Benchmark]:
    """Yield a benchmark for each format of SciRepEval: the tasks that most systems have, averaged as the study does."""
    if chosen.kinds and SCIREPEVAL not in chosen.kinds:
        return
    encoder = {
        one.id: one.manifest.provenance["model"]
        for folder in (root / VECTORS).glob("[!.]*")
        for one in published(folder)
    }
    figures: dict[tuple[str, str], dict[str, tuple[Artifact, pl.DataFrame]]] = {}
    for one in published(root / FOLDER):
        config = one.manifest.config
        if one.manifest.stage != SCIREPEVAL or "probe_seed" in config or one.manifest.inputs["papers"] not in encoder:
            continue
        entry = from_mapping(FiguresConfig, config).task
        system = _system_of(encoder[one.manifest.inputs["papers"]], entry.format)
        if entry.averaged and (not chosen.systems or system in chosen.systems):
            counted = counted_figures(entry, pl.DataFrame(one.arrow("figures.arrow")))
            figures.setdefault((entry.format, system), {})[entry.name] = (one, counted)
    for kind in FORMATS:
        of_format = {system: tasks for (name, system), tasks in figures.items() if name == kind}
        if not of_format:
            continue
        tasks = sorted(Counter(map(frozenset, of_format.values())).most_common(1)[0][0])
        of_format = {system: made for system, made in sorted(of_format.items()) if {*tasks} <= {*made}}
        if len(of_format) < 2:
            continue
        made = [pl.concat([of_format[system][task][1] for task in tasks]) for system in of_format]
        table = np.stack(
            [one.group_by("task", maintain_order=True).agg(pl.col("value").mean())["value"] for one in made]
        )
        drawn = np.stack([np.resize(np.mean(one["draws"].to_list(), axis=0), chosen.resamples) for one in made])
        figure = np.array([[one["value"].mean(), *percentiles(row)] for one, row in zip(made, drawn, strict=True)]).T
        facts = {
            "kind": SCIREPEVAL, "name": f"SciRepEval: {kind}, {len(tasks)} tasks", "field": kind, "size": None,
            "year": None, "measure": "mean", "runs": pl.DataFrame(), "scores": pl.DataFrame(),
        }  # fmt: skip
        sources = ["; ".join(of_format[system][task][0].name for task in tasks) for system in of_format]
        commands = [f"{_STUDIES[SCIREPEVAL]} --model {shlex.quote(system)}" for system in of_format]
        item = digest(["scirepeval", *tasks])
        yield _ranked(list(of_format), table, figure, drawn, item, chosen, sources, commands, facts)


def _system_of(model: str, kind: str) -> str:
    """Return the system whose vectors for tasks of a format an encoder makes; settings of the study are left out."""
    name = names.one(model)
    plain = str(
        names.Name(name.base, name.parts, tuple(pair for pair in name.options if pair[0] not in ("template", "task")))
    )
    return next((row["proximity"] for row in multi_format().values() if row.get(kind) == plain), plain)
