"""Benchmarks of a workspace, each with the systems scored on it: values, intervals and ranks.

A benchmark is any pool with its samples, or a judged pool.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact, readable
from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.core.settings import required
from pipeline.core.workspace import SCORES, corpus_folders
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.measure.design import USUAL, Design, estimate
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.ranks import all_pairs, ranks_with_ends
from pipeline.measure.statistics import Floats, by_unit
from pipeline.scores.average import PROTOCOL
from pipeline.scores.caption import DATASET, collection, unusual
from pipeline.scores.choose import option
from pipeline.scores.facts import artifact_of, setting_of
from pipeline.scores.judged import stands_on, stored_judged
from pipeline.scores.store import stored, values, with_values
from pipeline.scores.tables import label_of
from pipeline.stages.judged import VALUES
from pipeline.stages.systems import TUNED
from pipeline.stages.titles import UNTUNED, spelled, stored_system
from pipeline.studies.mdcr.evaluation import SCORES as LISTS

COMMANDS = {
    "pools": "mdcr eval --corpus {corpus}",
    "queries": "mdcr eval --corpus {corpus}",
    "benchmark": "mdcr eval --benchmark FOLDER",
    "titles": "mdcr study neighbours --corpus {corpus}",
    "neighbours": "mdcr study neighbours --corpus {corpus}",
    "judged": "mdcr judge score",
}
"""Command that computes the figures of each kind of benchmark: drawn pools, a collection's queries, lists of the MDCR
benchmark, title queries, textual neighbours, judged pools."""

_AVERAGED = ("pools", "queries", "benchmark")
"""Kinds whose figures stand in tables of scores; those of other kinds stand in tables of their study."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    workspaces: tuple[str, ...] = required("folders of further workspaces")
    benchmarks: tuple[str, ...] = required("names of the benchmarks that count, with * for any text; empty: all")
    measure: str = required("what systems are ranked by; benchmarks without it do not count")
    alpha: float = required("systems differ if their adjusted p-value is below it")
    seed: int = required("seed of the tests, and of bootstraps that no other table shows")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark and the systems that were scored on all of it, best first.

    Attributes:
        kind: a key of :data:`COMMANDS`.
        name: name in tables.
        field: field of the queries; None: all fields.
        size: number of candidates; None: there is no pool.
        year: year of the queries; None: unknown.
        measure: measure by which systems are ranked.
        systems: names of the systems.
        sources: folder names of the rankings or figures of each system.
        commands: command that reproduces each system's figure.
        values: value of each query, float64 ``[systems, queries]``.
        item: name of the set of queries, which seeds the intervals; like ``seed`` and ``resamples`` it is that of the
            tables that show the same figures.
        seed: seed of the intervals.
        resamples: number of resamples.
        units: resampling unit of each query: the paper, for titles and neighbours; else the query itself.
        figures: value and ends of its interval, float64 ``[3, systems]``.
        p_values: p-values of all pairs with Holm's correction, float64 ``[systems, systems]``.
        runs: rankings, columns :data:`pipeline.scores.frames.RUNS`; None: there are none.
        scores: scores of the rankings by the measure.
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
    item: str
    seed: int
    resamples: int
    units: Sequence[str]
    figures: Floats
    p_values: Floats
    runs: pl.DataFrame | None = None
    scores: pl.DataFrame | None = None

    @property
    def label(self) -> str:
        """Name of the measure in tables."""
        return label_of(self.measure)

    def ranks(self, alpha: float) -> Floats:
        """Return the rank of each system and the ends of its interval, float64 ``[3, systems]``."""
        return ranks_with_ends(self.sign * self.figures[0], self.p_values < alpha)

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return sign_of(self.measure)


def read_benchmarks(workspace: Workspace, recipe: Recipe) -> tuple[Sequence[Benchmark], Sequence[Path]]:
    """Return the benchmarks of the recipe's workspaces with at least two systems, by kind and name, and the workspaces.

    Raises:
        InputError: there are none, or a choice of the recipe matches nothing.
    """
    recipe = replace(recipe, measure=str(parse_measures(recipe.measure)[0]))
    roots = [workspace.root, *(Path(text).expanduser() for text in recipe.workspaces)]
    stored_runs = [with_values(stored(root, folder)) for root in roots for folder in (SCORES, LISTS)]
    runs = pl.concat(stored_runs).filter(pl.col("split").ne_missing("validation"))
    corpora = {folder: name for root in roots for folder, name in corpus_folders(root).items()}
    groups = runs.sort("made", "published").partition_by("corpus", "setup", "missing_positives")

    def benchmark_of(group: pl.DataFrame) -> Benchmark | None:
        return _of_pools(group, artifact_of(group.row(0, named=True), "pool").manifest.config, corpora, recipe)

    of_pools = filter(None, readable(groups, benchmark_of))
    benchmarks = [*of_pools, *(benchmark for root in roots for benchmark in _of_judged(root, recipe))]
    order = {kind: index for index, kind in enumerate(COMMANDS)}
    benchmarks.sort(key=lambda b: (order[b.kind], b.name.partition(":")[0], b.field or "", b.size or 0))
    name_counts = Counter[str]()
    for index, benchmark in enumerate(benchmarks):
        name_counts[benchmark.name] += 1
        if name_counts[benchmark.name] > 1:
            benchmarks[index] = replace(benchmark, name=f"{benchmark.name} ({name_counts[benchmark.name]})")
    for pattern in recipe.benchmarks:
        if not any(_is_named(benchmark, pattern) for benchmark in benchmarks):
            all_names = "; ".join(benchmark.name for benchmark in benchmarks)
            raise InputError(f"--benchmarks {pattern!r} is the name of none", f"Choose from {all_names or 'none'}")
    if recipe.benchmarks:
        benchmarks = [b for b in benchmarks if any(_is_named(b, pattern) for pattern in recipe.benchmarks)]
    if not benchmarks:
        where = ", ".join(map(str, roots))
        problem = f"two systems must be scored by {recipe.measure} on one benchmark, got none in {where}"
        raise InputError(problem, "Run mdcr demo or mdcr eval, or choose another with --measure")
    return benchmarks, roots


def _kind_of(settings: Mapping[str, Any]) -> str:
    """Return the kind of benchmark of the pools with some settings: a key of :data:`COMMANDS`."""
    if "lists" in settings:
        return "benchmark"
    kind = str(settings.get("kind", "")).partition("-")[0]
    return kind or ("queries" if settings.get("queries_are") == "texts" else "pools")


def _is_named(benchmark: Benchmark, pattern: str) -> bool:
    return fnmatchcase(benchmark.name.casefold(), pattern.casefold())


def _of_pools(
    runs: pl.DataFrame, settings: Mapping[str, Any], corpora: Mapping[str, str], recipe: Recipe
) -> Benchmark | None:
    """Return the benchmark of the pools with some settings; None if fewer than two systems count.

    Only rankings of the most frequent depth count (the deepest of several), and the newest of each system and sample.
    Only systems that ranked all samples count, and only samples that the most systems ranked.
    """
    kind, measure = _kind_of(settings), recipe.measure
    if kind not in COMMANDS or "relevant" in settings:  # facets have a study of their own
        return None
    runs = runs.filter(pl.col("measures").list.contains(measure))
    deepest = runs.group_by("depth").agg(pl.col("system").n_unique()).sort("system", "depth")["depth"].tail(1)
    runs = runs.filter(pl.col("depth").is_in(deepest.implode()))
    runs = runs.unique(["system", "pool"], keep="last", maintain_order=True).sort("sample", maintain_order=True)
    samples = runs["sample"].n_unique()
    runs = runs.filter(pl.len().over("pool") == pl.len().over("pool").max())
    runs = runs.filter(pl.len().over("system") == pl.len().over("system").max())
    if runs["system"].n_unique() < 2:
        return None
    scores = values(runs).filter(measure=measure)
    run, runs_of_system = runs.row(0, named=True), runs.partition_by("system", as_dict=True, maintain_order=True)
    corpus, pool = corpora.get(run["corpus"], collection(run["corpus"])), artifact_of(run, "pool")
    scores = scores.with_columns(item=pl.col("query").cast(pl.Int64), unit=pl.col("query").cast(pl.String))
    if kind in ("titles", "neighbours"):
        papers = pl.Series(pool.arrow("qrels.arrow")["row"].to_numpy()).cast(pl.Int64).gather(scores["query"])
        scores = scores.with_columns(unit=papers.cast(pl.String))
        if kind == "titles":  # in the order of their study
            scores = scores.with_columns(item=papers)
    item, seed, draws = corpus.removesuffix("-neighbours") if kind == "titles" else corpus, recipe.seed, USUAL
    if kind in _AVERAGED:
        item, seed, draws = run["field"] or "", PROTOCOL.seed_of(scores), PROTOCOL
    design = Design(row=("system",), item="item", group="group", unit="unit", over="sample")
    found = estimate(scores.with_columns(group=pl.lit(item)), design, seed, draws=draws, keep_draws=True)
    found = found.sort(-sign_of(measure) * pl.col("value"), "system")
    best = found["system"].to_list()
    wide = scores.sort("item").pivot("item", index="system", values="value", aggregate_function="mean")
    table = np.ascontiguousarray(
        found.select("system").join(wide, on="system", maintain_order="left")[:, 1:].to_numpy()
    )
    units = scores.unique("item").sort("item")["unit"].to_list()
    ordered, shared = [runs_of_system[system,] for system in best], runs["sample"].n_unique()
    part = f", {shared} of {samples} samples" if shared < samples else ""
    return Benchmark(
        kind, _name(kind, settings, corpus, run) + part, run["field"], run["size"], run["year"], measure, best,
        [system_runs["ranking"].to_list() for system_runs in ordered],
        [_command(kind, corpus, system_runs.row(-1, named=True)) for system_runs in ordered], table,
        item, seed, len(found["draws"][0]), units, found.select("value", "low", "high").to_numpy().T,
        all_pairs(by_unit({item: table}, {item: units})[0][0], seed=recipe.seed, item=item), runs, scores,
    )  # fmt: skip


def _name(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    field = run["field"] or DATASET
    details = [
        f"{field} {run['year']}",
        format_count(run["size"]),
        f"{settings['queries']} queries",
        *([f"seed {run['seed']}"] if run["seed"] not in (None, PoolConfig().seed) else []),
        *unusual(run),
    ]
    description = {
        "pools": ", ".join(details),
        "benchmark": f"lists, {field}",
        "titles": settings.get("kind", "").replace("-", " "),
    }.get(kind, kind)  # fmt: skip
    return f"{corpus}: {description}"


def _command(kind: str, corpus: str, run: Mapping[str, Any]) -> str:
    """Return the command that reproduces the figure of a system."""
    system = spelled(stored_system(Artifact.open(Path(run["score_paths"][0])).manifest), TUNED, UNTUNED)
    words = [*COMMANDS[kind].format(corpus=corpus).split(), "--model", str(system)]
    if kind == "pools":
        options = {name: setting_of(run, name) for name in SETTINGS if name != "samples"} | {"depth": run["depth"]}
        required = ("year", "size", "queries", "depth")
        words += ["--samples", str(run["sample"])]
        for name, value in options.items():
            default = [] if name == "exclude" else SETTINGS[name].default if name in SETTINGS else None
            if name in required or value not in (None, default):
                texts = (
                    [file for file, _ in value] if name == "exclude" else [None if isinstance(value, bool) else value]
                )
                words += [str(word) for text in texts for word in (option(name), text) if word is not None]
    return shlex.join(words)


def _of_judged(root: Path, recipe: Recipe) -> Iterator[Benchmark]:
    """Yield a benchmark per judged pool, of the systems that were scored on it last."""
    newest = {artifact.manifest.inputs["pool"]: artifact for artifact in stored_judged(root, "judged")}
    for judged in newest.values():
        values = pl.DataFrame(judged.arrow(VALUES)).filter(measure=recipe.measure)
        if values["system"].n_unique() > 1:
            name = f"{judged.manifest.slug}: {stands_on(judged).rstrip('.')}"
            found = estimate(values, Design(row=("system",)), recipe.seed, keep_draws=True)
            found = found.sort("value", "system", descending=[True, False])
            best = found["system"].to_list()
            wide = values.sort("query").pivot("query", index="system", values="value")
            table = np.ascontiguousarray(found.select("system").join(wide, on="system", maintain_order="left")[:, 1:])
            yield Benchmark(
                "judged", name, None, None, None, recipe.measure, best, [[judged.name]] * len(best),
                [f"{COMMANDS['judged']} --model {shlex.quote(','.join(best))}"] * len(best), table,
                "", recipe.seed, len(found["draws"][0]), wide.columns[1:],
                found.select("value", "low", "high").to_numpy().T, all_pairs(table, seed=recipe.seed, item=judged.id),
            )  # fmt: skip
