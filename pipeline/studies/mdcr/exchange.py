"""Exchange of a benchmark with other tools: published score files, BEIR folders, and tasks of mteb.

A score file is ``{"queryid_candidateid": score}``, higher is better.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.csr import pack
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange import mteb
from pipeline.exchange.pools import write_pool
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import AVERAGE
from pipeline.studies.mdcr.evaluation import Recipe, benchmark_pools, corpus_task, evaluate_lists, read_evaluation
from pipeline.studies.mdcr.lists import MEASURES, TRUE, BenchmarkLists, candidates_of, field_name, in_order, read_lists

_LARGEST = float(np.finfo(np.float32).max)

TOP_RANKED = "top_ranked.jsonl"

_CONFIG = """\
- config_name: top_ranked
  data_files: [{split: test, path: top_ranked.jsonl}]
"""
"""Lines for reranking that are added to the data set card of a BEIR folder."""


def read_scores(path: Path, lists: BenchmarkLists) -> dict[str, float]:
    """Read a score file of a benchmark.

    Raises:
        InputError: the file is not a JSON object, a pair of the benchmark has no score or two, a score is not a finite
            number, or a key names no pair. The message names the pair or key.
    """
    score_of: dict[str, float] = files.given_json(path)
    if not isinstance(score_of, dict):
        raise InputError(f'{path} must map "queryid_candidateid" to a score', "Write the scores again")
    entries = _entries(lists)
    for field, query, candidate, key in entries.select("field", "query", "candidate", "key").iter_rows():
        if key not in score_of:
            pair = f"query {query} and candidate {candidate} of {field}"
            raise InputError(f"{path} must score every pair, got none for {pair}", f"Add {key!r}")
    keys = set(entries["key"])
    for key, score in score_of.items():
        if key not in keys:
            raise InputError(f"{path} must score pairs of the benchmark, got {key!r}", "Leave it out")
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= _LARGEST:
            raise InputError(f"{path} must have a finite number for {key!r}, got {score!r:.80}", "Correct it")
    return score_of


def score(lists: BenchmarkLists, score_of: Mapping[str, float]) -> pl.DataFrame:
    """Return the measures of every field as trec_eval defines them; the last row has the mean over fields.

    Scores are compared as float32; ties are in falling order of candidate id. A query of several fields counts in each.
    """
    rows = []
    for entries in _entries(lists).partition_by("field", maintain_order=True):
        scores = np.array([score_of[key] for key in entries["key"]], np.float32)
        query, row = entries["query"].rle_id().to_numpy(), entries["candidate"].rank("dense").to_numpy()
        judged = entries.select(query=query, row=row, grade="positive").filter("grade").cast({"grade": pl.Int16})
        query_count = entries["query"].n_unique()
        ranking = in_order(pack(query, row), scores, query_count)
        run = RankedRun(np.searchsorted(ranking.query, np.arange(query_count + 1)), ranking.row)
        values = evaluate(Qrels.from_table(judged.to_arrow(), query_count), run, parse_measures(MEASURES))
        means = dict(zip(MEASURES, values.mean(axis=1).tolist(), strict=True))
        rows.append({"field": entries["field"][0], "queries": query_count, **means})
    frame = pl.DataFrame(rows)
    average = frame.select(pl.lit(AVERAGE).alias("field"), pl.col("queries").sum(), pl.col(MEASURES).mean())
    return pl.concat([frame, average])


def _entries(lists: BenchmarkLists) -> pl.DataFrame:
    """Return ``field``, ``query``, ``candidate``, ``key`` in a score file, and ``positive`` (bool) of each pair.

    Two pairs with one key are an InputError.
    """
    entries = pl.DataFrame(
        [
            (field, query, candidate, f"{query}_{candidate}", candidate in by_type[TRUE])
            for field, queries in lists.items()
            for query, by_type in queries.items()
            for candidate in sorted(candidates_of(by_type))
        ],
        ["field", "query", "candidate", "key", "positive"],
        orient="row",
    )
    pairs_of_keys = entries.select("key", "query", "candidate").unique(maintain_order=True)
    ambiguous = pairs_of_keys.filter(pl.len().over("key") > 1)
    if len(ambiguous):
        first, second = (
            f"{query}, {candidate}" for _, query, candidate in ambiguous.filter(key=ambiguous["key"][0]).rows()[:2]
        )
        raise InputError(f"a key of a score file must name one pair, got {first} and {second}", "Rename a paper")
    return entries


def export_scores(workspace: Workspace, recipe: Recipe, path: Path) -> None:
    """Make the rankings of one system and write their scores.

    A pair of a query of several fields has one score. If a system gives several (BM25 with an index of each field,
    fused ranks), that of the last field is written, and a message says so.

    Raises:
        InputError: the recipe names several systems, or two pairs have one key.
    """
    _, evaluations = evaluate_lists(workspace, recipe)
    names = list(dict.fromkeys(evaluation.system.title for evaluation in evaluations))
    if len(names) > 1:
        raise InputError(f"a score file must be of one system, got {', '.join(names)}", "Export one at a time")
    score_of: dict[str, float] = {}
    conflicts = 0
    for evaluation in evaluations:
        lists, ranking = read_evaluation(workspace, evaluation)
        queries, papers = lists.pool.query_ids(), lists.pool.corpus.ids(ranking.row)
        keys = [f"{queries[query]}_{paper}" for query, paper in zip(ranking.query.tolist(), papers, strict=True)]
        field_score_of = dict(zip(keys, ranking.score.tolist(), strict=True))
        conflicts += sum(score_of.get(key, score) != score for key, score in field_score_of.items())
        score_of |= field_score_of
    if conflicts:
        say(f"{conflicts:,} pairs have another score in each field; the last counts. One of BM25: --bm25-index corpus")
    ordered_keys = dict.fromkeys(_entries(read_lists(Path(recipe.input), recipe.split))["key"])
    path.write_text(json.dumps({key: score_of[key] for key in ordered_keys}) + "\n", encoding="utf-8")


def export_folders(workspace: Workspace, folder: Path, split: str, output: Path, form: str = "beir") -> Iterator[Path]:
    """Write a BEIR folder for each field, with the candidates of each query; ``form`` ``mteb`` adds cards and tasks.

    Raises:
        InputError: the benchmark does not have the published layout, or two fields have the same folder name.

    Yields:
        The folder of each field, then for ``mteb`` the file of the tasks.
    """
    lists = read_lists(folder, split)
    folders: dict[str, str] = {}
    for field in lists:
        if (other := folders.setdefault(field_name(field), field)) != field:
            raise InputError(f"fields {other!r} and {field!r} must have different folders", "Rename one of them")
    corpus = workspace.runner.make(corpus_task(folder, split))
    pools = workspace.make(benchmark_pools(corpus, split, lists))
    for (field, queries), pool in zip(lists.items(), pools, strict=True):
        target = output / field_name(field)
        for path in write_pool(target, Pool(pool, Corpus(corpus))):
            if path.name == "exclusions.tsv":
                path.unlink()  # redundant: top_ranked.jsonl has the candidates of each query
        rows = ({"query-id": query, "corpus-ids": sorted(candidates_of(by_type))} for query, by_type in queries.items())
        files.write_text(target / TOP_RANKED, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        card = (target / "README.md").read_text(encoding="utf-8")
        files.write_text(target / "README.md", card.replace("dataset_info:\n", f"{_CONFIG}dataset_info:\n", 1))
        if form == "mteb":
            mteb.describe(target, Pool(pool, Corpus(corpus)), f"MDCR {field}")
        yield target
    if form == "mteb":
        yield mteb.write_tasks(output)
