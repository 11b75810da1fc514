"""The study ``facet_pools``: pools of a new collection to be judged, and blank annotation files (Mysore et al. 2021).

The systems rank all papers with text, for each facet of a query paper or for the whole paper. The pool of the query
paper takes new candidates from the rankings in turns, from a random start; then the papers that it cites are added.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from pipeline.core.settings import required
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import split_names
from pipeline.scores.tables import frame_table
from pipeline.sources.csfcube import NOT_JUDGED
from pipeline.stages.ranking_file import read_ranking
from pipeline.studies.base import StudyResult, old_study
from pipeline.studies.facets.pools import FACET, WHOLE, CollectionRecipe, collection_task, query_papers, without_text
from pipeline.studies.facets.rankings import rankings

FOLDER = "corpora/facet-pools"
CITED = "cited"
_FILE = "pools.json"


@dataclass(frozen=True, kw_only=True)
class Recipe(CollectionRecipe):
    """Settings of the study."""

    systems: str = required("whose candidates by the facet's sentences are pooled, as in facets")
    whole: str = required("what ranks by the whole query paper, with commas", systems="replaced")
    size: int = required("candidates of a query paper, cited ones not included")
    depth: int = required("ranks of a system that are read")
    annotators: int = required("lists of blank grades in the annotation files")
    seed: int = required("seed of the starts and of the order in which annotators see the candidates")

    def __post_init__(self) -> None:
        if min(self.size, self.annotators, self.depth) < 1:
            raise InputError("size, depth and annotators must be at least 1", "Correct the recipe")
        if not split_names(f"{self.systems},{self.whole}"):
            raise InputError("systems or whole must name a system, got none", "Correct the recipe")


@dataclass(frozen=True)
class BuildConfig:
    """Settings of the pools: ``size``, the ``seed`` of the starts, and system, form and facet of each ranking."""

    size: int
    seed: int
    ranked: tuple[tuple[str, str, str], ...]


def round_robin(ranked: Sequence[Sequence[int]], size: int, start: int) -> list[int]:
    """Return the first ``size`` distinct candidates of rankings taken in turns, starting at ranking ``start``."""
    pool: dict[int, None] = {}
    turns = deque(map(iter, [*ranked[start:], *ranked[:start]]))
    while turns and len(pool) < size:
        ranking = turns.popleft()
        if (candidate := next((row for row in ranking if row not in pool), None)) is not None:
            pool[candidate] = None
            turns.append(ranking)
    return list(pool)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpus, the rankings of all its papers, then the pools."""
    yield [recipe.corpus_task]
    yield [_pools_task(workspace, recipe)]


def _pools_task(workspace: Workspace, recipe: Recipe) -> Task:
    corpus = recipe.require_corpus(workspace)
    collection = collection_task(corpus, recipe.release)
    facets = list(dict.fromkeys(facet for _, facet in recipe.release.query_facets()))
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    facet_rankings = rankings(workspace, corpus, collection, facets, systems, None, recipe.depth)
    config = BuildConfig(recipe.size, recipe.seed, tuple(ranking[:3] for ranking in facet_rankings))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    for number, ranking in enumerate(facet_rankings):
        inputs |= {f"pool {number}": ranking.pool, f"ranking {number}": ranking.ranking}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pools, counts = _build(inputs, config)
        with out.file(_FILE) as (path, _):
            files.write_text(path, json.dumps(pools))
        return counts

    return Task("facet-pools", 2, FOLDER, corpus.manifest.slug, config, inputs, run)


def _build(inputs: Inputs, config: BuildConfig) -> tuple[dict[str, Any], Counts]:
    """Return the pool of each query paper in the authors' layout, and the counts."""
    corpus = Corpus(inputs["corpus"])
    ranked: dict[str, dict[tuple[str, str], list[int]]] = {}
    queries = set[tuple[str, str]]()
    for number, (system, form, facet) in enumerate(config.ranked):
        pool, ranking = Pool(inputs[f"pool {number}"], corpus), read_ranking(inputs[f"ranking {number}"])
        # The whole paper has the same ranking for all its facets, so it has one turn.
        turn = (system, facet) if form == FACET else (f"{system}, {form}", form)
        bounds = np.searchsorted(ranking.query, np.arange(1, len(pool.query_rows)))
        for paper, rows in zip(query_papers(pool), np.split(ranking.row, bounds), strict=True):
            queries.add((paper, facet))
            ranked.setdefault(paper, {})[turn] = rows.tolist()
    textless = without_text(corpus)
    row_of = dict(zip(ranked, corpus.rows_of(list(ranked)).tolist(), strict=True))
    pools: dict[str, Any] = {}
    chosen_count = 0
    for paper, lists in sorted(ranked.items()):
        start = int(generator(config.seed, "facet pool", paper).integers(len(lists)))
        chosen = round_robin(list(lists.values()), config.size, start)
        cited = {int(row) for row in corpus.outgoing.of(row_of[paper]) if not textless[row]}
        sources: dict[int, list[str]] = {row: [CITED] * (row in cited) for row in (*chosen, *sorted(cited - {*chosen}))}
        for (source, _), ranking_rows in lists.items():
            for row in sources.keys() & ranking_rows[: config.size]:
                sources[row] += [source] * (source not in sources[row])
        candidates = corpus.ids(np.array(list(sources), np.int64))
        pools[paper] = {"cands": candidates, "cand_source": list(sources.values())}
        chosen_count += len(chosen)
    sizes = [len(pool["cands"]) for pool in pools.values()]
    return pools, {
        "papers": len(pools),
        "queries": len(queries),
        "candidates_of_systems": chosen_count,
        "candidates_cited_alone": sum(sizes) - chosen_count,
        "papers_without_text": int(textless.sum()),
        "pools_smaller_than_size": sum(size < config.size for size in sizes),
    }


def annotation_files(pools: Mapping[str, Any], queries: Sequence[str], recipe: Recipe) -> dict[str, str]:
    """Return blank annotation files by name, one per facet; the random order of candidates hides their sources."""
    by_facet: dict[str, dict[str, Any]] = {}
    names = [*(f"relevance_ann{position}" for position in range(1, recipe.annotators + 1)), "relevance_adju"]
    for query in queries:
        paper, _, facet = query.rpartition("_")
        papers = pools[paper]["cands"]
        order = generator(recipe.seed, "annotation order", paper).permutation(len(papers))
        grades = {name: [NOT_JUDGED] * len(papers) for name in names}
        by_facet.setdefault(facet, {})[paper] = {"cands": [papers[position] for position in order], **grades}
    return {f"test-pid2anns-{recipe.corpus}-{facet}.json": json.dumps(lists) for facet, lists in by_facet.items()}


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the number of candidates by source, and the files: pools, and blank annotations of each facet."""
    artifact = workspace.runner.make(_pools_task(workspace, recipe))
    pools = files.read_json(artifact.file(_FILE))
    source_counts = Counter(name for pool in pools.values() for names in pool["cand_source"] for name in names)
    frame = pl.DataFrame(list(source_counts.items()), {"source": pl.String, "candidates": pl.UInt32}, orient="row")
    notes = [f"{name.replace('_', ' ')}: {value:,}." for name, value in artifact.manifest.counts.items()]
    queries = Corpus(recipe.require_corpus(workspace)).query_texts.column("query_id").to_pylist()
    texts = {f"test-pid2pool-{recipe.corpus}.json": json.dumps(pools), **annotation_files(pools, queries, recipe)}
    return StudyResult(
        [frame_table("sources", "Candidates by source (one may have several)", frame, notes)],
        sources=[artifact.name],
        files=texts,
    )


STUDY = old_study(
    "facet_pools",
    "pools of a new collection, to be judged by facet",
    Recipe,
    batches,
    results,
    needs="It is for a collection of your own: give its folder with --input (docs/facets.md)",
)
