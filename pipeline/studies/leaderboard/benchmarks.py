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

from pipeline.studies import kit

COMMANDS = {
    "pools": "mdcr eval --corpus {corpus}",
    "queries": "mdcr eval --corpus {corpus}",
    "benchmark": "mdcr study mdcr_eval --input FOLDER",
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

    workspaces: tuple[str, ...] = kit.required("folders of further workspaces")
    benchmarks: tuple[str, ...] = kit.required("names of the benchmarks that count, with * for any text; empty: all")
    measure: str = kit.required("what systems are ranked by; benchmarks without it do not count")
    alpha: float = kit.required("systems differ if their adjusted p-value is below it")
    seed: int = kit.required("seed of the tests, and of bootstraps that no other table shows")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark and the systems that were scored on all of it.

    Attributes:
        facts: ``kind``, a key of :data:`COMMANDS`; ``benchmark``, its name; ``field``, ``size`` and ``year`` of its
            pools, null if there are none; ``measure``, by which systems are ranked.
        systems: a row for each system, best first: ``system``, the facts, ``value`` and its interval, ``rank`` and its
            interval, ``group`` of letters, number of ``queries``, ``command`` that reproduces the figure, ``similar``
            systems, folder names of its ``rankings`` or figures, and how its interval was ``drawn``.
        values: ``system``, ``item``, ``unit`` that is resampled (the paper, for titles and neighbours), ``class`` of
            neighbours, ``sample``, ``measure`` and ``value``.
        group: name of the set of queries, which seeds the intervals as in the tables that show the same figures.
        seed: seed of the intervals.
        draws: number of their resamples.
        runs: rankings, labelled by system; None: there are none.
        scores: their scores by the measure.
    """

    facts: dict[str, Any]
    systems: pl.DataFrame
    values: pl.DataFrame
    group: str
    seed: int
    draws: kit.Draws
    runs: pl.DataFrame | None = None
    scores: pl.DataFrame | None = None

    @property
    def name(self) -> str:
        """Name in tables."""
        return str(self.facts["benchmark"])

    @property
    def names(self) -> list[str]:
        """Names of the systems, best first."""
        return list(self.systems["system"])

    def renamed(self, name: str) -> Benchmark:
        """Return the benchmark with another name."""
        systems = self.systems.with_columns(benchmark=pl.lit(name))
        return replace(self, facts=self.facts | {"benchmark": name}, systems=systems)


def read_benchmarks(workspace: kit.Workspace, recipe: Recipe) -> tuple[Sequence[Benchmark], Sequence[Path]]:
    """Return the benchmarks of the recipe's workspaces with at least two systems, by kind and name, and the workspaces.

    Raises:
        InputError: there are none, or a choice of the recipe matches nothing.
    """
    recipe = replace(recipe, measure=str(kit.parse_measures(recipe.measure)[0]))
    roots = [workspace.root, *(Path(text).expanduser() for text in recipe.workspaces)]
    runs = kit.stored_runs(roots).filter(pl.col("split").ne_missing("validation"))
    corpora = {folder: name for root in roots for folder, name in kit.corpus_folders(root).items()}
    groups = runs.sort("made", "published").partition_by("corpus", "setup", "missing_positives")
    of_pools = kit.readable(groups, lambda group: _of_pools(group, corpora, recipe))
    found = [*filter(None, of_pools), *(benchmark for root in roots for benchmark in _of_judged(root, recipe))]
    order = list(COMMANDS)
    found.sort(
        key=lambda b: (
            order.index(b.facts["kind"]), b.name.partition(":")[0], b.facts["field"] or "", b.facts["size"] or 0
        )
    )  # fmt: skip
    benchmarks, times = list[Benchmark](), Counter[str]()
    for benchmark in found:
        times[benchmark.name] += 1
        number = times[benchmark.name]
        benchmarks.append(benchmark if number == 1 else benchmark.renamed(f"{benchmark.name} ({number})"))
    if recipe.benchmarks:
        names = [benchmark.name.casefold() for benchmark in benchmarks]
        for pattern in recipe.benchmarks:
            if not any(fnmatchcase(name, pattern.casefold()) for name in names):
                known = "; ".join(benchmark.name for benchmark in benchmarks) or "none"
                raise kit.InputError(f"--benchmarks {pattern!r} is the name of none", f"Choose from {known}")
        patterns = [pattern.casefold() for pattern in recipe.benchmarks]
        chosen = zip(benchmarks, names, strict=True)
        benchmarks = [of for of, name in chosen if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not benchmarks:
        where = ", ".join(map(str, roots))
        problem = f"two systems must be scored by {recipe.measure} on one benchmark, got none in {where}"
        raise kit.InputError(problem, "Run mdcr demo or mdcr eval, or choose another with --measure")
    return benchmarks, roots


def _of_pools(runs: pl.DataFrame, corpora: Mapping[str, str], recipe: Recipe) -> Benchmark | None:
    """Return the benchmark of the pools with some settings; None if fewer than two systems count.

    Only rankings of the most frequent depth count (the deepest of several), and the newest of each system and sample.
    Only systems that ranked all samples count, and only samples that the most systems ranked.
    """
    settings = kit.artifact_of(runs.row(0, named=True), "pool").manifest.config
    kind = "benchmark" if "lists" in settings else str(settings.get("kind", "")).partition("-")[0]
    kind = kind or ("queries" if settings.get("queries_are") == "texts" else "pools")
    if kind not in COMMANDS or "relevant" in settings:  # facets have a study of their own
        return None
    runs = runs.filter(pl.col("measures").list.contains(recipe.measure))
    deepest = runs.group_by("depth").agg(pl.col("system").n_unique()).sort("system", "depth")["depth"].tail(1)
    runs = runs.filter(pl.col("depth").is_in(deepest.implode()))
    runs = runs.unique(["system", "pool"], keep="last", maintain_order=True).sort("sample", maintain_order=True)
    samples = runs["sample"].n_unique()
    runs = runs.filter(pl.len().over("pool") == pl.len().over("pool").max())
    runs = runs.filter(pl.len().over("system") == pl.len().over("system").max())
    if runs["system"].n_unique() < 2:
        return None
    scores, run = kit.values(runs).filter(measure=recipe.measure), runs.row(0, named=True)
    corpus, pool = corpora.get(run["corpus"], kit.collection(run["corpus"])), kit.artifact_of(run, "pool")
    query, unit, of_class = pl.col("query").cast(pl.Int64), pl.col("query").cast(pl.String), pl.lit(None, pl.String)
    item = query
    if kind in ("titles", "neighbours"):
        papers = pl.Series(pool.arrow("qrels.arrow")["row"].to_numpy()).cast(pl.Int64).gather(scores["query"])
        unit, item = pl.lit(papers.cast(pl.String)), pl.lit(papers) if kind == "titles" else query  # as in their study
    if kind == "neighbours":
        of_class = pl.lit(pl.Series(pool.arrow("queries.arrow")["field"].to_pylist()).gather(scores["query"]))
    values = scores.with_columns(item=item, unit=unit, **{"class": of_class})
    group, seed, draws = corpus.removesuffix("-neighbours") if kind == "titles" else corpus, recipe.seed, kit.USUAL
    if kind in _AVERAGED:
        group, seed, draws = run["field"] or "", kit.PROTOCOL.seed_of(scores), kit.PROTOCOL
    shared = runs["sample"].n_unique()
    part = f", {shared} of {samples} samples" if shared < samples else ""
    facts = {"kind": kind, "benchmark": _name(kind, settings, corpus, run) + part}
    facts |= {name: run[name] for name in ("field", "size", "year")}
    of_system = [
        (system, of["ranking"].to_list(), _command(kind, corpus, of.row(-1, named=True)))
        for (system,), of in runs.group_by("system", maintain_order=True)
    ]
    return _ranked(facts, values, of_system, (group, group), seed, draws, recipe, runs, scores)


def _ranked(
    facts: dict[str, Any], values: pl.DataFrame, of_system: Sequence[tuple[str, list[str], str]],
    groups: tuple[str, str], seed: int, draws: kit.Draws, recipe: Recipe, *rankings: pl.DataFrame,
) -> Benchmark:  # fmt: skip
    """Return a benchmark: ``groups`` name its queries in the draws of intervals and of tests."""
    facts |= {"measure": recipe.measure}
    design = kit.Design(row=("system",), item="item", group="group", unit="unit", over="sample")
    found = kit.estimate(values.with_columns(group=pl.lit(groups[0])), design, seed, draws=draws, keep_draws=True)
    sign = kit.sign_of(recipe.measure)
    found = found.sort(-sign * pl.col("value"), "system")
    names = found["system"].to_list()
    wide = values.sort("item").pivot("item", index="system", values="value", aggregate_function="mean")
    wide = found.select("system").join(wide, on="system", maintain_order="left")[:, 1:]
    units = values.unique("item").sort("item")["unit"].to_list()
    together = kit.by_unit({"": np.ascontiguousarray(wide.to_numpy())}, {"": units})[0][0]
    apart = kit.all_pairs(together, seed=recipe.seed, item=groups[1]) < recipe.alpha
    ranks, resamples = kit.ranks_with_ends(sign * found["value"].to_numpy(), apart), len(found["draws"][0])
    systems = found.select(
        "system", *(pl.lit(value, _FACTS[name]).alias(name) for name, value in facts.items()), "value", "low", "high",
        **dict(zip(("rank", "rank_low", "rank_high"), map(pl.Series, ranks), strict=True)),
        group=pl.Series(kit.letters(apart)), queries=pl.lit(wide.width, pl.Int64),
        similar=pl.Series([[name for name, is_apart in zip(names, row, strict=True) if not is_apart] for row in apart]),
        drawn=pl.lit(f"{resamples:,} resamples of queries, seed {seed}"),
    )  # fmt: skip
    systems = systems.with_columns(similar=pl.col("similar").list.set_difference(pl.concat_list("system")))
    further = pl.DataFrame(of_system, ["system", "rankings", "command"], orient="row")
    systems = systems.join(further, on="system", maintain_order="left")
    return Benchmark(facts, systems, values, groups[0], seed, kit.Draws(resamples=resamples), *rankings)


_FACTS = dict.fromkeys(("kind", "benchmark", "field", "measure"), pl.String) | {"size": pl.Int64, "year": pl.Int64}


def _name(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    field, described = run["field"] or "dataset level", kind
    if kind == "pools":
        details = [f"{field} {run['year']}", kit.format_count(run["size"]), f"{settings['queries']} queries"]
        details += [] if run["seed"] in (None, kit.PoolConfig().seed) else [f"seed {run['seed']}"]
        described = ", ".join([*details, *kit.unusual(run)])
    elif kind == "benchmark":
        described = f"lists, {field}"
    elif kind == "titles":
        described = settings["kind"].replace("-", " ")
    return f"{corpus}: {described}"


def _command(kind: str, corpus: str, run: Mapping[str, Any]) -> str:
    """Return the command that reproduces the figure of a system."""
    system = kit.stored_system(kit.Artifact.open(Path(run["score_paths"][0])).manifest)
    words = [*COMMANDS[kind].format(corpus=corpus).split(), "--model", kit.spelled(system, kit.TUNED, kit.UNTUNED)]
    if kind == "pools":
        words += ["--samples", str(run["sample"])]
        options = {name: kit.setting_of(run, name) for name in kit.SETTINGS if name != "samples"}
        for name, value in (options | {"depth": run["depth"]}).items():
            default = kit.SETTINGS[name].default if name in kit.SETTINGS else None
            if name == "exclude":
                words += [word for file, _ in value for word in (kit.option(name), file)]
            elif name in ("year", "size", "queries", "depth") or value not in (None, default):
                words += [kit.option(name)] + [str(value)] * (not isinstance(value, bool))
    return shlex.join(map(str, words))


def _of_judged(root: Path, recipe: Recipe) -> Iterator[Benchmark]:
    """Yield a benchmark per judged pool, of the systems that were scored on it last."""
    for judged in {
        artifact.manifest.inputs["pool"]: artifact for artifact in kit.stored_judged(root, "judged")
    }.values():
        values = pl.DataFrame(judged.arrow("values.arrow")).filter(measure=recipe.measure)
        names = values["system"].unique(maintain_order=True)
        if len(names) > 1:
            unit, no_class = pl.col("query").cast(pl.String), pl.lit(None, pl.String)
            values = values.with_columns(item="query", unit=unit, sample=0, **{"class": no_class})
            name = f"{judged.manifest.slug}: {kit.stands_on(judged).rstrip('.')}"
            facts = {"kind": "judged", "benchmark": name, "field": None, "size": None, "year": None}
            of_system = [(system, [judged.name], "") for system in names]
            made = _ranked(facts, values, of_system, ("", judged.id), recipe.seed, kit.USUAL, recipe)
            command = f"{COMMANDS['judged']} --model {shlex.quote(','.join(made.names))}"
            yield replace(made, systems=made.systems.with_columns(command=pl.lit(command)))
