"""The study ``mdcr_eval``: systems on a benchmark in the published layout (Medić & Šnajder 2022, tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.measure.statistics import Floats, Groups, holm, mean_of_means, permutation_of_means
from pipeline.scores.average import AVERAGE, Draws
from pipeline.scores.charts import charts, heat
from pipeline.scores.layout import build_tables, shown
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import HeatMap, Part
from pipeline.scores.page.report import best_of
from pipeline.scores.records import flat
from pipeline.scores.store import ScoredRun, opened_pool, runs_of_artifacts
from pipeline.scores.store import values as scores_of
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Cell, Column, frame_table, grid, label_of
from pipeline.stages.systems import parse_systems, weighted
from pipeline.studies.base import RECIPES, Study, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, made
from pipeline.studies.mdcr.evaluation import (
    BY_RANK,
    INDEXES,
    RankedLists,
    benchmark_pools,
    corpus_task,
    opened,
    rank,
    validation_pools,
)
from pipeline.studies.mdcr.layout import file_names, read_lists
from pipeline.studies.mdcr.lists import DEPTH, MEASURES, Lists

PUBLISHED = RECIPES.parent / "reference"
"""Folder of the figures that the papers print."""

_ALPHA = 0.05
_BESIDE = {"value": "here", "low": "low", "high": "high", "paper": "paper"}


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        input: folder of the benchmark.
        split: ``test`` or ``val``.
        systems: with commas.
        bm25_index: whose documents BM25 counts (:data:`pipeline.studies.mdcr.evaluation.INDEXES`).
        baseline: system that the others are tested against; empty: none.
        seed: of the bootstrap and the tests.
    """

    input: str
    split: str
    systems: str
    bm25_index: str
    baseline: str
    seed: int


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpus of the benchmark's texts, then the scores of each system on each field."""
    if recipe.baseline:
        check_baseline(recipe.baseline, recipe.systems)
    yield [corpus_task(Path(recipe.input), split) for split in _splits(recipe)]
    yield [each.score for each in ranked(workspace, recipe)[1]]


def ranked(workspace: Workspace, recipe: Recipe) -> tuple[Artifact, list[RankedLists]]:
    """Return the corpus of the benchmark, which must have been made, and each system on each field."""
    folder = Path(recipe.input)
    corpus = made(workspace, corpus_task(folder, recipe.split))
    lists = read_lists(folder, recipe.split)
    validation = validation_pools(workspace, folder, lists) if len(_splits(recipe)) > 1 else {}
    pools = benchmark_pools(corpus, recipe.split, lists)
    return corpus, rank(workspace, corpus, pools, recipe.systems, recipe.bm25_index, validation)


def _splits(recipe: Recipe) -> list[str]:
    """Return the split that is scored; with weighted sums, also the one that their weights are chosen on.

    Raises:
        InputError: that is the one that is scored, or the benchmark does not have it.
    """
    sums = [system.name for system in parse_systems(recipe.systems) if weighted(system)]
    if not sums:
        return [recipe.split]
    if recipe.split == "val":
        raise InputError(f"{sums[0]} has its weights from split val, so it must score split test", BY_RANK)
    absent = [name for name in file_names("val") if not (Path(recipe.input) / name).is_file()]
    if absent:
        raise InputError(f"{sums[0]} has its weights from split val, got no {absent[0]} in {recipe.input}", BY_RANK)
    return [recipe.split, "val"]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return tables 3 and 4, the figures that the papers print, and the queries one by one."""
    corpus, found = ranked(workspace, recipe)
    runs = runs_of_artifacts(scored_run(workspace, corpus, each) for each in found)
    runs = runs.with_columns(pl.lit("benchmark").alias("kind"))  # a system is one row, however long its lists are
    scores = scores_of(runs)
    baseline = recipe.baseline if recipe.baseline in set(runs["system"]) else None
    draws = Draws(seed=recipe.seed)
    summary = shown(summarise(scores, baseline=baseline, draws=draws), MEASURES)
    fields = with_published(flat(summary), "benchmark.")
    opened_pools = (opened_pool(run) for run in runs.unique("pool", maintain_order=True).iter_rows(named=True))
    pools = {pool.artifact.name: pool for pool in opened_pools if pool is not None}
    notes = [f"BM25 counts the documents of {INDEXES[recipe.bm25_index]}.", *_short_lists(pools.values())]
    (table,) = build_tables(summary, runs)
    title = f"{Path(recipe.input).resolve().name}, {recipe.split}"
    tables = [StudyTable("fields", replace(table, title=title, notes=(*table.notes, *notes)), fields)]
    tables += [types_table(values_of(workspace, corpus, found), baseline, recipe.seed), *published_table(fields)]
    heats = [heat(summary, runs)] if summary["over"][0] == "fields" else []
    typed = {name: Lists(pool).typed() for name, pool in pools.items()}
    queries = browser(runs, scores, MEASURES, draws, types=typed)
    parts: list[Part] = [*charts(summary, runs), *heats, types_heat(tables[1]), queries]
    return StudyResult(tables, sources=[corpus.name, *pools], parts=parts, best=best_of(summary, runs))


def _short_lists(pools: Iterable[Pool]) -> list[str]:
    """Return a note on the fields whose lists all fit in :data:`DEPTH`."""
    configs = [pool.artifact.manifest.config for pool in pools]
    short = [config["field"] for config in configs if config["longest"] <= DEPTH]
    what = f"recall@{DEPTH} is 1 by construction in {', '.join(short)}: no list has more than {DEPTH} candidates."
    return [what] if short else []


def scored_run(workspace: Workspace, corpus: Artifact, ranked: RankedLists) -> ScoredRun:
    """Return the artifacts of one system on one field."""
    score, ranking, pool = workspace.make([ranked.score, ranked.ranking, ranked.pool])
    return ScoredRun((score,), ranking, pool, corpus)


Values = Mapping[str, Mapping[str, Groups]]
"""Measures of each query, float64 ``[measures, queries]``, by system, candidate type and field."""


def values_of(workspace: Workspace, corpus: Artifact, found: Sequence[RankedLists]) -> Values:
    """Return the measures of the positives and the negatives of one type alone."""
    values: dict[str, dict[str, dict[str, Floats]]] = {}
    for each in found:
        lists, ranking = opened(workspace, corpus, each)
        for name in lists.types:
            by_type = values.setdefault(each.system, {}).setdefault(name, {})
            by_type[each.field] = lists.values(ranking, MEASURES, {name})
    return values


def types_table(values: Values, baseline: str | None, seed: int) -> StudyTable:
    """Return table 4: how hard each candidate type is for each system, mean over the fields that have it."""
    systems, types = list(values), list(next(iter(values.values())))
    means = {(system, name): mean_of_means(own[name], seed) for system, own in values.items() for name in types}
    p_values = {
        system: np.apply_along_axis(
            holm, 0, [_p_values(of_types[name], values[baseline][name], seed) for name in types]
        )
        for system, of_types in values.items()
        if baseline and system != baseline
    }
    rows: list[dict[str, Any]] = [
        {"system": system, "field": name, "measure": measure}
        | {end: float(getattr(means[system, name], end)[place]) for end in ("value", "low", "high")}
        | {"p_adjusted": float(p_values[system][number, place]) if system in p_values else None}
        for system in systems
        for place, measure in enumerate(MEASURES)
        for number, name in enumerate(types)
    ]
    frame = with_published(pl.DataFrame(rows, infer_schema_length=None), "benchmark-type.").rename({"field": "type"})
    found = by_type(frame)
    notes = [f"Percent: mean over fields of the {len(types)} types alone, with all positives [95% interval]."]
    if baseline is not None:
        notes.append(f"† differs from {baseline}: paired permutation test, Holm's correction over types, p < 0.05.")
    places = [(measure, system) for measure in MEASURES if measure != "ndcg" for system in systems]
    cells = {(name, Column(label_of(m), s)): _figure(found[name, m, s]) for name in types for m, s in places}
    return StudyTable("types", grid("Candidate types", "type", cells, notes), frame)


def _p_values(system: Groups, baseline: Groups, seed: int) -> Floats:
    """Return the p-value of each measure's mean difference over fields, float64 ``[measures]``."""
    changes = {field: values - baseline[field] for field, values in system.items()}
    return permutation_of_means(changes, seed, item="fields")


def by_type(frame: pl.DataFrame) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the rows of table 4 by type, measure and system."""
    return {(row["type"], row["measure"], row["system"]): row for row in frame.iter_rows(named=True)}


def types_heat(table: StudyTable) -> HeatMap:
    """Return table 4 coloured by value."""
    found = by_type(table.frame)
    types, measures, systems = (list(dict.fromkeys(each)) for each in zip(*found, strict=True))
    views = {label_of(m): [[found[name, m, system]["value"] for system in systems] for name in types] for m in measures}
    return HeatMap("Types by systems", "type", types, systems, views)


def _figure(row: Mapping[str, Any]) -> Cell:
    marked = row["p_adjusted"] is not None and row["p_adjusted"] < _ALPHA
    return Cell(row["value"], None, row["low"], row["high"], best=False, marked=marked)


def with_published(frame: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Add the column ``paper``: the figure that a paper prints, a fraction; null where there is none."""
    files = [pl.read_csv(PUBLISHED / name) for name in ("mdcr.csv", "tables/mdcr_benchmark.csv")]
    known = pl.concat(files).with_columns(
        pl.when(pl.col("experiment") == prefix.rstrip("."))
        .then(pl.lit(AVERAGE))
        .otherwise(pl.col("experiment").str.strip_prefix(prefix))
        .alias("field"),
        (pl.col("percent") / 100).alias("paper"),
    )
    own = known.filter(pl.col("experiment").str.starts_with(prefix.rstrip("."))).unique(["system", "field", "measure"])
    return frame.join(
        own.select("system", "field", "measure", "paper"), on=["system", "field", "measure"], how="left",
        maintain_order="left",
    )  # fmt: skip


def published_table(fields: pl.DataFrame) -> list[StudyTable]:
    """Return the figures beside those that the papers print; none where no system and field is in a paper."""
    figures = [(pl.col(name) * 100).alias(shown) for name, shown in _BESIDE.items()]
    both = fields.filter(pl.col("paper").is_not_null()).select("field", "system", "measure", *figures)
    note = "Percent. The paper's benchmark is of S2ORC; another corpus or other candidates give other figures."
    return (
        [StudyTable("paper", frame_table("Beside the figures of the papers", both, [note]), both)] if len(both) else []
    )


STUDY = Study(
    "mdcr_eval",
    "score systems on a benchmark in the MDCR layout",
    Recipe,
    batches,
    results,
    needs="Build one, mdcr study mdcr, and give its folder with --input; or get the published one: curl --create-dirs "
    "--output-dir benchmark -O 'https://takelab.fer.hr/data/mdcr/mdcr_test{.json,_data.jsonl}'",
)
