"""The published score file: ``{"queryid_candidateid": score}``, higher is better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, pairs
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import Floats
from pipeline.scores.average import AVERAGE
from pipeline.studies.mdcr import scores
from pipeline.studies.mdcr.evaluation import opened
from pipeline.studies.mdcr.layout import TRUE, Lists, candidates_of, read_lists
from pipeline.studies.mdcr.lists import MEASURES, OfField, in_order

_LARGEST = float(np.finfo(np.float32).max)


def read_scores(path: Path, lists: Lists) -> dict[str, float]:
    """Read a score file of a benchmark.

    Raises:
        InputError: the file is not a JSON object; a pair of the benchmark has no score or two, a score is not a finite
            number, or a key is not of a pair. The message names it.
    """
    content = files.given_json(path)
    if not isinstance(content, dict):
        raise InputError(f'{path} must map "queryid_candidateid" to a score', "Write the scores again")
    known = _keys(lists)
    for key, (field, query, candidate) in known.items():
        if key not in content:
            place = f"query {query} and candidate {candidate} of {field}"
            raise InputError(f"{path} must score every pair, got none for {place}", f"Add {key!r}")
    for key, score in content.items():
        if key not in known:
            raise InputError(f"{path} must score pairs of the benchmark, got {key!r}", "Leave it out")
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= _LARGEST:
            raise InputError(f"{path} must have a finite number for {key!r}, got {score!r:.80}", "Correct it")
    scores: dict[str, float] = content
    return scores


def score(lists: Lists, score_of: Mapping[str, float]) -> pl.DataFrame:
    """Return the measures of every field, and their mean over fields in the last row, as trec_eval defines them.

    Scores are compared as float32; ties are in falling order of candidate id. A query of several fields counts in each.
    """
    rows: list[dict[str, Any]] = []
    for field, queries in lists.items():
        means = _evaluate(queries, score_of).mean(axis=1).tolist()
        rows.append({"field": field, "queries": len(queries), **dict(zip(MEASURES, means, strict=True))})
    frame = pl.DataFrame(rows)
    average = frame.select(pl.lit(AVERAGE).alias("field"), pl.col("queries").sum(), pl.col(MEASURES).mean())
    return pl.concat([frame, average])


def _evaluate(queries: OfField, score_of: Mapping[str, float]) -> Floats:
    """Return the measures of each query, float64 ``[measures, queries]``; a candidate of two types stands once."""
    ids = sorted(set().union(*map(candidates_of, queries.values())), key=str.encode)
    number = {paper: place for place, paper in enumerate(ids)}
    entries = [
        (place, number[paper], paper in by_type[TRUE], score_of[f"{query}_{paper}"])
        for place, (query, by_type) in enumerate(queries.items())
        for paper in candidates_of(by_type)
    ]
    query, row, positive, values = map(np.array, zip(*entries, strict=True))
    ranking = in_order(pairs(query, row), values.astype(np.float32), len(queries))
    judged = np.sort(pairs(query[positive], row[positive]))
    starts = np.arange(len(queries) + 1)
    offsets = np.searchsorted(judged >> np.uint64(32), starts)
    qrels = Qrels(offsets, judged.astype(np.uint32), np.ones(len(judged), np.int16))
    return evaluate(qrels, Run(np.searchsorted(ranking.query, starts), ranking.row), parse_measures(MEASURES))


def _keys(lists: Lists) -> dict[str, tuple[str, str, str]]:
    """Return field, query and candidate of each key of a score file.

    Raises:
        InputError: two pairs have one key.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for field, queries in lists.items():
        for query, by_type in queries.items():
            for candidate in sorted(candidates_of(by_type)):
                _, *pair = found.setdefault(f"{query}_{candidate}", (field, query, candidate))
                if pair != [query, candidate]:
                    both = f"{pair[0]}, {pair[1]} and {query}, {candidate}"
                    raise InputError(f"a key of a score file must name one pair, got {both}", "Rename a paper")
    return found


def export_scores(workspace: Workspace, recipe: scores.Recipe, path: Path) -> None:
    """Make the rankings of one system and write their scores.

    A query of several fields has one score of a pair. Where a system gives several (BM25 with an index of each field,
    fused ranks), that of the last field counts, and a message says so.

    Raises:
        InputError: the recipe names several systems, or two pairs have one key.
    """
    for batch in scores.batches(workspace, recipe):
        workspace.make(list(batch))
    corpus, found = scores.ranked(workspace, recipe)
    names = list(dict.fromkeys(each.system for each in found))
    if len(names) > 1:
        raise InputError(f"a score file must be of one system, got {', '.join(names)}", "Export one at a time")
    score_of: dict[str, float] = {}
    several = 0
    for each in found:
        lists, ranking = opened(workspace, corpus, each)
        queries, papers = lists.pool.query_ids(), lists.pool.corpus.ids(ranking.row)
        keys = [f"{queries[query]}_{paper}" for query, paper in zip(ranking.query.tolist(), papers, strict=True)]
        own = dict(zip(keys, ranking.score.tolist(), strict=True))
        several += sum(score_of.get(key, score) != score for key, score in own.items())
        score_of |= own
    if several:
        say(f"{several:,} pairs have another score in each field; the last counts. One of BM25: --bm25-index corpus")
    wanted = _keys(read_lists(Path(recipe.input), recipe.split))
    path.write_text(json.dumps({key: score_of[key] for key in wanted}) + "\n", encoding="utf-8")
