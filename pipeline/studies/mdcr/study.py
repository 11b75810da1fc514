"""The study ``mdcr``: build the benchmark from field-level rankings (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import (
    DATA,
    DEFAULT_B,
    DEFAULT_K1,
    SETTINGS,
    Artifact,
    Corpus,
    InputError,
    InsufficientDataError,
    Selection,
    Task,
    Tuning,
    choose_queries,
    drawable,
    find_corpus,
    parse_systems,
    prefilter,
    required,
    selection,
    stored_names,
    tune_task,
)
from pipeline.studies.mdcr.build import BenchmarkConfig, FieldRankings, SamplingConfig, benchmark_task
from pipeline.studies.mdcr.lists import SPLITS

_LICENCES = {
    "s2orc2020": "ODC-By 1.0 for S2ORC 2020",
    "s2ag": "ODC-By 1.0 for the Semantic Scholar Academic Graph",
    "openalex": "CC0 for OpenAlex",
    "synthetic": "none is needed for generated texts",
}


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
            selection(field=field, size=self.size, year=self.year, queries=self.queries, samples=1, seed=self.seed)
            for field in SETTINGS["field"].read(self.fields)
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
    """Return the Jaccard indexes of the systems, the counts, the datasheet and the files."""
    corpus = kit.corpus_of(workspace, recipe).artifact
    fields, task = yield from benchmark(workspace, recipe)
    yield [ranking for field in fields for ranking in field.rankings.values()]
    (artifact,) = yield [task]
    counts, names = artifact.manifest.counts, stored_names(recipe.systems)
    pairs = [(*pair.split("|"), value) for pair, value in counts["jaccard"].items()]
    columns = {"system": pl.String, "other": pl.String, "jaccard": pl.Float64}
    mirrored = [(other, system, value) for system, other, value in pairs]
    cells = [*((name, name, None) for name in names), *pairs, *mirrored]
    matrix = pl.DataFrame(cells, columns, orient="row").pivot("other", index="system", values="jaccard")
    matrix = matrix.with_columns(mean=pl.mean_horizontal(*names))
    rows = [(name, str(value)) for name, value in counts.items() if isinstance(value, int)]
    rows += [(f"left out: {field}", reason) for field, reason in counts["fields_left_out"].items()]
    count_table = pl.DataFrame(rows, schema=["count", "value"], orient="row")
    note = f"Negatives of systems are drawn from: {', '.join(counts['model_negatives'])}."
    jaccard = pl.DataFrame(pairs, columns, orient="row")
    shown = {name: kit.figure(name, None, None, spec=".3f", scale=1) for name in matrix.columns[1:]}
    title = "Jaccard index of the systems' top negatives"
    tables = [
        kit.table("jaccard", title, jaccard, "{system}", shown, [note], rows=matrix),
        kit.table("counts", "What the benchmark has", count_table, "{count}", {"value": "{value}"}),
    ]
    copies = {output.path: artifact.path / output.path for output in artifact.outputs("mdcr_*")}
    files = {"datasheet.md": datasheet(artifact, corpus, recipe)}
    title, sources = f"MDCR benchmark: {corpus.manifest.slug}, queries of {recipe.year}", [corpus.name, artifact.name]
    return kit.Report(tables, sources=sources, files=files, copies=copies, title=title)


def benchmark(
    workspace: kit.Workspace, recipe: Recipe
) -> Generator[Sequence[Task], Any, tuple[list[FieldRankings], Task]]:
    """Tune BM25; return the rankings of both splits of each field with enough papers, and the task of the benchmark."""
    for system in parse_systems(recipe.systems):
        if system.needs_tuning:
            raise InputError(
                f"systems must rank both splits, got {system.name}, and a tuning serves test pools alone",
                "Write bm25 and --set=tune=true",
            )
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    pools, left_out = field_pools(workspace, corpus, recipe.selections)
    if not pools:
        raise InputError(
            f"a benchmark must have a field with enough papers, got none ({next(iter(left_out.values()), 'no field')})",
            "Ask for fewer queries or another --year; --recipe=mdcr_small is for small corpora",
        )
    tuned = {}
    if recipe.tune:
        made = yield [tune_task(corpus, pool_of["val"]) for pool_of in pools.values()]
        tuned = dict(zip(pools, map(Tuning.of, made), strict=True))
    systems, model_negatives = (tuple(stored_names(names)) for names in (recipe.systems, recipe.model_negatives))
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
    reader = Corpus(corpus)
    pools: dict[str, Mapping[str, Task]] = {}
    left_out = {}
    for field_selection in selections:
        (test,) = field_selection.pools(corpus)
        field, size, mask = test.config.field, test.config.size, prefilter(reader.attributes, test.config.prefilter)[0]
        if size != "all" and np.count_nonzero(drawable(reader, test.config, mask)) < size:
            field_selection = field_selection.but(size=("all",))
            (test,) = field_selection.pools(corpus)
        (val,) = field_selection.but(split="validation").pools(corpus)
        try:
            if not workspace.runner.published(val):
                test_rows = choose_queries(reader, test.config, mask, np.empty(0, np.int64)).rows
                choose_queries(reader, val.config, mask, test_rows.astype(np.int64))
            pools[field] = {"val": val, "test": test}
        except InsufficientDataError as error:
            left_out[field] = error.what
    return pools, left_out


def datasheet(benchmark: Artifact, corpus: Artifact, recipe: Recipe) -> str:
    """Return the datasheet in Markdown: content, recipe, licence, limits and checksums of the benchmark."""
    counts, source = benchmark.manifest.counts, corpus.manifest.config["source"]
    count_values = [(name.replace("_", " "), value) for name, value in counts.items() if isinstance(value, int)]
    count_rows = "\n".join(f"| {name} | {value:,} |" for name, value in count_values)
    left_out = "".join(f"- Left out: {field}: {reason}.\n" for field, reason in counts["fields_left_out"].items())
    file_rows = "\n".join(f"| {file.path} | {file.bytes:,} | {file.sha256} |" for file in benchmark.outputs())
    template = (DATA / "templates" / "datasheet.md").read_text(encoding="utf-8")
    return template.format(
        recipe=recipe,
        corpus=corpus,
        benchmark=benchmark,
        source=source,
        bm25="tuned for each field on the queries of val" if recipe.tune else f"k1={DEFAULT_K1}, b={DEFAULT_B}",
        papers=len(Corpus(corpus)),
        systems=", ".join(counts["model_negatives"]),
        licence=_LICENCES.get(source, "see there"),
        count_rows=count_rows,
        left_out=left_out,
        file_rows=file_rows,
    )
