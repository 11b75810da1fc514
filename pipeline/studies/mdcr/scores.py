"""The study ``mdcr_eval``: systems on a benchmark in the published layout (Medić & Šnajder 2022, tables 3 and 4)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, Corpus, Evaluation, Floats, InputError, Pool, Ranking, Task, pack, required
from pipeline.studies.mdcr import lists as layout
from pipeline.studies.mdcr.lists import DEPTH, MEASURES, Lists

OF_SYSTEMS = "mean of systems"
"""Row of table 4 that is not of a system."""

_ALPHA = 0.05
_MEASURE = pl.col("measure").cast(pl.Enum(MEASURES))


NEEDS = (
    "Build one first, mdcr study mdcr, or give a folder with --input; the published one: curl --create-dirs "
    "--output-dir benchmark -O 'https://takelab.fer.hr/data/mdcr/mdcr_test{.json,_data.jsonl}'"
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
    data = layout.existing(folder, layout.file_names(split)[1])
    name = kit.file_name(f"{kit.resolved(folder).name}-{split}", kept="._-", most=40)
    return kit.corpus_task(name, kit.JsonLines(kit.resolved(data)))


def benchmark_pools(corpus: Artifact, split: str, lists: layout.BenchmarkLists) -> list[Task]:
    """Return the task of the pool of each field."""
    return [layout.lists_pool_task(corpus, field, split, queries) for field, queries in lists.items()]


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
            score = replace(score, folder=kit.LISTS)
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
    pools = benchmark_pools(corpus, recipe.split, layout.read_lists(folder, recipe.split))
    evaluations = evaluations_of_lists(workspace, corpus, pools, recipe.systems)
    scores = yield [evaluation.scores[0] for evaluation in evaluations]
    list(scores)  # a plan ends here
    return corpus, evaluations


def complete_task(corpus: Artifact, pool: Task, ranking: Task, system: kit.System) -> Task:
    """Return the task that checks that a ranking has every pair of a pool of lists.

    Candidates without a query term have no BM25 score: they are last in their list. For other systems, a pair without a
    score is an InputError that names it.
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
        complete = layout.in_order(np.concatenate([ranked_pairs, missing]), scores, len(lists.pool.query_rows))
        longest = int(np.bincount(complete.query).max())
        return {**kit.write_ranking(complete, lists.pool, longest, out), "without_shared_term": len(missing)}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    return Task("complete", 1, kit.RANKINGS, f"complete-{ranking.slug}", config, inputs, run)


@kit.study("mdcr_eval", "score systems on a benchmark in the MDCR layout", Recipe, needs=NEEDS)
def mdcr_eval(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return tables 3 and 4, published figures beside ours, and the queries one by one."""
    if recipe.baseline:
        kit.check_baseline(recipe.baseline, recipe.systems)
    corpus, evaluations = yield from evaluated(workspace, recipe)
    runs = kit.runs_of(workspace.runner, evaluations)
    runs = runs.with_columns(pl.lit("benchmark").alias("kind"))  # one row per system, whatever the length of its lists
    scores, draws = kit.values(runs), kit.Draws(seed=recipe.seed)
    baseline = next(iter(kit.labels_of(runs, recipe.baseline)), None) if recipe.baseline else None
    summary = kit.summarise(scores, runs, baseline=baseline, draws=draws)
    lists_of: dict[str, Lists] = {}
    values_of: defaultdict[tuple[str, str], dict[str, Floats]] = defaultdict(dict)
    scores_of: dict[str, dict[str, float]] = {}
    for evaluation in evaluations:
        lists, ranking = read_evaluation(workspace, evaluation)
        lists_of[lists.pool.artifact.name] = lists
        if recipe.score_files:
            scores_of.setdefault(evaluation.system.title, {}).update(lists.scores(ranking))
        for name in lists.types:
            values_of[evaluation.system.title, name][lists.field] = lists.values(ranking, MEASURES, {name})
    systems = list(dict.fromkeys(evaluation.system.title for evaluation in evaluations))
    for lists in lists_of.values():
        for name in lists.types:
            of_systems = [values_of[system, name][lists.field] for system in systems]
            values_of[OF_SYSTEMS, name][lists.field] = np.mean(of_systems, axis=0)
    types = types_frame(values_of, baseline, recipe.seed)
    report = kit.report_of(runs, [summary], MEASURES)
    browser = kit.browser(runs, scores, MEASURES)

    notes = ["BM25 counts the documents of all lists of a field."]
    configs = [lists.pool.artifact.manifest.config for lists in lists_of.values()]
    if short_fields := [config["field"] for config in configs if config["longest"] <= DEPTH]:
        reason = f"no list has more than {DEPTH} candidates"
        notes.append(f"recall@{DEPTH} is 1 by construction in {', '.join(short_fields)}: {reason}.")
    (table,) = report.tables
    title = f"{kit.resolved(Path(recipe.input)).name}, {recipe.split}"
    fields = with_paper(table.frame, "benchmark")
    table = replace(table, name="fields", title=title, notes=(*table.notes, *notes), frame=fields)
    tables = [table, types_table(types, baseline), *published_table(fields)]
    sources = [corpus.name, *lists_of]
    files = {f"scores-{kit.file_name(name, kept='._')}.json": json.dumps(of) for name, of in scores_of.items()}
    return replace(report, tables=tables, figures={}, parts=[*report.parts, browser], sources=sources, files=files)


def types_frame(
    values: Mapping[tuple[str, str], Mapping[str, Floats]], baseline: str | None, seed: int
) -> pl.DataFrame:
    """Return table 4: the measures of each system on each candidate type, mean over the fields that have the type.

    ``values`` are float64 ``[measures, queries]`` on the positives and the negatives of one type, by (system, type) and
    field. ``p_adjusted`` is by Holm's correction over types; ``paper`` is the published figure.
    """
    frames = [
        kit.tall(fields, pl.DataFrame({"system": system, "field": name, "measure": MEASURES}))
        for (system, name), fields in values.items()
    ]
    design = kit.Design(row=("system",), of=("field",), item="item", group="group", family=("system",))
    compared = {system for system, _ in values} - {baseline, OF_SYSTEMS}
    found = kit.estimate(pl.concat(frames), design, seed, {(system,): (baseline,) for system in compared})
    frame = found.select("system", "field", "measure", "value", "low", "high", "p_adjusted")
    systems = pl.Enum(list(dict.fromkeys(frame["system"])))
    frame = frame.sort(pl.col("system").cast(systems), _MEASURE, maintain_order=True)
    return with_paper(frame, "benchmark-type").rename({"field": "type"})


def types_table(types: pl.DataFrame, baseline: str | None) -> kit.Table:
    """Return :func:`types_frame` as a table."""
    notes = [
        f"Percent: mean over fields of the {types['type'].n_unique()} types alone, with all positives [95% interval]."
    ]
    if baseline is not None:
        notes.append(f"† differs from {baseline}: paired permutation test, Holm's correction over types, p < 0.05.")
    marks = pl.when(pl.col("p_adjusted") < _ALPHA).then(pl.lit("†")).otherwise(pl.lit(""))
    label = pl.col("measure").replace_strict({name: kit.label_of(name) for name in MEASURES})
    rows = types.filter(pl.col("measure") != "ndcg").sort(_MEASURE, maintain_order=True)
    layout = {"rows": rows.with_columns(marks=marks, label=label), "across": "{system}", "group": "{label}"}
    return kit.table("types", "Candidate types", types, "{type}", kit.figure(), notes, **layout)


def with_paper(frame: pl.DataFrame, experiment: str) -> pl.DataFrame:
    """Add the column ``paper``: the published figure, a fraction; null if there is none."""
    field_key = pl.concat_str(pl.lit(f"{experiment}."), "field")
    key = pl.when(pl.col("field") == kit.AVERAGE).then(pl.lit(experiment)).otherwise(field_key)
    return kit.with_published(frame, key).drop("difference").rename({"published": "paper"})


def published_table(fields: pl.DataFrame) -> list[kit.Table]:
    """Return the table of figures beside the published ones; an empty list if none is published."""
    percent = pl.col("value", "low", "high", "paper") * 100
    compared = fields.filter(pl.col("paper").is_not_null()).select("field", "system", "measure", percent)
    compared = compared.rename({"value": "here"})
    note = "Percent. The paper's benchmark comes from S2ORC; another corpus or other candidates give other figures."
    title = "Next to the figures of the papers"
    return [kit.table("paper", title, compared, "{field}", notes=[note])] if len(compared) else []
