"""The published score file: ``{"queryid_candidateid": score}``, higher is better."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, pairs
from pipeline.measure.measures import Measure
from pipeline.report.model import AVERAGE
from pipeline.retrieve.base import Ranking
from pipeline.studies.mdcr.layout import TRUE, Lists, candidates_of
from pipeline.studies.mdcr.lists import OfField
from pipeline.studies.mdcr.ranked import in_order

MEASURES = (Measure("map"), Measure("ndcg"), Measure("recall", 5))
"""What the benchmark reports, over the whole list but for recall."""

_LARGEST = float(np.finfo(np.float32).max)


class _Pairs(NamedTuple):
    """The pairs of one field: names of queries, pairs as numbers that order like ids, keys in the score file."""

    queries: list[str]
    packed: npt.NDArray[np.uint64]
    positive: npt.NDArray[np.bool_]
    keys: list[str]


def read_scores(path: Path, lists: Lists) -> dict[str, float]:
    """Read a score file of a benchmark.

    Raises:
        InputError: the file is not a JSON object; a pair of the benchmark has no score, a score is not a finite
            number, or a key is not of a pair. The message names it.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be a JSON file ({error})", "Write the scores again") from error
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
            raise InputError(f"{path} must have a finite number for {key!r}, got {score!r}", "Correct it")
    return content


def write_scores(path: Path, lists: Lists, score_of: Mapping[tuple[str, str], float]) -> None:
    """Write a score file.

    Args:
        path: the file.
        lists: of the benchmark.
        score_of: by query and candidate.
    """
    found = {key: score_of[query, candidate] for key, (_, query, candidate) in _keys(lists).items()}
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")


def score(lists: Lists, score_of: Mapping[str, float]) -> pl.DataFrame:
    """Return the measures of every field and their mean over fields, as trec_eval defines them.

    Scores are compared as float32; ties are in falling order of candidate id. A query of several fields counts in each.

    Args:
        lists: of the benchmark.
        score_of: what :func:`read_scores` returned.

    Returns:
        A row for each field and one for :data:`pipeline.report.model.AVERAGE`: ``field``, ``queries`` and the measures,
        fractions.
    """
    rows: list[dict[str, Any]] = []
    for field, queries in lists.items():
        own = _pairs(queries)
        scores = np.array([score_of[key] for key in own.keys], np.float32)
        values = _evaluate(own, in_order(own.packed, scores, len(own.queries)))
        means = values.mean(axis=1).tolist()
        rows.append({"field": field, "queries": len(own.queries), **dict(zip(map(str, MEASURES), means, strict=True))})
    frame = pl.DataFrame(rows)
    average = frame.select(pl.lit(AVERAGE).alias("field"), pl.col("queries").sum(), pl.col(map(str, MEASURES)).mean())
    return pl.concat([frame, average])


def _evaluate(own: _Pairs, ranking: Ranking) -> npt.NDArray[np.float64]:
    judged = own.packed[own.positive]
    count = len(own.queries)
    offsets = np.searchsorted(judged >> np.uint64(32), np.arange(count + 1))
    qrels = Qrels(offsets, judged.astype(np.uint32), np.ones(len(judged), np.int16))
    return evaluate(qrels, Run(np.searchsorted(ranking.query, np.arange(count + 1)), ranking.row), MEASURES)


def _pairs(queries: OfField) -> _Pairs:
    """Number the candidates of a field in the order of their ids; a candidate of two types stands once."""
    ids = sorted(set().union(*map(candidates_of, queries.values())), key=str.encode)
    number = {paper: place for place, paper in enumerate(ids)}
    query, row, positive, keys = [], [], [], []
    for place, (name, by_type) in enumerate(queries.items()):
        for paper in sorted(candidates_of(by_type), key=number.__getitem__):
            query.append(place)
            row.append(number[paper])
            positive.append(paper in by_type[TRUE])
            keys.append(f"{name}_{paper}")
    packed = pairs(np.array(query), np.array(row))
    return _Pairs(list(queries), packed, np.array(positive), keys)


def _keys(lists: Lists) -> dict[str, tuple[str, str, str]]:
    """Return field, query and candidate of each key of a score file.

    Raises:
        InputError: two pairs have one key.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for field, query, candidate in _triples(lists):
        _, *pair = found.setdefault(f"{query}_{candidate}", (field, query, candidate))
        if pair != [query, candidate]:
            both = f"{pair[0]}, {pair[1]} and {query}, {candidate}"
            raise InputError(f"a key of a score file must name one pair, got {both}", "Rename a paper")
    return found


def _triples(lists: Lists) -> Iterator[tuple[str, str, str]]:
    for field, queries in lists.items():
        for query, by_type in queries.items():
            for candidate in sorted(candidates_of(by_type)):
                yield field, query, candidate
