"""Building pools: queries, candidates, qrels and exclusions (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.config import format_count
from pipeline.core.csr import Ints, ranges
from pipeline.core.errors import InsufficientDataError
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, MISSING, NO_YEAR, POOL_QUERIES
from pipeline.core.workdir import Workdir
from pipeline.corpus.near import near_pairs
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import Mask, counted, has_text, prefilter
from pipeline.corpus.queries import choose_queries, field_cited
from pipeline.corpus.reader import Corpus, Rows


def build_pool(corpus: Corpus, config: PoolConfig, out: Workdir, excluded: Ints) -> dict[str, Any]:
    """Write a pool of queries that are papers into ``out`` and return its counts.

    ``excluded`` are rows that may not be queries.

    Raises:
        InsufficientDataError: fewer queries or candidates exist than asked for; the numbers are named.
    """
    attributes = corpus.attributes
    prefiltered, prefilter_counts = prefilter(attributes, config.prefilter)
    queries = choose_queries(corpus, config, prefiltered, excluded)
    positives = np.unique(queries.positives)
    source = drawable(corpus, config, prefiltered)
    candidates, drawn = draw(attributes["key"], config, positives, source)
    self_rows, title_rows = left_out(corpus, config, queries.rows, candidates)
    removed = np.concatenate([self_rows, title_rows])
    near: dict[str, int] = {}
    if config.drop_near_duplicates:
        found = np.unique(np.concatenate([removed, near_pairs(corpus, queries.rows, candidates)]), axis=0)
        near = {"excluded_near_duplicate": len(found) - len(removed)}
        removed = found
    removed = removed[np.lexsort((removed[:, 1], removed[:, 0]))]
    names, grades = pa.array([config.field] * len(queries.rows), pa.string()), np.ones(len(queries.positives))
    write_pool(out, (queries.rows, names), candidates, (queries.owner, queries.positives, grades), removed.T)
    return {
        **queries.counts,
        "candidates": len(candidates),
        "candidates_positive": len(positives),
        "candidates_drawn": drawn,
        "candidates_available": int(np.count_nonzero(source)),
        "excluded_self": len(self_rows),
        "excluded_same_title": len(title_rows),
        **near,
        "prefilter": prefilter_counts,
        "marks": counted(attributes, positives, candidates),
    }


def drawable(corpus: Corpus, config: PoolConfig, prefiltered: Mask, enough: float = np.inf) -> Mask:
    """Return the papers that candidates are drawn from, bool ``[papers]`` (protocols 2 and 3).

    With ``enough``, papers beyond that number may be left out.
    """
    year = corpus.attributes["year"]
    early = year < config.year if config.earlier_only else year <= config.year
    if config.trained_until is not None:
        early &= year > config.trained_until
    if config.field is None:
        return np.asarray(prefiltered & early)
    may_be = has_text(corpus.attributes, config.prefilter) & early & (year != NO_YEAR)
    cited = field_cited(corpus, config.field, lambda papers: bool(np.count_nonzero(papers & may_be) >= enough))
    return np.asarray(cited & may_be)


def build_given_pool(corpus: Corpus, config: PoolConfig, out: Workdir) -> dict[str, Any]:
    """Write the pool a release brings: its queries and judgements, and every paper as candidate."""
    judgements = corpus.judgements
    query_ids = corpus.query_texts.column("query_id").to_pylist()
    grades = judgements.column("grade").to_numpy()
    identical = corpus.rows_of(query_ids) if config.drop_identical_id else np.full(len(query_ids), -1)
    query = np.flatnonzero(identical >= 0)
    given = corpus.exclusions
    named, rows = (column.to_numpy().astype(np.int64) for column in given.columns)
    pairs = np.concatenate([query * len(corpus) + identical[query], named * len(corpus) + rows])
    excluded = np.divmod(np.unique(pairs), len(corpus))
    queries = np.arange(len(query_ids)), pa.nulls(len(query_ids), pa.string())
    judged = [column.to_numpy() for column in judgements.columns]
    write_pool(out, queries, np.arange(len(corpus)), judged, excluded)
    out.arrow("missing.arrow", corpus.missing, MISSING)
    answered = np.unique(judgements.column("query").to_numpy()[grades > 0])
    return {
        "queries": len(query_ids),
        "queries_without_positive": len(query_ids) - len(answered),
        "positives": int(np.count_nonzero(grades > 0)),
        "positives_not_in_collection": corpus.missing.num_rows,
        "judgements": len(grades),
        "candidates": len(corpus),
        "excluded_self": len(query),
        "excluded_same_title": 0,
        **({"excluded_given": len(excluded[0]) - len(query)} if len(given) else {}),
    }


def draw(keys: npt.NDArray[np.uint64], config: PoolConfig, positives: Rows, source: Mask) -> tuple[Rows, int]:
    """Return the candidates, rising, and how many of them were drawn; InsufficientDataError if too few are there."""
    drawable = source.copy()
    drawable[positives] = False
    rows = np.flatnonzero(drawable)
    wanted = len(rows) if config.size == "all" else int(config.size) - len(positives)
    if wanted < 0:
        raise InsufficientDataError(
            f"the {len(positives):,} positives alone exceed a pool of {format_count(int(config.size))}",
            "Ask for a larger --size or fewer --queries",
        )
    if wanted > len(rows):
        raise InsufficientDataError(
            f"a pool of {format_count(int(config.size))} was asked for, but only {len(positives) + len(rows):,} papers "
            f"exist for it ({len(positives):,} positives and {len(rows):,} others)",
            f"Ask for --size={len(positives) + len(rows)} or less, or for all",
        )
    item = f"{config.split}|{config.field}|{config.sample}" + ("" if config.nested else f"|{config.size}")
    drawn = rows[smallest(priorities(keys[rows], config.seed, "candidates", item), wanted)]
    return np.sort(np.concatenate([positives, drawn])).astype(np.uint32), len(drawn)


def left_out(corpus: Corpus, config: PoolConfig, queries: Rows, candidates: Rows) -> tuple[Ints, Ints]:
    """Return (query, row) pairs, int64 ``[n, 2]``: the queries themselves, and candidates of a query's own title."""
    place = np.minimum(np.searchsorted(candidates, queries), len(candidates) - 1)
    present = np.flatnonzero(candidates[place] == queries)
    self_pairs = np.stack([present, queries[present].astype(np.int64)], axis=1)
    if not config.drop_same_title:
        return self_pairs, self_pairs[:0]
    keys = corpus.attributes["title_key"]
    candidate_keys = keys[candidates]
    order = np.argsort(candidate_keys, kind="stable")
    rising = candidate_keys[order]
    query_keys = keys[queries]
    starts, ends = np.searchsorted(rising, query_keys), np.searchsorted(rising, query_keys, side="right")
    lengths = np.where(query_keys != 0, ends - starts, 0)
    owner = np.repeat(np.arange(len(queries)), lengths)
    rows = candidates[order[ranges(starts, lengths)]].astype(np.int64)
    others = rows != queries[owner]
    return self_pairs, np.stack([owner[others], rows[others]], axis=1)


def write_pool(
    out: Workdir, queries: Iterable[Any], candidates: Any, judged: Iterable[Any], excluded: Iterable[Any]
) -> None:
    """Write the tables of a pool.

    ``queries`` are row and field of each query, rising, and ``candidates`` rising rows; ``judged`` has query, row and
    grade of each judgement, ``excluded`` query and row of each candidate that a query does not rank.
    """
    for name, schema, columns in (
        ("queries", POOL_QUERIES, queries),
        ("candidates", CANDIDATES, [candidates]),
        ("qrels", JUDGEMENTS, judged),
        ("exclusions", EXCLUSIONS, excluded),
    ):
        out.arrow(f"{name}.arrow", table(schema, *columns), schema)


def table(schema: pa.Schema, *columns: Any) -> pa.Table:
    """Return columns as a table of a schema."""
    arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
