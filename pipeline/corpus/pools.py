"""Build pools: queries, candidates, qrels and exclusions (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.config import counted, format_count
from pipeline.core.csr import Ints, find_sorted, pack, ranges
from pipeline.core.errors import InsufficientDataError
from pipeline.core.progress import say, warn
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, MISSING, NO_YEAR, POOL_QUERIES
from pipeline.core.settings import Count
from pipeline.core.workdir import Workdir
from pipeline.corpus.near import near_pairs
from pipeline.corpus.poolconfig import PoolConfig, PrefilterConfig
from pipeline.corpus.prefilter import FEW_NEGATIVES, Mask, count_marks, describe_dropped, has_text, loosening, prefilter
from pipeline.corpus.queries import Queries, QuerySource, choose_queries, has_field
from pipeline.corpus.reader import AnyRows, Corpus, Rows


def build_pool(corpus: Corpus, config: PoolConfig, out: Workdir, excluded: Ints, used: AnyRows) -> dict[str, Any]:
    """Draw queries and their candidates, write the pool into ``out`` and return its counts.

    A citation context's citing paper is excluded from its ranking.

    Args:
        corpus: the corpus.
        config: year, field, size, number of queries and rules.
        out: receives the tables of the pool.
        excluded: rows of papers that, and whose contexts, may not be queries.
        used: rows of other queries that may not be drawn.

    Raises:
        InsufficientDataError: the corpus has too few queries or candidates.
    """
    prefiltered = prefilter(corpus.attributes, config.prefilter)
    queries, source, candidates, drawn_count = draw(corpus, config, prefiltered[0], excluded, used)
    of_queries = QuerySource.of(corpus, config)
    papers = of_queries.papers(queries.rows)
    if config.queries_are == "texts":
        owner, grade = (column.to_numpy() for column in corpus.missing.columns)
        missing = np.isin(owner, queries.rows)
        missing_table = table(MISSING, np.searchsorted(queries.rows, owner[missing]), grade[missing])
        out.arrow("missing.arrow", missing_table, MISSING)
        queries.counts["positives_not_in_collection"] = int(missing.sum())
    positives = np.unique(queries.positives)
    if config.sample == 1 and drawn_count < FEW_NEGATIVES * len(positives):
        fewer = len(queries.rows) * (len(positives) + drawn_count) // ((FEW_NEGATIVES + 1) * len(positives))
        warn(
            f"pool {config.slug} has only {drawn_count / len(positives):.1f} other papers per cited paper "
            f"({FEW_NEGATIVES} or more advised), so scores are higher than in a larger pool. Give a larger --size, "
            f"fewer --min-citations or --{'validation-' * (config.split == 'validation')}queries={max(fewer, 1)}"
        )
    with_paper = np.flatnonzero(papers >= 0)
    query_papers = papers[with_paper].astype(np.uint32)
    pairs = [*_pairs_to_exclude(corpus, config, query_papers, candidates)]
    exclusion_counts = dict(zip(("excluded_self", "excluded_same_title"), map(len, pairs), strict=True))
    if config.positives == "strangers":
        pairs.append(_no_positives(queries, of_queries, candidates))
        exclusion_counts["excluded_no_stranger"] = len(pairs[-1])
    excluded = np.unique(np.concatenate(pairs), axis=0)
    if config.drop_near_duplicates:
        with_near = np.unique(np.concatenate([excluded, near_pairs(corpus, query_papers, candidates)]), axis=0)
        exclusion_counts["excluded_near_duplicate"] = len(with_near) - len(excluded)
        excluded = with_near
    fields, grades = pa.array([config.field] * len(queries.rows), pa.string()), np.ones(len(queries.positives))
    judgements, exclusions = (queries.owner, queries.positives, grades), (with_paper[excluded[:, 0]], excluded[:, 1])
    write_pool(out, (queries.rows, fields), candidates, judgements, exclusions)
    return {
        **queries.counts,
        "candidates": len(candidates),
        "candidates_positive": len(positives),
        "candidates_drawn": drawn_count,
        "candidates_available": int(np.count_nonzero(source)),
        **exclusion_counts,
        "prefilter": prefiltered[1],
        "marks": count_marks(corpus.attributes, positives, candidates),
    }


_READ_PAPERS = 1_000_000
"""Papers whose citations are read at a time."""


def draw(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints, used: AnyRows
) -> tuple[Queries, Mask, Rows, int]:
    """Draw a pool; arguments and errors are those of :func:`build_pool`.

    Returns:
        The queries, which papers can be drawn as candidates (:func:`drawable`), the rows of the candidates, rising,
        and how many of these are drawn.
    """
    queries = choose_queries(corpus, config, prefiltered, excluded, used)
    source = drawable(corpus, config, prefiltered)
    return queries, source, *_draw_candidates(corpus, config, queries, source)


def drawable(corpus: Corpus, config: PoolConfig, prefiltered: Mask) -> Mask:
    """Return which papers can be drawn as candidates, bool ``[papers]`` (protocols 2 and 3)."""
    year = corpus.attributes["year"]
    early = year < config.year if config.earlier_only else year <= config.year
    if config.trained_until is not None:
        early &= year > config.trained_until
    if config.field is None:
        return np.asarray(prefiltered & early)
    cited, of_field = np.zeros(len(corpus), bool), np.flatnonzero(has_field(corpus.attributes["fields"], config.field))
    for rows in np.split(of_field, range(_READ_PAPERS, len(of_field), _READ_PAPERS)):
        cited[corpus.outgoing.of_many(rows)[1]] = True
    return np.asarray(cited & has_text(corpus.attributes, config.prefilter) & early & (year != NO_YEAR))


def build_given_pool(corpus: Corpus, config: PoolConfig, out: Workdir) -> dict[str, Any]:
    """Write the pool of a release's queries and judgements, with every paper as candidate; return its counts.

    Raises:
        InsufficientDataError: no query has a candidate that is not a positive of it.
    """
    judgements = corpus.judgements
    query_ids = corpus.query_texts.column("query_id").to_pylist()
    grades = judgements.column("grade").to_numpy()
    identical = corpus.rows_of(query_ids) if config.drop_identical_id else np.full(len(query_ids), -1)
    query = np.flatnonzero(identical >= 0)
    exclusions = corpus.exclusions
    excluding, rows = (column.to_numpy().astype(np.int64) for column in exclusions.columns)
    pairs = np.concatenate([query * len(corpus) + identical[query], excluding * len(corpus) + rows])
    excluded = np.divmod(np.unique(pairs), len(corpus))
    _check_given(corpus, pairs)
    if len(query):
        judged_pairs = judgements.column("query").to_numpy().astype(np.int64) * len(corpus)
        relevant = (judged_pairs + judgements.column("row").to_numpy())[grades > 0]
        lost = np.count_nonzero(np.isin(query * len(corpus) + identical[query], relevant))
        say(
            f"left out: {counted(len(query), 'candidate')} with the id of their query, {lost:,} of them positives; "
            "--keep-identical-id keeps them"
        )
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
        **({"excluded_given": len(excluded[0]) - len(query)} if len(exclusions) else {}),
    }


def _check_given(corpus: Corpus, excluded: Ints) -> None:
    """Raise InsufficientDataError unless a query can have an error.

    ``excluded`` are pairs: query times the number of papers, plus the paper's row.
    """
    query, row, grade = (column.to_numpy() for column in corpus.judgements.columns)
    positives = np.unique(query[grade > 0].astype(np.int64) * len(corpus) + row[grade > 0])
    removed = np.bincount(np.union1d(positives, excluded) // len(corpus))
    answered = np.unique(positives // len(corpus))
    if not len(answered):
        return
    if (removed[answered] == len(corpus)).all():
        name = corpus.artifact.manifest.slug
        raise InsufficientDataError(
            f"every ranking of {name} is right: all candidates of each query are its positives",
            "Give papers that are no positives too",
        )


def _draw_candidates(corpus: Corpus, config: PoolConfig, queries: Queries, source: Mask) -> tuple[Rows, int]:
    """Return the rows of the candidates, rising, and the number drawn; InsufficientDataError if there are too few."""
    keys, positives = corpus.attributes["key"], np.unique(queries.positives)
    is_negative = source.copy()
    is_negative[positives] = False
    rows = np.flatnonzero(is_negative)
    draw_count = len(rows) if config.size == "all" else int(config.size) - len(positives)
    found = f"{counted(len(positives), 'positive')} and {counted(len(rows), 'other')}"
    if not len(rows):
        left_out, rule = _left_out(corpus, config, source)
        what = f"a pool must have papers that are no positives, got {found}{left_out}"
        raise InsufficientDataError(what, f"Give {loosening(rule) or 'another --year'}").naming(**rule)
    if draw_count <= 0:
        fewer = min(len(queries.rows) * int(config.size) // len(positives), len(queries.rows) - 1)
        raise InsufficientDataError(
            f"the {len(positives):,} positives alone {'exceed' if draw_count else 'fill'} a pool of "
            f"{format_count(int(config.size))}",
            "Give a larger --size or fewer --queries",
        ).naming(**({"queries": fewer} if fewer else {"size": "all"}))
    if draw_count > len(rows):
        raise InsufficientDataError(
            f"a pool of {format_count(int(config.size))} was requested, but only {len(positives) + len(rows):,} papers "
            f"can be candidates ({found}{_left_out(corpus, config, source)[0]})",
            f"Give --size={len(positives) + len(rows)} or less, or all",
        ).naming(size=len(positives) + len(rows))
    purpose = f"{config.split}|{config.field}|{config.sample}" + ("" if config.nested else f"|{config.size}")
    drawn = rows[smallest(priorities(keys[rows], config.seed, "candidates", purpose), draw_count)]
    return np.sort(np.concatenate([positives, drawn])).astype(np.uint32), len(drawn)


def _left_out(corpus: Corpus, config: PoolConfig, source: Mask) -> tuple[str, dict[str, int]]:
    """Return which rules removed papers from those that can be drawn, with counts, and how the first is loosened."""
    rules = config.prefilter if config.field is None else dataclasses.replace(config.prefilter, min_citations=0)
    counts = prefilter(corpus.attributes, rules)[1]
    dropped, loosened = describe_dropped(counts, rules)
    if others := counts["kept"] - int(np.count_nonzero(source)):
        dropped.append(f"{others:,} are of other years" + f" or not cited in {config.field}" * bool(config.field))
    return f"; left out: {', '.join(dropped)}" if dropped else "", loosened


def _pairs_to_exclude(corpus: Corpus, config: PoolConfig, queries: Rows, candidates: Rows) -> tuple[Ints, Ints]:
    """Return (query, row) pairs, int64 ``[n, 2]``: of queries among the candidates, and of equal titles."""
    present = np.flatnonzero(find_sorted(candidates, queries)[1])
    self_pairs = np.stack([present, queries[present].astype(np.int64)], axis=1)
    if not config.drop_same_title:
        return self_pairs, self_pairs[:0]
    keys = corpus.attributes["title_key"]
    candidate_keys = keys[candidates]
    order = np.argsort(candidate_keys, kind="stable")
    sorted_keys = candidate_keys[order]
    query_keys = keys[queries]
    starts, ends = np.searchsorted(sorted_keys, query_keys), np.searchsorted(sorted_keys, query_keys, side="right")
    lengths = np.where(query_keys != 0, ends - starts, 0)
    owner = np.repeat(np.arange(len(queries)), lengths)
    rows = candidates[order[ranges(starts, lengths)]].astype(np.int64)
    is_other = rows != queries[owner]
    return self_pairs, np.stack([owner[is_other], rows[is_other]], axis=1)


def _no_positives(queries: Queries, source: QuerySource, candidates: Rows) -> Ints:
    """Return (query, row) pairs, int64 ``[n, 2]``, of candidates that a query cites and that are no positives of it."""
    cited = pack(*source.citations.of_many(queries.rows))
    others = np.setdiff1d(cited, pack(queries.owner, queries.positives))
    pairs = np.stack(np.divmod(others, np.uint64(1 << 32)), axis=1).astype(np.int64)
    return pairs[find_sorted(candidates, pairs[:, 1])[1]]


def write_pool(
    out: Workdir, queries: Iterable[Any], candidates: Any, judgements: Iterable[Any], exclusions: Iterable[Any]
) -> None:
    """Write the tables of a pool.

    Args:
        out: receives the tables.
        queries: columns row, rising, and field.
        candidates: rows, rising.
        judgements: columns query, row and grade.
        exclusions: columns query and row.
    """
    for name, schema, columns in (
        ("queries", POOL_QUERIES, queries),
        ("candidates", CANDIDATES, [candidates]),
        ("qrels", JUDGEMENTS, judgements),
        ("exclusions", EXCLUSIONS, exclusions),
    ):
        out.arrow(f"{name}.arrow", table(schema, *columns), schema)


def table(schema: pa.Schema, *columns: Any) -> pa.Table:
    """Return a table of columns, cast to a schema."""
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


_TRIES = 30
"""Settings that are changed, one after the other, to find the nearest pool."""


def nearest(
    corpus: Corpus, configs: Sequence[PoolConfig], free: Collection[str], exclude: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the settings to change so that all of some pools can be drawn; None if nothing near works.

    Each shortage names a year, a number of queries, a size or a rule of the prefilter that may help, which is tried. A
    size is the most that any of the pools may have. The year changes once, and first, to the one with most queries.

    Args:
        corpus: the corpus.
        configs: settings of the pools; those of a validation pool, or with ``validation_queries``, leave room for both.
        free: names of the settings that may change.
        exclude: ids of papers that may not be queries.
    """
    changed: dict[str, Any] = {}
    for _ in range(_TRIES):
        errors = [shortage(corpus, _with(config, changed), exclude) for config in configs]
        error = next((error for error in errors if error is not None), None)
        if error is None:
            return changed
        named = error.nearest
        usable = [name for name in named if name in free and (name != "year" or "year" not in changed)]
        if not usable:
            return None
        changed[usable[0]] = named[usable[0]]
    return None


def sizes_within(sizes: Iterable[Count], most: Count) -> tuple[Count, ...]:
    """Return sizes without repetitions, of which the numbers are at most ``most``; all the papers, if it is ``all``."""
    if most == "all":
        return ("all",)
    return tuple(dict.fromkeys(size if size == "all" else min(size, most) for size in sizes))


def _with(config: PoolConfig, changed: dict[str, Any]) -> PoolConfig:
    """Return changed settings."""
    rules = {field.name for field in dataclasses.fields(PrefilterConfig)}
    of_pool = {name: value for name, value in changed.items() if name not in rules}
    if "size" in of_pool:
        of_pool["size"] = sizes_within([config.size], of_pool["size"])[0]
    of_rules = {name: value for name, value in changed.items() if name in rules}
    return dataclasses.replace(config, **of_pool, prefilter=dataclasses.replace(config.prefilter, **of_rules))


def shortage(corpus: Corpus, config: PoolConfig, exclude: Sequence[str]) -> InsufficientDataError | None:
    """Return the error of drawing a pool, and the validation pool beside it; None if there is none."""
    prefiltered, rows = prefilter(corpus.attributes, config.prefilter), corpus.rows_of(exclude)
    used: AnyRows = np.empty(0, np.int64)
    held_out = config.split == "validation" or config.validation_queries is not None
    try:
        for split in ("test", "validation") if held_out and config.queries != "all" else ("test",):
            of_split = dataclasses.replace(config, split=split)
            used = draw(corpus, of_split, prefiltered[0], rows[rows >= 0], used)[0].rows
    except InsufficientDataError as error:
        return error
    return None
