"""Rankings for other tools: TREC run, JSON, Parquet, and the files and objects of ranx.

Tools that sort by score alone leave ties in an order of their own. So all but the TREC file, whose readers break ties
as we do, get scores in float64 that fall within a tie by the least step. Rounded to float32 they are ours again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.exchange.frames import check_format
from pipeline.measure import trec
from pipeline.measure.inputs import column

Run = dict[str, dict[str, float]]
"""Scores by document id, best first, by query id: the form that pytrec_eval, ranx and ir_measures take."""

FORMATS = {name: name for name in ("trec", "trec.gz", "json", "json.gz", "parquet")} | {"ranx": "lz4"}
"""Formats of a ranking, and the ending of each file's name; ranx reads ``json`` too."""


def run_dict(ranking: pa.Table, pool: Pool) -> Run:
    """Return a ranking as a dictionary of every query; one without results has an empty dictionary."""
    query, document, score = _columns(ranking, pool)
    run: Run = {query_id: {} for query_id in pool.query_ids()}
    for number, (name, value) in zip(query, zip(document, score.tolist(), strict=True), strict=True):
        run[number][name] = value
    return run


def to_ranx(ranking: pa.Table, pool: Pool, name: str) -> Any:
    """Return a ranking as a :class:`ranx.Run`; queries without results are left out, which ranx cannot hold.

    Raises:
        InputError: the ranking is empty.
    """
    run = {query: documents for query, documents in run_dict(ranking, pool).items() if documents}
    if not run:
        raise InputError(f"the ranking {name} must have an entry, got none", "ranx has no empty runs")
    import ranx

    return ranx.Run.from_dict(run, name=name)


def write_ranking(path: Path, ranking: pa.Table, pool: Pool, tag: str, output: str = "trec") -> None:
    """Write a ranking, atomically; a name that ends in ``.gz`` is compressed.

    ``output`` is one of :data:`FORMATS`; ``tag`` is the name of the run in a TREC file.
    """
    check_format(output, FORMATS)
    if output.startswith("trec"):
        trec.write(path, trec.run_lines(ranking, pool, tag))
    elif output.startswith("json"):
        trec.write(path, [msgspec.json.encode(run_dict(ranking, pool))])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            if output == "ranx":
                from ranx.io import save_lz4

                save_lz4(run_dict(ranking, pool), str(temporary))
            else:
                query, document, score = _columns(ranking, pool)
                pq.write_table(pa.table({"q_id": query, "doc_id": document, "score": score}), temporary)


def _columns(ranking: pa.Table, pool: Pool) -> tuple[list[str], list[str], npt.NDArray[np.float64]]:
    """Return query id, document id and falling score of each entry."""
    query, score = column(ranking, "query"), column(ranking, "score").astype(np.float64)
    names = pool.query_ids()
    rows, place = np.unique(column(ranking, "row"), return_inverse=True)
    ids = pool.corpus.ids(rows)
    first = np.ones(len(query), dtype=bool)
    first[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1])
    within = np.arange(len(query)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    falling = score - within * np.spacing(np.abs(score))
    return [names[position] for position in query.tolist()], [ids[number] for number in place.tolist()], falling
