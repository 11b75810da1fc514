"""Benchmarks of a workspace, pools with their samples, each with the systems scored on it: values, intervals, ranks."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
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
}
"""Command that computes the figures of each kind of benchmark: drawn pools, a collection's queries, lists of the MDCR
benchmark. Other pools have a study of their own, or ``mdcr judge``."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    benchmarks: tuple[str, ...] = kit.required("names of the benchmarks that count, with * for any text; empty: all")
    measure: str = kit.required("what systems are ranked by; benchmarks without it do not count")
    alpha: float = kit.required("systems differ if their adjusted p-value is below it")
    seed: int = kit.required("seed of the tests")
    training: tuple[str, ...] = kit.required("files of training data, for values over queries that are not in them")
    contained: float = kit.required("share of 13-word sequences in common, from which a text counts as the paper")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark and the systems that were scored on all of it.

    Attributes:
        facts: ``kind``, a key of :data:`COMMANDS`; ``benchmark``, its name; ``field``, ``size`` and ``year`` of its
            pools; ``measure``, by which systems are ranked.
        systems: a row for each system, best first: the facts, ``value`` and ``rank`` with intervals, ``group`` of
            letters, ``command`` that reproduces the figure, ``similar`` systems, ``rankings``, and how its interval was
            ``drawn``.
        runs: its rankings.
        scores: their values by the measure.
    """

    facts: dict[str, Any]
    systems: pl.DataFrame
    runs: pl.DataFrame
    scores: pl.DataFrame

    @property
    def name(self) -> str:
        """Name in tables."""
        return str(self.facts["benchmark"])

    @property
    def names(self) -> list[str]:
        """Names of the systems, best first."""
        return list(self.systems["system"])


def estimates(scores: pl.DataFrame, field: str, seed: int) -> pl.DataFrame:
    """Return the values of systems on a benchmark as in tables of scores (:func:`pipeline.measure.design.estimate`)."""
    design = kit.Design(row=("system",), item="query", group="group", over="sample")
    return kit.estimate(scores.with_columns(group=pl.lit(field)), design, seed, draws=kit.PROTOCOL)


def read_benchmarks(workspace: kit.Workspace, recipe: Recipe) -> Sequence[Benchmark]:
    """Return the benchmarks of a workspace with at least two systems, by kind and name.

    Raises:
        InputError: there are none, or a choice of the recipe matches nothing.
    """
    recipe, root = replace(recipe, measure=str(kit.parse_measures(recipe.measure)[0])), workspace.root
    runs = kit.stored_runs(root).filter(pl.col("split").ne_missing("validation"))
    corpora = kit.corpus_folders(root)
    groups = runs.sort("made", "published").partition_by("corpus", "setup", "missing_positives")
    found = [*filter(None, kit.readable(groups, lambda group: _of_pools(group, corpora, recipe)))]
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
        benchmarks.append(benchmark if number == 1 else _renamed(benchmark, f"{benchmark.name} ({number})"))
    for pattern in recipe.benchmarks:
        if not any(_is_called(benchmark, [pattern]) for benchmark in benchmarks):
            known = "; ".join(benchmark.name for benchmark in benchmarks) or "none"
            raise kit.InputError(f"--benchmarks {pattern!r} is the name of none", f"Choose from {known}")
    if recipe.benchmarks:
        benchmarks = [benchmark for benchmark in benchmarks if _is_called(benchmark, recipe.benchmarks)]
    if not benchmarks:
        problem = f"two systems must be scored by {recipe.measure} on one benchmark, got none in {root}"
        raise kit.InputError(problem, "Run mdcr demo or mdcr eval, or choose another with --measure")
    return benchmarks


def _renamed(benchmark: Benchmark, name: str) -> Benchmark:
    systems = benchmark.systems.with_columns(benchmark=pl.lit(name))
    return replace(benchmark, facts=benchmark.facts | {"benchmark": name}, systems=systems)


def _is_called(benchmark: Benchmark, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(benchmark.name.casefold(), pattern.casefold()) for pattern in patterns)


def _of_pools(runs: pl.DataFrame, corpora: Mapping[str, str], recipe: Recipe) -> Benchmark | None:
    """Return the benchmark of the pools with some settings; None if fewer than two systems count.

    Only rankings of the most frequent depth count (the deepest of several), and the newest of each system and sample.
    Only systems that ranked all samples count, and only samples that the most systems ranked.
    """
    settings = kit.artifact_of(runs.row(0, named=True), "pool").manifest.config
    kind = "benchmark" if "lists" in settings else str(settings.get("kind", ""))
    kind = kind or ("queries" if settings.get("queries_are") == "texts" else "pools")
    if kind not in COMMANDS or "relevant" in settings:  # pools of facets
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
    run, shared = runs.row(0, named=True), runs["sample"].n_unique()
    corpus = corpora.get(run["corpus"], kit.collection(run["corpus"]))
    part = f", {shared} of {samples} samples" if shared < samples else ""
    facts = {"kind": kind, "benchmark": _name(kind, settings, corpus, run) + part}
    facts |= {name: run[name] for name in ("field", "size", "year")} | {"measure": recipe.measure}
    scores = kit.values(runs).filter(measure=recipe.measure).with_columns(pl.col("query").cast(pl.Int64))
    of_system = [
        (system, of["ranking"].to_list(), _command(kind, corpus, of.row(-1, named=True)))
        for (system,), of in runs.group_by("system", maintain_order=True)
    ]
    further = pl.DataFrame(of_system, ["system", "rankings", "command"], orient="row")
    systems = _ranked(facts, scores, recipe).join(further, on="system", maintain_order="left")
    return Benchmark(facts, systems, runs, scores)


def _ranked(facts: Mapping[str, Any], scores: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the systems of a benchmark, best first: what :attr:`Benchmark.systems` has but rankings and command."""
    field, seed, sign = facts["field"] or "", kit.PROTOCOL.seed_of(scores), kit.sign_of(recipe.measure)
    found = estimates(scores, field, seed).sort(-sign * pl.col("value"), "system")
    names = found["system"].to_list()
    wide = scores.sort("query").pivot("query", index="system", values="value", aggregate_function="mean")
    wide = found.select("system").join(wide, on="system", maintain_order="left")[:, 1:]
    apart = kit.all_pairs(np.ascontiguousarray(wide.to_numpy()), seed=recipe.seed, item=field) < recipe.alpha
    ranks = kit.ranks_with_ends(sign * found["value"].to_numpy(), apart)
    systems = found.select(
        "system", *(pl.lit(value, _FACTS[name]).alias(name) for name, value in facts.items()), "value", "low", "high",
        **dict(zip(("rank", "rank_low", "rank_high"), map(pl.Series, ranks), strict=True)),
        group=pl.Series(kit.letters(apart)), queries=pl.lit(wide.width, pl.Int64),
        similar=pl.Series([[name for name, is_apart in zip(names, row, strict=True) if not is_apart] for row in apart]),
        drawn=pl.lit(f"{kit.PROTOCOL.resamples:,} resamples of queries, seed {seed}"),
    )  # fmt: skip
    return systems.with_columns(similar=pl.col("similar").list.set_difference(pl.concat_list("system")))


_FACTS = dict.fromkeys(("kind", "benchmark", "field", "measure"), pl.String) | {"size": pl.Int64, "year": pl.Int64}


def _name(kind: str, settings: Mapping[str, Any], corpus: str, run: Mapping[str, Any]) -> str:
    field, described = run["field"] or "dataset level", kind
    if kind == "pools":
        details = [f"{field} {run['year']}", kit.format_count(run["size"]), f"{settings['queries']} queries"]
        details += [] if run["seed"] in (None, kit.PoolConfig().seed) else [f"seed {run['seed']}"]
        described = ", ".join([*details, *kit.unusual(run)])
    elif kind == "benchmark":
        described = f"lists, {field}"
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
