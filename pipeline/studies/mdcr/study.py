"""The study ``mdcr``: build the benchmark from field-level rankings (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.stages.selection import Selection, parse_fields
from pipeline.stages.systems import system_names
from pipeline.studies.base import Findings, Study, StudyTable
from pipeline.studies.common import table_of
from pipeline.studies.mdcr.build import BenchmarkConfig, FieldRankings, benchmark_task
from pipeline.studies.mdcr.candidates import Drawing

_SPLITS = {"test": "test", "val": "validation"}
"""The benchmark's name of each split, and the pools' name."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        fields: of the 19 fields, with commas, or ``all``: those with enough papers.
        year: publication year of the queries.
        queries: queries a field, in each split.
        size: candidates of the field-level pools.
        seed: of every draw.
        systems: whose rankings are compared, with commas.
        model_negatives: systems whose top negatives are drawn from, with commas; empty: the three least alike.
        positives: cited papers a query at most.
        negatives: candidates of each other type.
        top: top negatives of a system, and most cited papers of a field, that are drawn from.
        depth: ranks kept of each query.
    """

    corpus: str
    fields: str
    year: int
    queries: int
    size: str
    seed: int
    systems: str
    model_negatives: str
    positives: int
    negatives: int
    top: int
    depth: int

    def selection(self, field: str, split: str) -> Selection:
        """The pool of one field and split."""
        return selection(
            field=field,
            size=self.size,
            year=self.year,
            queries=self.queries,
            samples=1,
            seed=self.seed,
            split="validation" if split == "val" else "test",
        )

    @property
    def config(self) -> BenchmarkConfig:
        """What decides the benchmark beside pools and rankings."""
        drawing = Drawing(self.seed, self.positives, self.negatives, self.top)
        return BenchmarkConfig(drawing, tuple(system_names(self.systems)), tuple(system_names(self.model_negatives)))


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the rankings of every field's pools, then the benchmark of the fields that have enough papers."""
    yield [ranking for part in _parts(workspace, recipe) for ranking in part.rankings.values()]
    yield [benchmark(workspace, recipe)]


def benchmark(workspace: Workspace, recipe: Recipe) -> Task:
    """Return the task of the benchmark: of the fields whose pools were made for both splits.

    Raises:
        InputError: no field has both.
    """
    parts = _parts(workspace, recipe)
    made = {(part.split, part.field) for part in parts if workspace.runner.published(part.pool)}
    kept = [part for part in parts if all((split, part.field) in made for split in _SPLITS)]
    if not kept:
        raise InputError("no field has pools of both splits", "Ask for fewer queries, a smaller size or another year")
    return benchmark_task(find_corpus(workspace.root, recipe.corpus or None), kept, recipe.config)


def _parts(workspace: Workspace, recipe: Recipe) -> list[FieldRankings]:
    """Return every field of every split with its rankings, also of fields that have too few papers."""
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    parts = []
    for split in _SPLITS:
        for field in parse_fields(recipe.fields):
            (pool,) = recipe.selection(field, split).pools(corpus)
            evaluated = workspace.evaluations(pool, recipe.systems, depth=recipe.depth)
            rankings = dict(zip(recipe.config.systems, (each.ranking for each in evaluated), strict=True))
            parts.append(FieldRankings(split, pool, rankings))
    return parts


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return the Jaccard indexes of the systems, and what was counted."""
    artifact: Artifact = workspace.runner.make(benchmark(workspace, recipe))
    counts = artifact.manifest.counts
    pairs = [(*pair.split("|"), value) for pair, value in counts["jaccard"].items()]
    jaccard = pl.DataFrame(pairs, schema=["system", "other", "jaccard"], orient="row")
    rows = [(name, value) for name, value in counts.items() if isinstance(value, int)]
    counted = pl.DataFrame(rows, schema=["count", "value"], orient="row")
    chosen = f"Negatives of systems are drawn from: {', '.join(counts['model_negatives'])}."
    tables = [
        StudyTable("jaccard", table_of("Jaccard index of the systems' top negatives", jaccard, [chosen], 3), jaccard),
        StudyTable("counts", table_of("What the benchmark has", counted), counted),
    ]
    return Findings(tables, sources=[artifact.name])


STUDY = Study("mdcr", "build the MDCR benchmark", Recipe, batches, findings)
