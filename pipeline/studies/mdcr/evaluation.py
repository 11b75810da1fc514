"""Evaluating systems on a benchmark in the published layout: corpus, pools, rankings and scores of one split."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact, published
from pipeline.core.errors import InputError, nearest
from pipeline.core.task import Task
from pipeline.core.workspace import TUNINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.retrieve.base import Ranking
from pipeline.stages.bm25 import terms_tasks
from pipeline.stages.chain import Evaluation, evaluations
from pipeline.stages.corpus import task_of
from pipeline.stages.score import score_task
from pipeline.stages.search import read_ranking
from pipeline.stages.systems import Bm25, Fused, Reranked, System, parse_systems
from pipeline.studies.mdcr.layout import Lists as Content
from pipeline.studies.mdcr.layout import data_file, read_lists
from pipeline.studies.mdcr.lists import Lists, lists_pool_task
from pipeline.studies.mdcr.ranked import INDEXES, complete_task, own_index_task
from pipeline.studies.mdcr.scorefile import MEASURES

BY_RANK = "Fuse by rank instead: rrf(...)"

SCORES = "runs/benchmarks"
"""Room of the scores of lists: reports of pools leave them out."""


@dataclass(frozen=True)
class Ranked:
    """One system on one pool of lists.

    Attributes:
        field: of the pool.
        system: its name in tables.
        pool: the pool.
        ranking: the task of the ranking, with every pair.
        score: the task that scores it.
    """

    field: str
    system: str
    pool: Task
    ranking: Task
    score: Task


def corpus_task(folder: Path, split: str) -> Task:
    """Return the task of the corpus with the texts of a split."""
    data = data_file(folder, split)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{folder.resolve().name}-{split}").strip("-._")[-40:] or split
    origin: dict[str, Any] = {
        "name": name,
        "source": "jsonl",
        "input": str(data.resolve()),
        "options": {},
        "duplicates": None,
    }
    return task_of(origin)


def benchmark_pools(corpus: Artifact, split: str, lists: Content) -> list[Task]:
    """Return the pool of each field."""
    return [lists_pool_task(corpus, field, split, queries) for field, queries in lists.items()]


def weighted(system: System) -> bool:
    """Whether weights of a system are chosen on validation queries."""
    if isinstance(system, Reranked):
        return weighted(system.first)
    return isinstance(system, Fused) and system.method == "wsum"


def validation_pools(workspace: Workspace, folder: Path, tested: Content) -> dict[str, Task]:
    """Return the pool of the validation queries of each field; their corpus must have been made.

    Raises:
        InputError: the benchmark has no validation split, lacks a field there, or a query is of both splits.
    """
    lists = read_lists(folder, "val")
    test = {query for queries in tested.values() for query in queries}
    for field in tested:
        if field not in lists:
            raise InputError(f"{folder} must have validation queries of {field} for wsum, got none", BY_RANK)
        if shared := test & set(lists[field]):
            raise InputError(f"validation queries must not be test queries, got {min(shared)} of {field}", BY_RANK)
    corpus = Artifact.open(workspace.runner.path(corpus_task(folder, "val")))
    return dict(zip(tested, benchmark_pools(corpus, "val", {name: lists[name] for name in tested}), strict=True))


def rank(
    workspace: Workspace,
    corpus: Artifact,
    pools: Sequence[Task],
    systems: str,
    index: str,
    validation: Mapping[str, Task] = MappingProxyType({}),
) -> list[Ranked]:
    """Return each system on each pool of lists, pool by pool. Nothing is made.

    Args:
        workspace: where the corpus is.
        corpus: of the pools.
        pools: pools of lists.
        systems: with commas.
        index: whose documents BM25 counts (:data:`pipeline.studies.mdcr.ranked.INDEXES`).
        validation: the pool of validation queries of each field, for weighted sums.

    Raises:
        InputError: a system or the index is unknown.
    """
    if index not in INDEXES:
        raise InputError(f"the index of BM25 must be of {' or '.join(INDEXES)}, got {index!r}", nearest(index, INDEXES))
    parsed = parse_systems(systems)
    if index == "query" and any(isinstance(each, Fused | Reranked) for each in parsed):
        raise InputError("fused and reranked systems must use the index corpus, got query", "Leave them out")
    tunings = list(published(workspace.root / TUNINGS))
    found = []
    for pool in pools:
        for system in parsed:
            held_out = [validation[pool.config.field]] if weighted(system) and validation else []
            depth = max(each.config.longest for each in (pool, *held_out))
            (evaluation,) = evaluations(
                corpus, [pool], [system], (), depth=depth, tunings=tunings, validation=held_out, allow_unknown=True
            )
            ranking = _ranking(corpus, pool, system, evaluation, index, depth)
            complete = complete_task(corpus, pool, ranking, system)
            name = evaluation.scores[0].config.system
            measures = tuple(map(str, MEASURES))
            scored = score_task(complete, pool, corpus, system=name, sample=1, measures=measures)
            found.append(Ranked(pool.config.field, name, pool, complete, dataclasses.replace(scored, room=SCORES)))
    return found


def _ranking(corpus: Artifact, pool: Task, system: System, evaluation: Evaluation, index: str, depth: int) -> Task:
    if index == "corpus" or not isinstance(system, Bm25):
        return evaluation.ranking
    return own_index_task(corpus, pool, terms_tasks(corpus, pool), system, depth)


def opened(workspace: Workspace, corpus: Artifact, ranked: Ranked) -> tuple[Lists, Ranking]:
    """Return the lists of a ranking that was made, and the ranking."""
    lists = Lists(Pool(workspace.runner.make(ranked.pool), Corpus(corpus)))
    return lists, read_ranking(workspace.runner.make(ranked.ranking))
