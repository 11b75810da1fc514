"""The study ``mdcr``: build the benchmark from field-level rankings (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.stages.selection import Selection, parse_fields
from pipeline.stages.systems import system_names
from pipeline.studies.base import Findings, Study, StudyTable
from pipeline.studies.common import table_of
from pipeline.studies.mdcr.build import BenchmarkConfig, FieldRankings, benchmark_task
from pipeline.studies.mdcr.candidates import Drawing
from pipeline.studies.mdcr.datasheet import datasheet
from pipeline.studies.mdcr.fields import field_pools
from pipeline.studies.mdcr.layout import SPLITS


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        fields: of the 19 fields, with commas, or ``all``; those with too few papers are left out and counted.
        year: publication year of the queries.
        queries: queries a field, in each split.
        size: candidates of the field-level pools; a field with fewer takes them all.
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

    @property
    def selections(self) -> list[Selection]:
        """The test pool of each field."""
        return [
            selection(field=field, size=self.size, year=self.year, queries=self.queries, samples=1, seed=self.seed)
            for field in parse_fields(self.fields)
        ]

    def config(self, left_out: Mapping[str, str]) -> BenchmarkConfig:
        """Return what decides the benchmark beside pools and rankings."""
        drawing = Drawing(self.seed, self.positives, self.negatives, self.top)
        systems, chosen = (tuple(system_names(names)) for names in (self.systems, self.model_negatives))
        return BenchmarkConfig(drawing, systems, chosen, tuple(left_out.items()))


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the rankings of every field's pools, then the benchmark."""
    task = benchmark(workspace, recipe)
    yield [each for each in task.inputs.values() if isinstance(each, Task) and each.stage != "pool"]
    yield [task]


def benchmark(workspace: Workspace, recipe: Recipe) -> Task:
    """Return the task of the benchmark (:func:`field_rankings`)."""
    parts, left_out = field_rankings(workspace, recipe)
    return benchmark_task(find_corpus(workspace.root, recipe.corpus or None), parts, recipe.config(left_out))


def field_rankings(workspace: Workspace, recipe: Recipe) -> tuple[list[FieldRankings], dict[str, str]]:
    """Return both splits of the fields that have enough papers, and why the others are left out.

    Raises:
        InputError: no field has; the message says what the first one lacks.
    """
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    pools, left_out = field_pools(workspace, corpus, recipe.selections)
    if not pools:
        raise InputError(
            f"a benchmark must have a field with enough papers, got none ({next(iter(left_out.values()), 'no field')})",
            "Ask for fewer queries or another year",
        )
    parts = [
        FieldRankings(split, field.field, pool, _rankings(workspace, pool, recipe))
        for split in SPLITS
        for field in pools
        for pool in [getattr(field, split)]
    ]
    return parts, left_out


def _rankings(workspace: Workspace, pool: Task, recipe: Recipe) -> dict[str, Task]:
    evaluated = workspace.evaluations(pool, recipe.systems, depth=recipe.depth)
    return dict(zip(system_names(recipe.systems), (each.ranking for each in evaluated), strict=True))


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return the Jaccard indexes of the systems, what was counted, the datasheet and the files."""
    artifact: Artifact = workspace.runner.make(benchmark(workspace, recipe))
    counts = artifact.manifest.counts
    jaccard = pl.DataFrame(
        [(*pair.split("|"), value) for pair, value in counts["jaccard"].items()],
        schema=["system", "other", "jaccard"],
        orient="row",
    )
    names = system_names(recipe.systems)
    value_of = {frozenset((one, other)): value for one, other, value in jaccard.iter_rows()}
    matrix = [
        {"system": one}
        | {other: value_of.get(frozenset((one, other))) for other in names}
        | {"mean": mean_of(value_of, one)}
        for one in names
    ]
    shown = pl.DataFrame(matrix, schema_overrides=dict.fromkeys(names, pl.Float64))
    rows = [(name, str(value)) for name, value in counts.items() if isinstance(value, int)]
    rows += [(f"left out: {field}", reason) for field, reason in counts["fields_left_out"].items()]
    counted = pl.DataFrame(rows, schema=["count", "value"], orient="row")
    chosen = f"Negatives of systems are drawn from: {', '.join(counts['model_negatives'])}."
    tables = [
        StudyTable("jaccard", table_of("Jaccard index of the systems' top negatives", shown, [chosen], 3), jaccard),
        StudyTable("counts", table_of("What the benchmark has", counted), counted),
    ]
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    copies = {output.path: artifact.path / output.path for output in artifact.outputs("mdcr_*")}
    sheet = datasheet(artifact, corpus, canonical(recipe))
    return Findings(tables, sources=[corpus.name, artifact.name], files={"datasheet.md": sheet}, copies=copies)


def mean_of(value_of: Mapping[frozenset[str], float], system: str) -> float | None:
    """Return the mean Jaccard index of a system with the others; None where there is no other."""
    own = [value for pair, value in value_of.items() if system in pair]
    return float(np.mean(own)) if own else None


STUDY = Study("mdcr", "build the MDCR benchmark", Recipe, batches, findings)
