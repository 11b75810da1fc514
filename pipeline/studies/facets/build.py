"""The study ``facet_pools``: pools of a new collection to be judged, and blank annotation files (Mysore et al. 2021).

The systems rank all papers with text, for each facet of a query paper or for the whole of it. Its pool takes their
candidates in turns from a random start, skipping what is in already; then the papers it cites are added.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.scores.tables import frame_table
from pipeline.sources.csfcube import NOT_JUDGED
from pipeline.stages.search import read_ranking
from pipeline.stages.systems import system_names
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.facets.collection import CollectionRecipe, collection_task
from pipeline.studies.facets.pools import FACET, WHOLE, facet_query_ids, without_text
from pipeline.studies.facets.ranked import rankings
from pipeline.studies.recipe import REPLACED

FOLDER = "corpora/facet-pools"
CITED = "cited"
_FILE = "pools.json"


@dataclass(frozen=True)
class Recipe(CollectionRecipe):
    """Settings of the study, beside those of the collection (with ``queries.tsv``).

    Attributes:
        systems: whose candidates by the facet's sentences are pooled, with commas, as in the study ``facets``.
        whole: whose candidates by the whole query paper are pooled, likewise.
        size: candidates of a query paper, cited ones not included.
        depth: ranks of a system that are read.
        annotators: lists of blank grades in the annotation files.
        seed: of the starts and of the order in which annotators see the candidates.
    """

    systems: str
    whole: str = field(metadata=REPLACED)
    size: int
    depth: int
    annotators: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.size, self.annotators, self.depth) < 1:
            raise InputError("size, depth and annotators must be at least 1", "Correct the recipe")
        if not system_names(f"{self.systems},{self.whole}"):
            raise InputError("systems or whole must name a system, got none", "Correct the recipe")


@dataclass(frozen=True)
class BuildConfig:
    """What decides the pools: ``size``, the ``seed`` of the starts, and system, form and facet of each ranking."""

    size: int
    seed: int
    ranked: tuple[tuple[str, str, str], ...]


def round_robin(ranked: Sequence[Sequence[int]], size: int, start: int) -> list[int]:
    """Return the first ``size`` different candidates of some rankings taken in turns, from ranking ``start`` on."""
    pool: dict[int, None] = {}
    turns = deque(map(iter, [*ranked[start:], *ranked[:start]]))
    while turns and len(pool) < size:
        own = turns.popleft()
        if (found := next((row for row in own if row not in pool), None)) is not None:
            pool[found] = None
            turns.append(own)
    return list(pool)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpus, the rankings of all its papers, then the pools."""
    yield [recipe.corpus_task]
    yield [_pools_task(workspace, recipe)]


def _pools_task(workspace: Workspace, recipe: Recipe) -> Task:
    corpus = recipe.made(workspace)
    collection = collection_task(corpus, recipe.release)
    facets = list(dict.fromkeys(facet for _, facet in recipe.release.asked()))
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    found = rankings(workspace, corpus, collection, facets, systems, None, recipe.depth)
    config = BuildConfig(recipe.size, recipe.seed, tuple(each[:3] for each in found))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    for number, each in enumerate(found):
        inputs |= {f"pool {number}": each.pool, f"ranking {number}": each.ranking}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pools, counts = _build(inputs, config)
        with out.file(_FILE) as (path, _):
            files.write_text(path, json.dumps(pools))
        return counts

    return Task("facet-pools", 2, FOLDER, corpus.manifest.slug, config, inputs, run)


def _build(inputs: Inputs, config: BuildConfig) -> tuple[dict[str, Any], Counts]:
    """Return the pool of each query paper in the authors' layout, and what is counted."""
    corpus = Corpus(inputs["corpus"])
    lists: dict[str, dict[tuple[str, str], list[int]]] = {}
    queries = set()
    for number, (system, form, facet) in enumerate(config.ranked):
        pool, found = Pool(inputs[f"pool {number}"], corpus), read_ranking(inputs[f"ranking {number}"])
        bounds = np.searchsorted(found.query, np.arange(1, len(pool.query_rows)))
        for query, rows in zip(facet_query_ids(pool), np.split(found.row, bounds), strict=True):
            queries.add(query)
            # A whole paper is ranked alike for each of its facets, so it has one turn.
            name, part = (system, facet) if form == FACET else (f"{system}, {form}", form)
            lists.setdefault(query.rpartition("_")[0], {})[name, part] = rows.tolist()
    textless = without_text(corpus, np.arange(len(corpus)))
    pools: dict[str, Any] = {}
    drawn = added = 0
    own = dict(zip(lists, corpus.rows_of(list(lists)).tolist(), strict=True))
    for paper, ranked in sorted(lists.items()):
        start = int(generator(config.seed, "facet pool", paper).integers(len(ranked)))
        chosen = round_robin(list(ranked.values()), config.size, start)
        cited = {int(row) for row in corpus.outgoing.of(own[paper]) if not textless[row]}
        heads = {key: set(rows[: config.size]) for key, rows in ranked.items()}
        members = [*chosen, *sorted(cited - set(chosen))]
        sources = [
            [CITED] * (row in cited) + list(dict.fromkeys(key[0] for key, head in heads.items() if row in head))
            for row in members
        ]
        pools[paper] = {"cands": corpus.ids(np.array(members, np.int64)), "cand_source": sources}
        drawn, added = drawn + len(chosen), added + len(members) - len(chosen)
    counts = {
        "papers": len(pools),
        "queries": len(queries),
        "candidates_of_systems": drawn,
        "candidates_cited_alone": added,
        "papers_without_text": int(textless.sum()),
        "pools_smaller_than_size": sum(len(each["cands"]) < config.size for each in pools.values()),
    }
    return pools, counts


def annotation_files(pools: Mapping[str, Any], queries: Sequence[str], recipe: Recipe) -> dict[str, str]:
    """Return blank annotation files by name, one a facet: candidates in an order that hides where they come from."""
    blank: dict[str, dict[str, Any]] = {}
    names = [*(f"relevance_ann{number}" for number in range(1, recipe.annotators + 1)), "relevance_adju"]
    for query in queries:
        paper, _, facet = query.rpartition("_")
        papers = pools[paper]["cands"]
        order = generator(recipe.seed, "annotation order", paper).permutation(len(papers))
        grades = {name: [NOT_JUDGED] * len(papers) for name in names}
        blank.setdefault(facet, {})[paper] = {"cands": [papers[place] for place in order], **grades}
    return {f"test-pid2anns-{recipe.corpus}-{facet}.json": json.dumps(found) for facet, found in blank.items()}


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return how many candidates each source has, and the files: pools, and blank annotations of each facet."""
    artifact = workspace.runner.make(_pools_task(workspace, recipe))
    pools = files.read_json(artifact.file(_FILE))
    sources = [source for pool in pools.values() for found in pool["cand_source"] for source in found]
    frame = pl.DataFrame({"source": sources}, schema={"source": pl.String})
    counted = frame.group_by("source", maintain_order=True).len("candidates")
    notes = [f"{name.replace('_', ' ')}: {value:,}." for name, value in artifact.manifest.counts.items()]
    text = {f"test-pid2pool-{recipe.corpus}.json": json.dumps(pools)}
    queries = Corpus(recipe.made(workspace)).query_texts.column("query_id").to_pylist()
    blank = annotation_files(pools, queries, recipe)
    table = frame_table("Candidates by source (one may have several)", counted, notes)
    return StudyResult([StudyTable("sources", table, counted)], sources=[artifact.name], files={**text, **blank})


STUDY = Study(
    "facet_pools",
    "pools of a new collection, to be judged by facet",
    Recipe,
    batches,
    results,
    needs="It is for a collection of your own: give its folder with --input (docs/facets.md)",
)
