"""Evaluating systems on a benchmark in the published layout: corpus, pools, rankings and scores of one split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, Corpus, Evaluation, InputError, Pool, Ranking, Task, pack, required
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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with mdcr_SPLIT.json and mdcr_SPLIT_data.jsonl")
    split: str = required("test or val")
    systems: str = required("what ranks, with commas; run:FILE also takes a score file, {queryid_candidateid: score}")
    score_files: bool = required("whether to write a score file of each system")
    baseline: str = required("system that the others are tested against; empty: none")
    seed: int = required("seed of the bootstrap and the tests")


def corpus_task(folder: Path, split: str) -> Task:
    """Return the task of the corpus with the texts of a split."""
    data = existing(folder, file_names(split)[1])
    name = kit.file_name(f"{kit.resolved(folder).name}-{split}", kept="._-", most=40)
    return kit.corpus_task(name, kit.JsonLines(kit.resolved(data)))


def benchmark_pools(corpus: Artifact, split: str, lists: BenchmarkLists) -> list[Task]:
    """Return the task of the pool of each field."""
    return [lists_pool_task(corpus, field, split, queries) for field, queries in lists.items()]


def evaluations_of_lists(
    workspace: kit.Workspace, corpus: Artifact, pools: Sequence[Task], systems: str
) -> list[Evaluation]:
    """Return the evaluation of each system on each pool of lists, pool by pool; rankings have every pair.

    Nothing is computed. A tuning on large pools is used only by systems that name one (``bm25:tuned``).
    """
    evaluations = []
    for pool in pools:
        for name, system in zip(kit.split_names(systems), kit.parse_systems(systems), strict=True):
            tunings: dict[str, Any] = {} if system.needs_tuning else {"tunings": ()}
            (evaluation,) = workspace.evaluations(pool, name, depth=pool.config.longest, allow_unknown=True, **tunings)
            complete = complete_task(corpus, pool, evaluation.ranking, system)
            score = kit.score_task(complete, pool, corpus, system=evaluation.system, measures=MEASURES)
            score = dataclasses.replace(score, folder=kit.LISTS)
            evaluations.append(Evaluation(complete, (score,), evaluation.system))
    return evaluations


def read_evaluation(workspace: kit.Workspace, evaluation: Evaluation) -> tuple[Lists, Ranking]:
    """Return the lists and the ranking of an evaluation of :func:`evaluations_of_lists`."""
    inputs: Mapping[str, Any] = evaluation.ranking.inputs
    lists = Lists(Pool(workspace.runner.make(inputs["pool"]), Corpus(inputs["corpus"])))
    return lists, kit.read_ranking(workspace.runner.make(evaluation.ranking))


def evaluated(workspace: kit.Workspace, recipe: Recipe) -> kit.Batches:
    """Score each system on each field; return the corpus of the benchmark's texts and the evaluations."""
    folder = Path(recipe.input)
    (corpus,) = yield [corpus_task(folder, recipe.split)]
    pools = benchmark_pools(corpus, recipe.split, read_lists(folder, recipe.split))
    evaluations = evaluations_of_lists(workspace, corpus, pools, recipe.systems)
    scores = yield [evaluation.scores[0] for evaluation in evaluations]
    list(scores)  # a plan ends here
    return corpus, evaluations


def complete_task(corpus: Artifact, pool: Task, ranking: Task, system: kit.System) -> Task:
    """Return the task that checks that a ranking has every pair of a pool of lists.

    Candidates without a query term have no BM25 score: they are last in their list.

    Raises:
        InputError: once run: a system other than BM25 has no score for a pair; the message names the pair.
    """
    may_miss = all(isinstance(leaf.ranker, kit.Bm25) for leaf in system.leaves)
    short = {"depth": DEPTH} if pool.config.longest < DEPTH else {}  # of the measures, if all lists are shorter
    config = {"missing": "last" if may_miss else "error", **short}

    def run(inputs: kit.Inputs, out: kit.Workdir, _resources: kit.Resources) -> kit.Counts:
        lists, ranked = Lists(Pool(inputs["pool"], Corpus(inputs["corpus"]))), kit.read_ranking(inputs["ranking"])
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
        out.note(**{name: provenance[name] for name in kit.RECORDED if name in provenance})
        complete = in_order(np.concatenate([ranked_pairs, missing]), scores, len(lists.pool.query_rows))
        longest = int(np.bincount(complete.query).max())
        return {**kit.write_ranking(complete, lists.pool, longest, out), "without_shared_term": len(missing)}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    return Task("complete", 1, kit.RANKINGS, f"complete-{ranking.slug}", config, inputs, run)
