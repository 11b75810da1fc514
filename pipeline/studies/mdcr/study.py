"""The study ``mdcr``: build the benchmark from field-level rankings (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, InputError, Selection, Task, required
from pipeline.studies.mdcr.build import BenchmarkConfig, FieldRankings, SamplingConfig, benchmark_task
from pipeline.studies.mdcr.lists import SPLITS


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = required("name of the corpus; empty: the only one")
    fields: str = required("of the 19 fields, with commas, or all; those with too few papers are left out")
    year: int
    queries: int = required("queries per field, in each split")
    size: str = required("candidates of the field-level pools; a field with fewer takes them all")
    seed: int = required("seed of every draw")
    systems: str = required("whose rankings are compared, with commas")
    tune: bool = required("whether bm25 has the parameters tuned for each field on the queries of val")
    model_negatives: str = required("systems that supply negatives; empty: the three that differ most")
    positives: int = required("cited papers per query at most")
    negatives: int = required("candidates of each other type")
    top: int = required("top negatives of a system, and most cited papers of a field, that are drawn from")
    depth: int = required("ranks kept of each query")

    @property
    def selections(self) -> list[Selection]:
        """The test pool of each field."""
        return [
            kit.selection(field=field, size=self.size, year=self.year, queries=self.queries, samples=1, seed=self.seed)
            for field in kit.SETTINGS["field"].read(self.fields)
        ]

    @property
    def sampling(self) -> SamplingConfig:
        """How candidates are drawn."""
        return SamplingConfig(self.seed, self.positives, self.negatives, self.top)


NEEDS = (
    "Its recipe is for the corpus of mdcr demo. On a corpus of yours: --corpus=NAME; for the paper's, "
    "--recipe=mdcr_paper, first mdcr corpus --source s2orc2020 --corpus s2orc --input FOLDER"
)


@kit.study("mdcr", "build the MDCR benchmark", Recipe, needs=NEEDS)
def mdcr(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the Jaccard indexes of the systems, the counts and the files."""
    corpus = kit.corpus_of(workspace, recipe).artifact
    fields, task = yield from benchmark(workspace, recipe)
    yield [ranking for field in fields for ranking in field.rankings.values()]
    (artifact,) = yield [task]
    counts, names = artifact.manifest.counts, kit.stored_names(recipe.systems)
    pairs = [(*pair.split("|"), value) for pair, value in counts["jaccard"].items()]
    columns = {"system": pl.String, "other": pl.String, "jaccard": pl.Float64}
    mirrored = [(other, system, value) for system, other, value in pairs]
    cells = [*((name, name, None) for name in names), *pairs, *mirrored]
    matrix = pl.DataFrame(cells, columns, orient="row").pivot("other", index="system", values="jaccard")
    matrix = matrix.with_columns(mean=pl.mean_horizontal(*names))
    rows = [(name, str(value)) for name, value in counts.items() if isinstance(value, int)]
    rows += [(f"left out: {field}", reason) for field, reason in counts["fields_left_out"].items()]
    count_table = pl.DataFrame(rows, schema=["count", "value"], orient="row")
    limits = "A negative is not cited by the query in this corpus, and can be relevant. Texts keep their licences."
    note = f"Negatives of systems are drawn from: {', '.join(counts['model_negatives'])}."
    jaccard = pl.DataFrame(pairs, columns, orient="row")
    shown = {name: kit.figure(name, None, None, spec=".3f", scale=1) for name in matrix.columns[1:]}
    title = "Jaccard index of the systems' top negatives"
    tables = [
        kit.table("jaccard", title, jaccard, "{system}", shown, [note], rows=matrix),
        kit.table("counts", "What the benchmark has", count_table, "{count}", {"value": "{value}"}, [limits]),
    ]
    files = {output.path: artifact.file(output.path).read_text("utf-8") for output in artifact.outputs("mdcr_*")}
    title, sources = f"MDCR benchmark: {corpus.manifest.slug}, queries of {recipe.year}", [corpus.name, artifact.name]
    return kit.Report(tables, sources=sources, files=files, title=title)


def benchmark(
    workspace: kit.Workspace, recipe: Recipe
) -> Generator[Sequence[Task], Any, tuple[list[FieldRankings], Task]]:
    """Tune BM25; return the rankings of both splits of each field with enough papers, and the task of the benchmark."""
    for system in kit.parse_systems(recipe.systems):
        if system.needs_tuning:
            problem = f"systems must rank both splits, got {system.name}, and a tuning serves test pools alone"
            raise InputError(problem, "Write bm25 and --set=tune=true")
    corpus = kit.find_corpus(workspace.root, recipe.corpus or None)
    pools, left_out = field_pools(workspace, corpus, recipe.selections)
    if not pools:
        raise InputError(
            f"a benchmark must have a field with enough papers, got none ({next(iter(left_out.values()), 'no field')})",
            "Ask for fewer queries or another --year; --recipe=mdcr_small is for small corpora",
        )
    tuned = {}
    if recipe.tune:
        made = yield [kit.tune_task(corpus, pool_of["val"]) for pool_of in pools.values()]
        tuned = dict(zip(pools, map(kit.Tuning.of, made), strict=True))
    systems, model_negatives = (tuple(kit.stored_names(names)) for names in (recipe.systems, recipe.model_negatives))
    field_rankings = []
    for split in SPLITS:
        for field, pool_of in pools.items():
            named = recipe.systems
            if tuning := tuned.get(field):
                named = re.sub(r"\bbm25\b(?!:)", f"bm25:k1={tuning.k1:g},b={tuning.b:g}", named)
            evaluations = workspace.evaluations(pool_of[split], named, depth=recipe.depth, tunings=())
            rankings = zip(systems, (evaluation.ranking for evaluation in evaluations), strict=True)
            field_rankings.append(FieldRankings(split, field, pool_of[split], dict(rankings)))
    config = BenchmarkConfig(recipe.sampling, systems, model_negatives, tuple(left_out.items()))
    return field_rankings, benchmark_task(corpus, field_rankings, config)


def field_pools(
    workspace: kit.Workspace, corpus: Artifact, selections: Sequence[Selection]
) -> tuple[dict[str, Mapping[str, Task]], dict[str, str]]:
    """Return the pools of each field with enough queries, by split, and the reason why each other field is left out.

    A selection has one field, one size, one sample and split ``test``. If a field has fewer cited papers than the size,
    its pool has all of them, as in the paper for Art, History and Philosophy. Nothing is computed.
    """
    reader = kit.Corpus(corpus)
    pools: dict[str, Mapping[str, Task]] = {}
    left_out = {}
    for field_selection in selections:
        (test,) = field_selection.pools(corpus)
        mask = kit.prefilter(reader.attributes, test.config.prefilter)[0]
        size = test.config.size
        if size != "all" and np.count_nonzero(kit.drawable(reader, test.config, mask)) < size:
            field_selection = field_selection.but(size=("all",))
            (test,) = field_selection.pools(corpus)
        (val,) = field_selection.but(split="validation").pools(corpus)
        try:
            if not workspace.runner.published(val):
                test_rows = kit.choose_queries(reader, test.config, mask, np.empty(0, np.int64)).rows
                kit.choose_queries(reader, val.config, mask, test_rows.astype(np.int64))
            pools[test.config.field] = {"val": val, "test": test}
        except kit.InsufficientDataError as error:
            left_out[test.config.field] = error.what
    return pools, left_out
