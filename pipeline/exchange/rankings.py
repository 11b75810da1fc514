"""Export rankings to other tools: TREC run, JSON, Parquet, and the objects of ranx.

Tools that sort by score alone order ties differently. So all formats but TREC, whose readers break ties as we do, have
float64 scores that decrease within a tie by the smallest step. Rounded to float32 they are the original scores.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.corpus.pool import Pool
from pipeline.measure import trec
from pipeline.measure.inputs import column

ScoresByQuery = dict[str, dict[str, float]]
"""Scores by document id, best first, by query id: the form that pytrec_eval, ranx and ir_measures take."""

FORMATS = {name: name for name in ("trec", "trec.gz", "json", "json.gz", "parquet")}
"""File name ending of each format of a ranking; ranx reads ``json``."""


def run_dict(ranking: pa.Table, pool: Pool) -> ScoresByQuery:
    """Return a ranking as a dictionary of all queries; a query without results has an empty dictionary."""
    query, document, score = _columns(ranking, pool)
    run: ScoresByQuery = {query_id: {} for query_id in pool.query_ids()}
    for position, (paper_id, score_value) in zip(query, zip(document, score.tolist(), strict=True), strict=True):
        run[position][paper_id] = score_value
    return run


def write_ranking(path: Path, ranking: pa.Table, pool: Pool, tag: str, output: str = "trec") -> None:
    """Write a ranking atomically in one of :data:`FORMATS`; a path that ends in ``.gz`` is compressed.

    ``tag`` is the name of the run in a TREC file.
    """
    if output.startswith("trec"):
        trec.write(path, trec.run_lines(ranking, pool, tag))
    elif output.startswith("json"):
        trec.write(path, [msgspec.json.encode(run_dict(ranking, pool))])
    else:
        query, document, score = _columns(ranking, pool)
        with files.disk_errors(path), files.replacing(path) as temporary:
            pq.write_table(pa.table({"q_id": query, "doc_id": document, "score": score}), temporary)


def _columns(ranking: pa.Table, pool: Pool) -> tuple[list[str], list[str], npt.NDArray[np.float64]]:
    """Return query ids, document ids and strictly decreasing scores of the entries."""
    query, score = column(ranking, "query"), column(ranking, "score").astype(np.float64)
    names = pool.query_ids()
    rows, inverse = np.unique(column(ranking, "row"), return_inverse=True)
    ids = pool.corpus.ids(rows)
    is_first = np.ones(len(query), dtype=bool)
    is_first[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1])
    position_in_tie = np.arange(len(query)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    strict_scores = score - position_in_tie * np.spacing(np.abs(score))
    return [names[position] for position in query.tolist()], [ids[index] for index in inverse.tolist()], strict_scores
