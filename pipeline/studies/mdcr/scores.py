"""The study ``mdcr_eval``: systems on a benchmark in the published layout (Medić & Šnajder 2022, tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from pipeline.corpus.reader import Corpus
from pipeline.report import collect
from pipeline.report.aggregate import summarise
from pipeline.report.identity import Chosen
from pipeline.report.model import AVERAGE, ReportSettings
from pipeline.report.page.browse import browser
from pipeline.report.page.of_report import charts, heat
from pipeline.report.page.parts import Heat
from pipeline.report.tables import Column, Figure, Line, Table, build_tables, label_of
from pipeline.stages.systems import parse_systems
from pipeline.studies.base import RECIPES, Findings, Study, StudyTable
from pipeline.studies.common import frame_of, table_of
from pipeline.studies.mdcr.evaluation import (
    BY_RANK,
    Ranked,
    benchmark_pools,
    corpus_task,
    opened,
    rank,
    validation_pools,
    weighted,
)
from pipeline.studies.mdcr.layout import file_names, read_lists
from pipeline.studies.mdcr.lists import Floats, Lists
from pipeline.studies.mdcr.macro import adjusted, macro
from pipeline.studies.mdcr.scorefile import MEASURES

PUBLISHED = RECIPES.parent / "reference"
"""Folder of the figures that the papers print."""

_NAMES = tuple(map(str, MEASURES))
_ALPHA = 0.05


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        input: folder of the benchmark.
        split: ``test`` or ``val``.
        systems: with commas.
        bm25_index: whose documents BM25 counts: ``corpus`` (all lists of a field) or ``query`` (each list alone).
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
    yield [corpus_task(Path(recipe.input), split) for split in _splits(recipe)]
    yield [each.score for each in ranked(workspace, recipe)[1]]


def ranked(workspace: Workspace, recipe: Recipe) -> tuple[Artifact, list[Ranked]]:
    """Return the corpus of the benchmark, which must have been made, and each system on each field."""
    folder = Path(recipe.input)
    corpus = Artifact.open(workspace.runner.path(corpus_task(folder, recipe.split)))
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


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return tables 3 and 4, the figures that the papers print, and the queries one by one."""
    corpus, found = ranked(workspace, recipe)
    chosen = [chosen_of(workspace, corpus, each) for each in found]
    # One at a time, so that no label says how long the lists of other fields are.
    scored = [each for one in chosen for each in collect.load([one])]
    baseline = recipe.baseline if recipe.baseline in {each.system for each in found} else None
    settings = ReportSettings(seed=recipe.seed, baseline=baseline)
    report = summarise(scored, settings, _NAMES)
    fields = with_published(frame_of(report), "benchmark.")
    note = f"BM25 counts the documents of {'each list' if recipe.bm25_index == 'query' else 'all lists of a field'}."
    (table,) = build_tables(report)
    title = f"{Path(recipe.input).resolve().name}, {recipe.split}"
    tables = [StudyTable("fields", replace(table, title=title, notes=(*table.notes, note)), fields)]
    values = values_of(workspace, corpus, found)
    tables += [types_table(values, baseline, recipe.seed), *published_table(fields)]
    heats = [heat(report, family) for family in report.families if family.kind == "fields"]
    opened_pools = {each.pool.id: Lists(Pool(each.pool, Corpus(corpus))) for each in chosen}
    typed = {name: lists.typed() for name, lists in opened_pools.items()}
    queries = browser(chosen, scored, _NAMES, settings, types=typed)
    sources = [corpus.name, *dict.fromkeys(each.pool.name for each in chosen)]
    return Findings(tables, sources=sources, parts=[*charts(report), *heats, types_heat(values), queries])


def chosen_of(workspace: Workspace, corpus: Artifact, ranked: Ranked) -> Chosen:
    """Return what was scored of one system on one field, as reports take it."""
    score, ranking, pool = workspace.make([ranked.score, ranked.ranking, ranked.pool])
    return Chosen(ranked.system, (score,), ranking, pool, corpus)


def types_heat(values: Values) -> Heat:
    """Return table 4 coloured by value."""
    types = list(next(iter(values.values())))

    def mean(by_field: Mapping[str, Floats], place: int) -> float:
        return float(np.mean([each[place].mean() for each in by_field.values()]))

    return Heat(
        "Types by systems",
        "type",
        types,
        list(values),
        {label_of(name): [[mean(own[kind], place) for own in values.values()] for kind in types]
         for place, name in enumerate(_NAMES)},
    )  # fmt: skip


Values = Mapping[str, Mapping[str, Mapping[str, Floats]]]
"""Measures of each query, float64 ``[measures, queries]``, by system, candidate type and field."""


def values_of(workspace: Workspace, corpus: Artifact, found: Sequence[Ranked]) -> Values:
    """Return the measures of the positives and the negatives of one type alone."""
    values: dict[str, dict[str, dict[str, Floats]]] = {}
    for each in found:
        lists, ranking = opened(workspace, corpus, each)
        for name in lists.types:
            by_type = values.setdefault(each.system, {}).setdefault(name, {})
            by_type[each.field] = lists.values(ranking, _NAMES, {name})
    return values


def types_table(values: Values, baseline: str | None, seed: int) -> StudyTable:
    """Return table 4: how hard each candidate type is for each system, mean over fields."""
    systems = list(values)
    types = list(next(iter(values.values())))
    rows: list[dict[str, Any]] = []
    for system in systems:
        tested = baseline is not None and system != baseline
        for place, measure in enumerate(_NAMES):
            p_values: list[float | None] = [None] * len(types)
            if tested:
                other = values[baseline or ""]
                differences = {
                    field: np.stack([values[system][name][field][place] - other[name][field][place] for name in types])
                    for field in values[system][types[0]]
                }
                p_values = list(adjusted(differences, seed))
            for name, p_value in zip(types, p_values, strict=True):
                average = macro({field: own[place : place + 1] for field, own in values[system][name].items()}, seed)
                value, low, high = (float(part[0]) for part in average[:3])
                rows.append(
                    {"system": system, "field": name, "measure": measure, "value": value, "low": low, "high": high}
                    | {"p_adjusted": p_value}
                )
    frame = with_published(pl.DataFrame(rows, infer_schema_length=None), "benchmark-type.").rename({"field": "type"})
    found = {(row["type"], row["system"], row["measure"]): row for row in frame.iter_rows(named=True)}
    notes = [f"Percent: mean over fields of the {len(types)} types alone, with all positives [95% interval]."]
    if baseline is not None:
        notes.append(f"† differs from {baseline}: paired permutation test, Holm's correction over types, p < 0.05.")
    shown = [measure for measure in _NAMES if measure != "ndcg"]
    table = Table(
        "Candidate types",
        "type",
        tuple(Column(label_of(measure), system) for measure in shown for system in systems),
        tuple(
            Line(name, tuple(_figure(found[name, system, measure]) for measure in shown for system in systems))
            for name in types
        ),
        tuple(notes),
    )
    return StudyTable("types", table, frame)


def _figure(row: Mapping[str, Any]) -> Figure:
    marked = row["p_adjusted"] is not None and row["p_adjusted"] < _ALPHA
    return Figure(row["value"], None, row["low"], row["high"], best=False, marked=marked)


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
    both = fields.filter(pl.col("paper").is_not_null()).select(
        "field",
        "system",
        "measure",
        (pl.col("value") * 100).alias("here"),
        (pl.col("low") * 100).alias("low"),
        (pl.col("high") * 100).alias("high"),
        (pl.col("paper") * 100).alias("paper"),
    )
    note = "Percent. The paper's benchmark is of S2ORC; another corpus or other candidates give other figures."
    return [StudyTable("paper", table_of("Beside the figures of the papers", both, [note]), both)] if len(both) else []


STUDY = Study("mdcr_eval", "score systems on a benchmark in the MDCR layout", Recipe, batches, findings)
