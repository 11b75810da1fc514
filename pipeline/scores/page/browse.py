"""Packed data of the browser of a page: positives, ranks and best entries of every ranking.

A block is ``{"header": ..., "columns": {name: [kind, start, length]}}`` on one line of JSON, then the columns. Numbers
are little-endian and aligned to 4 bytes; texts are UTF-8, one a line.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.artifact import readable
from pipeline.core.config import format_count
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import RankedRun, query_of, ranks_of, within
from pipeline.measure.measures import sign_of
from pipeline.scores.caption import pool_text, scope
from pipeline.scores.page.parts import Browser
from pipeline.scores.store import open_pool, open_rankings, readable_runs
from pipeline.scores.tables import label_of

TOP = 10
"""Entries of each ranking that a page shows; positives have their ranks at any depth."""

_Rows = npt.NDArray[np.int64]


def browser(
    runs: pl.DataFrame,
    scores: pl.DataFrame,
    measures: Sequence[str],
    top: int = TOP,
) -> Browser:
    """Return the browser of the rankings of one kind of pool.

    It contains one pool for each field and for the dataset level: of those with the most systems, the largest, its
    first sample. Pools whose corpus is gone, and what cannot be read, are left out.

    Rankings show their ``top`` entries.
    """
    by_pool = runs.partition_by("pool", maintain_order=True)
    opened = [(of_pool, pool) for of_pool in by_pool if (pool := open_pool(of_pool.row(0, named=True))) is not None]
    pools = [(read, pool) for of_pool, pool in opened if len(read := readable_runs(of_pool))]
    chosen: dict[str | None, tuple[pl.DataFrame, Pool]] = {}
    for runs_of_pool, pool in pools:
        field = runs_of_pool["field"][0]
        if field not in chosen or _priority(runs_of_pool) > _priority(chosen[field][0]):
            chosen[field] = (runs_of_pool, pool)

    def pack_one(of_pool: tuple[pl.DataFrame, Pool]) -> tuple[str, str]:
        runs_of_pool, pool = of_pool
        first = runs_of_pool.row(0, named=True)
        values = scores.filter(pl.col("label").is_in(runs_of_pool["label"].implode()), pool=first["pool"])
        return f"{scope(first)}, {format_count(first['size'])}", _pack_pool(runs_of_pool, pool, values, measures, top)

    blocks = dict(readable(chosen.values(), pack_one))
    contents = f"The first {top} entries of each ranking, and the rank of every positive."
    omitted_note = (
        f" To stay small, this page holds {len(blocks)} of {len(pools)} pools: the largest of each field in its first "
        "sample. Choose others by --field and --size of mdcr report."
    )
    return Browser("Queries", blocks, contents + omitted_note * (len(blocks) < len(pools)))


def _priority(runs: pl.DataFrame) -> tuple[int, int, int]:
    return len(runs), int(runs["size"][0]), -int(runs["sample"][0])


def _pack_pool(runs: pl.DataFrame, pool: Pool, scores: pl.DataFrame, measures: Sequence[str], top: int) -> str:
    """Return the rankings of one pool as a block, which ``queries.js`` reads.

    Query ``i`` lists its positives, the papers ``offsets[i]`` to ``offsets[i + 1]``. ``listed`` and ``top`` are
    positions of papers; the number of papers means none, so that 16 bits suffice for most pools. ``ranks`` ``[systems,
    listed]`` count from 1; 0: not retrieved. ``values`` ``[measures, systems, queries]`` are NaN for queries without
    score.
    """
    count, labels = len(pool.query_rows), runs["label"].to_list()
    rankings = open_rankings(runs, pool)
    query, row = query_of(rankings.qrels.offsets), rankings.qrels.rows
    ranks = np.stack([ranks_of(run, query, row) for run in rankings.runs.values()]).astype(np.uint32)
    best = np.stack([_first_entries(run, top) for run in rankings.runs.values()])
    papers, positions = np.unique(np.concatenate([row, best[best >= 0]]), return_inverse=True)
    best_papers = np.full(best.shape, len(papers), np.uint32)
    best_papers[best >= 0] = positions[len(row) :]
    values = _value_array(scores, labels, measures, count)
    first_run = runs.row(0, named=True)
    facts = {"corpus": first_run["corpus"], "pool": first_run["pool"], "pool settings": pool_text(first_run)}
    facts |= {f"ranking of {label}": ranking for label, ranking in runs.select("label", "ranking").iter_rows()}
    header = {
        "systems": labels,
        "measures": [label_of(name) for name in measures],
        "signs": [sign_of(name) for name in measures],
        "first": _two_best(values[0], sign_of(measures[0])),
        "top": best.shape[2],
        "facts": facts,
    }
    columns = {
        **_query_columns(pool),
        **_paper_columns(pool.corpus, papers, "paper"),
        "offsets": np.searchsorted(query, np.arange(count + 1)).astype(np.uint32),
        "listed": narrow(positions[: len(row)].astype(np.uint32)),
        "ranks": narrow(ranks),
        "top": narrow(best_papers),
        "values": values.astype(np.float32),
    }
    return pack(header, columns)


def _two_best(values: npt.NDArray[np.float64], sign: int) -> list[int]:
    """Return the positions of the two best systems by their means, ``[systems, queries]``; of two, as they stand."""
    means = [sign * np.nanmean(of_system) if np.isfinite(of_system).any() else -np.inf for of_system in values]
    best = sorted(range(len(means)), key=means.__getitem__, reverse=True)[:2]
    return best[::-1] if len(means) > 2 else list(range(len(means)))


def _first_entries(run: RankedRun, top: int) -> _Rows:
    """Return the rows of the best entries, int64 ``[queries, top]``, padded with -1."""
    query, rank = query_of(run.offsets), within(run.offsets)
    best, within_top = np.full((len(run.offsets) - 1, top), -1, np.int64), rank < top
    best[query[within_top], rank[within_top]] = run.rows[within_top]
    return best


def _value_array(
    scores: pl.DataFrame, labels: Sequence[str], measures: Sequence[str], queries: int
) -> npt.NDArray[np.float64]:
    """Return scores, float64 ``[measures, systems, queries]``; NaN: not scored."""
    values = np.full((len(measures), len(labels), queries), np.nan)
    for (measure, label), rows in scores.group_by("measure", "label"):
        if measure in measures:
            values[measures.index(measure), labels.index(label), rows["query"].to_numpy()] = rows["value"].to_numpy()
    return values


def _query_columns(pool: Pool) -> dict[str, Column]:
    if pool.queries_are_papers:
        return _paper_columns(pool.corpus, pool.query_rows, "query")
    texts = [text.title for block in pool.query_texts() for text in block]
    return {"query_ids": pool.query_ids(), "query_titles": texts, "query_years": np.zeros(len(texts), np.int16)}


def _paper_columns(corpus: Corpus, rows: npt.NDArray[Any], prefix: str) -> dict[str, Column]:
    table = corpus.take(rows, ["paper_id", "title", "year"])
    ids, titles = (table.column(name).to_pylist() for name in ("paper_id", "title"))
    years = np.maximum(table.column("year").fill_null(0).to_numpy(), 0).astype(np.int16)
    return {f"{prefix}_ids": ids, f"{prefix}_titles": titles, f"{prefix}_years": years}


_KINDS = {"uint8": "Uint8", "uint16": "Uint16", "uint32": "Uint32", "int16": "Int16", "float32": "Float32"}
"""The JavaScript array (its name without ``Array``) for each dtype."""

Column = Sequence[str] | npt.NDArray[Any]


def pack(header: Any, columns: Mapping[str, Column]) -> str:
    """Return a block, compressed by gzip and encoded as base64; numbers that are not finite are null in its header."""
    layout: dict[str, tuple[str, int, int]] = {}
    body = bytearray()
    for name, column in columns.items():
        body += bytes(-len(body) % 4)
        if isinstance(column, np.ndarray):
            kind, raw = _KINDS[column.dtype.name], np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<"))
            data = raw.tobytes()
        else:
            kind, data = "text", "\n".join(" ".join(text.split()) for text in column).encode("utf-8", "replace")
        layout[name] = (kind, len(body), len(data))
        body += data
    # Browsers refuse NaN and Infinity, which Python writes.
    known = json.loads(json.dumps({"header": header, "columns": layout}), parse_constant=lambda _: None)
    head = json.dumps(known).encode() + b"\n"
    return base64.b64encode(gzip.compress(head + bytes(-len(head) % 4) + body, 6, mtime=0)).decode()


def narrow(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
    """Return numbers in 8 or 16 bits if they fit."""
    largest = numbers.max(initial=0)
    return numbers.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else numbers
