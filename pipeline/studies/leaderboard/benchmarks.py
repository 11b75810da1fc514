"""Benchmarks of a workspace, each with the systems that were scored on it: values, intervals, ranks and groups.

A benchmark is a pool with its samples, whatever made it, or the tasks of one format of SciRepEval.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical, digest, format_count, from_mapping
from pipeline.core.workspace import SCORES, VECTORS, corpus_folders
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig, value_in
from pipeline.encode import names
from pipeline.measure.measures import sign_of
from pipeline.measure.ranks import all_pairs, ranks
from pipeline.measure.statistics import Floats, by_unit, confidence_interval, percentiles, unit_influence, unit_means
from pipeline.scores.caption import DATASET, collection, unusual
from pipeline.scores.choose import option
from pipeline.scores.store import artifact, opened_pool, stored, values
from pipeline.scores.tables import label_of
from pipeline.stages.systems import stored_system
from pipeline.studies.facets.pools import query_papers
from pipeline.studies.mdcr.evaluation import SCORES as LISTS
from pipeline.studies.scirepeval.report import counted_figures
from pipeline.studies.scirepeval.steps import multi_format
from pipeline.studies.scirepeval.tasks import FOLDER, FORMATS, Entry

COMMANDS = {
    "pools": "mdcr eval --corpus {corpus}",
    "queries": "mdcr eval --corpus {corpus}",
    "benchmark": "mdcr eval --benchmark FOLDER",
    "titles": "mdcr study neighbours --corpus {corpus}",
    "neighbours": "mdcr study neighbours --corpus {corpus}",
    "facets": "mdcr study facets --corpus {corpus}",
    "scirepeval": "mdcr study scirepeval --input FOLDER",
}
"""What makes the figures of each kind of benchmark: drawn pools, a collection's queries, lists of the MDCR benchmark,
title queries, textual neighbours, facets, formats of SciRepEval."""

MEAN = "mean"
"""In place of a measure: the mean over the tasks of a format."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study ``leaderboard``.

    Attributes:
        workspaces: folders of further workspaces whose scores count.
        measures: what each kind of benchmark (:data:`COMMANDS`) is ranked by; others do not count.
        alpha: systems whose adjusted p-value is below it are told apart.
        seed: of the bootstrap and the tests.
        resamples: of the bootstrap.
    """

    workspaces: tuple[str, ...]
    measures: Mapping[str, str]
    alpha: float
    seed: int
    resamples: int


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark with the systems that were scored on all of it, best first.

    Attributes:
        kind: of :data:`COMMANDS`.
        name: for tables.
        field: of the queries; a facet or a format; None: of all fields.
        size: candidates; None: there is no pool.
        year: of the queries; None: unknown.
        measure: what systems are ranked by.
        systems: their names.
        sources: folder names of the rankings or figures of each.
        commands: what makes each figure again.
        values: of each query (or task), float64 ``[systems, queries]``.
        units: what each query is drawn with: its paper (:func:`_units`).
        figures: value, and ends of its interval, float64 ``[3, systems]``.
        ranked: ranks, float64 ``[systems, 1 + resamples]``.
        apart: p-values of all pairs, Holm's correction over them, float64 ``[systems, systems]``.
        runs: rankings, columns :data:`pipeline.scores.store.RUNS`; None: there are none.
        scores: their scores by the measure.
    """

    kind: str
    name: str
    field: str | None
    size: int | None
    year: int | None
    measure: str
    systems: Sequence[str]
    sources: Sequence[Sequence[str]]
    commands: Sequence[str]
    values: Floats
    units: Sequence[str]
    figures: Floats
    ranked: Floats
    apart: Floats
    runs: pl.DataFrame | None = None
    scores: pl.DataFrame | None = None

    @property
    def label(self) -> str:
        """What tables call the measure."""
        return MEAN if self.measure == MEAN else label_of(self.measure)

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.measure == MEAN else sign_of(self.measure)


def benchmarks(roots: Sequence[Path], recipe: Recipe) -> list[Benchmark]:
    """Return the benchmarks of some workspaces on which two systems or more were scored, by kind and name."""
    every = [stored(root, folder) for root in roots for folder in (SCORES, LISTS)]
    runs = pl.concat(every).filter(pl.col("split").ne_missing("validation"))
    settings = pl.col("pool_settings").map_elements(_shared, return_dtype=pl.String).alias("of")
    counted = pl.col("settings").str.json_path_match("$.missing_positives").alias("counted")
    corpora = {folder: name for root in roots for folder, name in corpus_folders(root).items()}
    parts = runs.with_columns(settings, counted).sort("published").partition_by("corpus", "of", "counted")
    scored = (_scored(part.drop("of", "counted"), json.loads(part["of"][0]), recipe) for part in parts)
    together: dict[str, list[_Scored]] = {}
    for one in filter(None, scored):
        together.setdefault(one.item, []).append(one)
    of_pools = (_of_pools(some, corpora, recipe) for some in together.values())
    found = [*chain.from_iterable(of_pools), *(one for root in roots for one in _of_formats(root, recipe))]
    place = {kind: number for number, kind in enumerate(COMMANDS)}
    return sorted(found, key=lambda one: (place[one.kind], one.name.partition(":")[0], one.field or "", one.size or 0))


def _shared(pool_settings: str) -> str:
    """Return the settings that the samples of a pool share."""
    return json.dumps({name: value for name, value in json.loads(pool_settings).items() if name != "sample"})


def _kind(settings: Mapping[str, Any]) -> str:
    named = {"lists": "benchmark", "relevant": "facets", "kind": settings.get("kind", "").partition("-")[0]}
    kinds = (kind for name, kind in named.items() if name in settings)
    return next(kinds, "queries" if settings.get("queries_are") == "texts" else "pools")


class _Scored(NamedTuple):
    """Rankings of a benchmark, of systems from the best down, with the values of each query ``[systems, queries]``."""

    kind: str
    settings: Mapping[str, Any]
    runs: pl.DataFrame
    scores: pl.DataFrame
    systems: list[str]
    values: Floats
    units: list[str]
    item: str


def _scored(runs: pl.DataFrame, settings: Mapping[str, Any], recipe: Recipe) -> _Scored | None:
    """Return what counts of the rankings of some pools; None where fewer than two systems do.

    Rankings of the depth that most systems have count, of several the deepest; of each system and sample the newest.
    Systems count that ranked every sample that most did.
    """
    kind = _kind(settings)
    measure = recipe.measures.get(kind)
    runs = runs.filter(pl.col("measures").list.contains(measure or ""))
    deepest = runs.group_by("depth").agg(pl.col("system").n_unique()).sort("system", "depth")["depth"].tail(1)
    runs = runs.filter(pl.col("depth").is_in(deepest.implode()))
    runs = runs.unique(["system", "pool"], keep="last", maintain_order=True).sort("sample", maintain_order=True)
    runs = runs.filter(pl.len().over("pool") == pl.len().over("pool").max())
    runs = runs.filter(pl.len().over("system") == pl.len().over("system").max())
    if measure is None or runs["system"].n_unique() < 2:
        return None
    scores = values(runs).filter(measure=measure)
    means = scores.group_by("system", "query").agg(pl.col("value").mean()).sort("query")
    best = means.group_by("system").agg(pl.col("value").mean() * -sign_of(measure)).sort("value", "system")["system"]
    wide = means.pivot("query", index="system", values="value")
    table = pl.DataFrame(best).join(wide, on="system", maintain_order="left").drop("system")
    return _Scored(
        kind, settings, runs, scores, best.to_list(), table.to_numpy(),
        *_units(kind, runs.row(0, named=True), [int(query) for query in table.columns]),
    )  # fmt: skip


def _units(kind: str, run: Mapping[str, Any], queries: Sequence[int]) -> tuple[list[str], str]:
    """Return what each query is drawn with, and what they are of: benchmarks of one draw their units together.

    Of facets, titles and neighbours it is the paper, in all benchmarks of a corpus; of others, or where the corpus is
    gone, the query, in all pools with the same queries.
    """
    pool = opened_pool(run) if kind in ("facets", "titles", "neighbours") else None
    if pool is None:
        (drawn,) = artifact(run, "pool").outputs("queries.arrow")
        return [*map(str, queries)], drawn.sha256
    papers = query_papers(pool) if kind == "facets" else pool.corpus.ids(pool.qrels["row"].to_numpy())
    return [papers[query] for query in queries], run["corpus"]


def _of_pools(scored: Sequence[_Scored], corpora: Mapping[str, str], recipe: Recipe) -> Iterator[Benchmark]:
    """Yield the benchmarks of pools whose units are drawn together."""
    groups = {str(place): one.values for place, one in enumerate(scored)}
    units = {str(place): one.units for place, one in enumerate(scored)}
    draws = unit_means(groups, units, seed=recipe.seed, item=scored[0].item, resamples=recipe.resamples)
    for (kind, settings, runs, scores, systems, table, of_query, item), (drawn, count) in zip(
        scored, draws, strict=True
    ):
        first, of_system = runs.row(0, named=True), runs.partition_by("system", as_dict=True, maintain_order=True)
        ordered = [of_system[system,] for system in systems]
        corpus = corpora.get(first["corpus"], collection(first["corpus"]))
        measure, value, alone = recipe.measures[kind], table.mean(axis=1, keepdims=True), {"": of_query}
        (sums,), _ = by_unit({"": table}, alone)
        (influence,) = unit_influence({"": table}, alone)
        drawn = np.where(count, drawn, value)
        yield Benchmark(
            kind, _name(kind, settings, corpus, first), first["field"], first["size"], first["year"], measure, systems,
            [part["ranking"].to_list() for part in ordered],
            [_command(kind, settings, corpus, part.row(-1, named=True)) for part in ordered], table, of_query,
            np.stack([value[:, 0], *confidence_interval(drawn, influence + value)]),
            ranks(sign_of(measure) * np.hstack([value, drawn])),
            all_pairs(sums, seed=recipe.seed, item=item), runs, scores,
        )  # fmt: skip


def _name(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    field, papers = run["field"] or DATASET, settings.get("queries_are") == "papers"
    drawn = [f"{field} {format_count(run['size'])}", f"{settings['queries']} queries", *unusual(settings)]
    what = {
        "pools": ", ".join(drawn),
        "benchmark": f"lists, {field}",
        "titles": settings.get("kind", "").replace("-", " "),
        "facets": f"{field}, {'whole paper' if papers else 'sentences of the facet'}",
    }.get(kind, kind)  # fmt: skip
    return f"{corpus}: {what}"


def _command(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    """Return the command that makes the figure of a system again."""
    system = stored_system(Artifact.open(Path(run["score_paths"][0])).manifest)
    words, usual = [*COMMANDS[kind].format(corpus=corpus).split(), "--model", str(system)], canonical(PoolConfig())
    if kind == "pools":
        given = {name: value_in(settings, name) for name in SETTINGS if name != "samples"} | {"depth": run["depth"]}
        always = ("year", "size", "queries", "depth")
        words += ["--samples", str(run["sample"])]
        for name, value in given.items():
            if name in always or value not in (None, value_in(usual, name)):
                texts = (
                    [file for file, _ in value] if name == "exclude" else [None if isinstance(value, bool) else value]
                )
                words += [str(word) for text in texts for word in (option(name), text) if word is not None]
    return shlex.join(words)


def _of_formats(root: Path, recipe: Recipe) -> Iterator[Benchmark]:
    """Yield each format of SciRepEval: the tasks that most systems have, averaged as the study averages them."""
    stores = [one for folder in (root / VECTORS).glob("[!.]*") for one in published(folder)]
    encoder = {one.id: one.manifest.provenance["model"] for one in stores}
    found: dict[str, dict[str, dict[str, tuple[str, pl.DataFrame]]]] = {kind: {} for kind in FORMATS}
    for one in published(root / FOLDER):
        config, inputs = one.manifest.config, one.manifest.inputs
        if one.manifest.stage == "scirepeval" and "probe_seed" not in config and inputs["papers"] in encoder:
            entry = from_mapping(Entry, config["task"])
            system, figures = _system_of(encoder[inputs["papers"]], entry.format), one.arrow("figures.arrow")
            if entry.averaged and "scirepeval" in recipe.measures:
                counted = counted_figures(entry, pl.DataFrame(figures))
                found[entry.format].setdefault(system, {})[entry.name] = one.name, counted
    for kind, systems in found.items():
        tasks = sorted(Counter(map(frozenset, systems.values())).most_common(1)[0][0]) if systems else []
        made = {name: [of[task] for task in tasks] for name, of in systems.items() if {*tasks} <= {*of}}
        figures_of = {name: pl.concat([figures for _, figures in of]) for name, of in made.items()}
        best = sorted(made, key=lambda name: (-figures_of[name]["value"].to_numpy().mean(), name))
        if len(best) > 1:
            every = [figures_of[name] for name in best]
            table = np.stack([of.group_by("task", maintain_order=True).agg(pl.mean("value"))["value"] for of in every])
            drawn = np.stack([np.resize(np.mean(of["draws"].to_list(), axis=0), recipe.resamples) for of in every])
            value = np.array([of["value"].mean() for of in every])
            yield Benchmark(
                "scirepeval", f"SciRepEval: {kind}, {len(tasks)} tasks", kind, None, None, MEAN, best,
                [[name for name, _ in made[system]] for system in best],
                [f"{COMMANDS['scirepeval']} --model {shlex.quote(system)}" for system in best], table, tasks,
                np.vstack([value, np.transpose([*map(percentiles, drawn)])]), ranks(np.column_stack([value, drawn])),
                all_pairs(table, seed=recipe.seed, item=digest(tasks)),
            )  # fmt: skip


def _system_of(model: str, kind: str) -> str:
    """Return the system whose vectors for tasks of a format an encoder makes; settings of the study are left out."""
    name = names.one(model)
    options = tuple(pair for pair in name.options if pair[0] not in ("template", "task"))
    plain = str(names.Name(name.base, name.parts, options))
    return next((row["proximity"] for row in multi_format().values() if row.get(kind) == plain), plain)
