"""Evaluating systems on a benchmark in the published layout: corpus, pools, rankings and scores of one split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, file_name
from pipeline.core.csr import pack
from pipeline.core.errors import InputError, require_known
from pipeline.core.files import resolved
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.settings import required
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.retrieve.base import Ranking, no_exclusions
from pipeline.stages.bm25 import Bm25Config, index_of, installed_analyzer, terms_tasks
from pipeline.stages.chain import Chain, Evaluation
from pipeline.stages.corpus import task_of
from pipeline.stages.ranking_file import RECORDED, open_pool, read_ranking, write_ranking
from pipeline.stages.score import score_task
from pipeline.stages.systems import Bm25, System, parse_systems
from pipeline.stages.tune import tunings_for
from pipeline.studies import kit
from pipeline.studies.mdcr.lists import (
    DEPTH,
    MEASURES,
    BenchmarkLists,
    Lists,
    existing,
    file_names,
    in_order,
    lists_pool_task,
    read_lists,
)

SCORES = "runs/benchmarks"
"""Folder of the scores of lists, separate from scores of pools, so that reports of pools omit them."""

INDEXES = {"field": "all lists of a field", "corpus": "all lists", "query": "each list alone"}
"""Documents that BM25 statistics are counted on. With ``corpus``, a pair has the same score in all fields."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with mdcr_SPLIT.json and mdcr_SPLIT_data.jsonl")
    split: str = required("test or val")
    systems: str = required("what ranks, with commas")
    bm25_index: str = required("BM25 counts the documents of a field's lists; corpus: of all lists; query: of each")
    baseline: str = required("system that the others are tested against; empty: none")
    seed: int = required("seed of the bootstrap and the tests")


def corpus_task(folder: Path, split: str) -> Task:
    """Return the task of the corpus with the texts of a split."""
    data = existing(folder, file_names(split)[1])
    name = file_name(f"{resolved(folder).name}-{split}", kept="._-", most=40)
    return task_of({"name": name, "source": "jsonl", "input": str(resolved(data)), "options": {}, "duplicates": None})


def benchmark_pools(corpus: Artifact, split: str, lists: BenchmarkLists) -> list[Task]:
    """Return the task of the pool of each field."""
    return [lists_pool_task(corpus, field, split, queries) for field, queries in lists.items()]


def evaluations_of_lists(
    workspace: kit.Workspace,
    corpus: Artifact,
    pools: Sequence[Task],
    systems: str,
    index: str,
) -> list[Evaluation]:
    """Return the evaluation of each system on each pool of lists, pool by pool; rankings have every pair.

    Nothing is computed. ``index`` names the documents that BM25 statistics are counted on (:data:`INDEXES`).
    A tuning on large pools is used only by systems that name one (``bm25:tuned``).
    """
    require_known(index, INDEXES, f"the index of BM25 must be of {' or '.join(INDEXES)}, got {index!r}")
    parsed = parse_systems(systems)
    if index != "field" and any(system.parts for system in parsed):
        raise InputError(f"fused and reranked systems must use the index field, got {index}", "Leave them out")
    tunings, evaluations = tunings_for(workspace.root, parsed), []
    for pool in pools:
        for system in parsed:
            depth, tunings_used = pool.config.longest, tunings if system.needs_tuning else ()
            chain = Chain(corpus, depth=depth, tunings=tunings_used, allow_unknown=True)
            (evaluation,) = chain.evaluations([pool], [system])
            ranking = evaluation.ranking
            if index != "field" and isinstance(system.ranker, Bm25):
                ranking = own_index_task(corpus, pool, pools if index == "corpus" else [], system.ranker, depth)
            complete = complete_task(corpus, pool, ranking, system)
            score = score_task(complete, pool, corpus, system=evaluation.system, measures=MEASURES)
            score = dataclasses.replace(score, folder=SCORES)
            evaluations.append(Evaluation(complete, (score,), evaluation.system))
    return evaluations


def read_evaluation(workspace: kit.Workspace, evaluation: Evaluation) -> tuple[Lists, Ranking]:
    """Return the lists and the ranking of an evaluation of :func:`evaluations_of_lists`."""
    inputs: Mapping[str, Any] = evaluation.ranking.inputs
    lists = Lists(Pool(workspace.runner.make(inputs["pool"]), Corpus(inputs["corpus"])))
    return lists, read_ranking(workspace.runner.make(evaluation.ranking))


def evaluated(workspace: kit.Workspace, recipe: Recipe) -> kit.Batches:
    """Score each system on each field; return the corpus of the benchmark's texts and the evaluations."""
    folder = Path(recipe.input)
    (corpus,) = yield [corpus_task(folder, recipe.split)]
    pools = benchmark_pools(corpus, recipe.split, read_lists(folder, recipe.split))
    evaluations = evaluations_of_lists(workspace, corpus, pools, recipe.systems, recipe.bm25_index)
    scores = yield [evaluation.scores[0] for evaluation in evaluations]
    list(scores)  # a plan ends here
    return corpus, evaluations


def evaluate_lists(workspace: kit.Workspace, recipe: Recipe) -> tuple[Artifact, list[Evaluation]]:
    """Return what :func:`evaluated` does, outside of a study."""
    steps, made = evaluated(workspace, recipe), None
    try:
        while True:
            made = workspace.make(list(steps.send(made)))
    except StopIteration as end:
        result: tuple[Artifact, list[Evaluation]] = end.value
        return result


def own_index_task(corpus: Artifact, pool: Task, counted: Sequence[Task], bm25: Bm25, depth: int) -> Task:
    """Return the task that ranks each list by BM25 with another index than that of the field.

    Document frequencies and lengths are counted on the candidates of the pools ``counted``; without pools, on each
    list alone.
    """
    names = [f"counted{number}" for number in range(len(counted))]

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.bm25.collection import Collection, QueryTerms
        from pipeline.retrieve.bm25.search import search

        lists_pool, index, threads = open_pool(inputs), index_of(inputs["paper"]), resources.workers
        queries = QueryTerms.read(index, lists_pool.query_rows)
        candidates = [Pool(inputs[name], lists_pool.corpus).candidates for name in names]
        all_candidates = np.unique(np.concatenate([np.empty(0, np.uint32), *candidates]))
        background = Collection.read(index, all_candidates, queries.vocabulary, threads)
        list_pairs = Lists(lists_pool).pairs()
        starts = np.searchsorted(list_pairs >> np.uint64(32), np.arange(1, len(lists_pool.query_rows)))
        rankings = []
        for position, rows in enumerate(np.split(list_pairs.astype(np.uint32), starts)):
            collection = Collection.read(index, rows, queries.vocabulary, threads)
            if names:
                collection = dataclasses.replace(collection, idf=background.idf, average=background.average)
            query = queries.subset(position, position + 1)
            rankings.append(search(collection, query, no_exclusions(1), k1=bm25.k1, b=bm25.b, depth=depth, threads=1))
        counts = np.array(list(map(len, rankings)), np.int64)
        row, score = (np.concatenate([getattr(ranking, name) for ranking in rankings]) for name in ("row", "score"))
        return write_ranking(Ranking.from_counts(counts, row, score), lists_pool, depth, out)

    settings = Bm25Config(*installed_analyzer(), bm25.k1, bm25.b, depth)
    config = {**canonical(settings), "index": "corpus" if counted else "query"}
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, **dict(zip(names, counted, strict=True))}
    terms = {f"paper{number}": terms_tasks(corpus, task)["paper"] for number, task in enumerate(counted)}
    slug = f"bm25-own-{bm25.k1:g}-{bm25.b:g}-{pool.slug}"
    return Task("search", 2, RANKINGS, slug, config, inputs, run, derived=terms_tasks(corpus, pool) | terms)


def complete_task(corpus: Artifact, pool: Task, ranking: Task, system: System) -> Task:
    """Return the task that checks that a ranking has every pair of a pool of lists.

    Candidates without a query term have no BM25 score: they are last in their list.

    Raises:
        InputError: once run: a system other than BM25 has no score for a pair; the message names the pair.
    """
    may_miss = all(isinstance(leaf.ranker, Bm25) for leaf in system.leaves)
    short = {"depth": DEPTH} if pool.config.longest < DEPTH else {}  # of the measures, if all lists are shorter
    config = {"missing": "last" if may_miss else "error", **short}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        lists, ranked = Lists(open_pool(inputs)), read_ranking(inputs["ranking"])
        ranked_pairs = pack(ranked.query, ranked.row)
        missing = np.setdiff1d(lists.pairs(), ranked_pairs)
        if len(missing) and not may_miss:
            query, row = int(missing[0] >> np.uint64(32)), int(missing[0] & np.uint64(0xFFFFFFFF))
            (candidate,) = lists.pool.corpus.ids(np.array([row]))
            raise InputError(
                f"{system.name} must score every pair, got none for query {lists.pool.query_ids()[query]} and "
                f"candidate {candidate} of {lists.field}",
                "Score all candidates of the benchmark",
            )
        lowest = float(ranked.score.min(initial=1))  # a cross-encoder's scores may be negative
        scores = np.append(ranked.score, np.full(len(missing), 0 if lowest > 0 else lowest - 1, np.float32))
        provenance = inputs["ranking"].manifest.provenance
        out.note(**{name: provenance[name] for name in RECORDED if name in provenance})
        complete = in_order(np.concatenate([ranked_pairs, missing]), scores, len(lists.pool.query_rows))
        longest = int(np.bincount(complete.query).max())
        return {**write_ranking(complete, lists.pool, longest, out), "without_shared_term": len(missing)}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    return Task("complete", 1, RANKINGS, f"complete-{ranking.slug}", config, inputs, run)
