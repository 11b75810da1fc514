"""Choose queries and their positives (protocols 2 and 3)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.config import format_count
from pipeline.core.csr import Ints, Keys, offsets_of
from pipeline.core.errors import InsufficientDataError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys
from pipeline.corpus.authors import CLASSES, Authors
from pipeline.corpus.near import are_near
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import Mask, describe_dropped, loosening, prefilter
from pipeline.corpus.reader import AnyRows, Corpus, Graph, Rows


class Queries(NamedTuple):
    """Queries with at least one positive.

    Attributes:
        rows: uint32 ``[queries]``, rising.
        owner: int64 ``[positives]``, position in ``rows`` of each positive's query, rising.
        positives: uint32 ``[positives]``, rows of the cited papers, rising within a query.
        counts: numbers of eligible, excluded and replaced queries, and of removed positives.
    """

    rows: Rows
    owner: Ints
    positives: Rows
    counts: dict[str, int]


class QuerySource(NamedTuple):
    """What queries are drawn from: the papers of a corpus, or its citation contexts.

    Attributes:
        corpus: the corpus.
        noun: ``paper`` or ``context``, in messages.
        citations: the papers that each of them cites.
        years: year of each.
        citing: row of each context's citing paper, int64, -1 if the corpus lacks it; None: they are papers.
    """

    corpus: Corpus
    noun: str
    citations: Graph
    years: npt.NDArray[Any]
    citing: Ints | None = None

    @classmethod
    def of(cls, corpus: Corpus, config: PoolConfig) -> QuerySource:
        """Return what the queries of a pool are drawn from."""
        if config.queries_are == "papers":
            return cls(corpus, "paper", corpus.outgoing, corpus.attributes["year"])
        years, citing = (column.to_numpy() for column in corpus.contexts.columns)
        query, row = (corpus.judgements.column(name).to_numpy() for name in ("query", "row"))
        return cls(corpus, "context", Graph(offsets_of(query, len(years)), row), years, citing)

    def papers(self, rows: AnyRows) -> AnyRows:
        """Return the rows of the papers that the queries at ``rows`` are or come from; -1: the corpus lacks it."""
        return rows if self.citing is None else self.citing[rows]

    def keys(self, rows: AnyRows) -> Keys:
        """Return the keys of ids, by which queries are drawn, uint64 ``[rows]``."""
        if self.citing is None:
            keys: Keys = self.corpus.attributes["key"][rows]
            return keys
        return id_keys(self.corpus.query_texts.column("query_id").take(pa.array(rows)).to_pylist())

    def possible(self, config: PoolConfig, prefiltered: Mask) -> Mask:
        """Return which may be queries of the pool's field in their year, bool: prefiltered papers, dated contexts."""
        fields = self.corpus.attributes["fields"]
        if self.citing is None:
            return prefiltered & has_field(fields, config.field)
        of_field = has_field(np.append(fields, np.uint32(0))[self.citing], config.field)  # row -1: no field
        return np.asarray(of_field & (self.years != NO_YEAR))

    def without(self, chosen: Mask, excluded: Ints, used: AnyRows) -> Mask:
        """Return which of some queries are not of ``excluded`` papers, and not ``used`` themselves, bool."""
        remaining = chosen & ~np.isin(self.citing, excluded) if self.citing is not None else chosen.copy()
        remaining[used] = False
        if self.citing is None:
            remaining[excluded] = False
        return remaining


_NONE = np.empty(0, np.int64)


def choose_queries(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints, used: AnyRows = _NONE
) -> Queries:
    """Draw the queries of a pool, in random order, from those of the year and field that have a positive.

    A context has the field of its citing paper. Queries of ``excluded`` papers, such as training queries, and those at
    the rows ``used``, of the test pool of a validation pool, are never drawn.

    Raises:
        InsufficientDataError: the corpus has too few.
    """
    source = QuerySource.of(corpus, config)
    if source.citing is not None and config.field and not corpus.attributes["n_outbound"].any():
        raise InsufficientDataError(
            f"no paper is cited in {config.field}, since no paper has references",
            "Leave out --field: its candidates are papers that its papers cite",
        )
    eligible = _eligible(source, config, prefiltered)
    rows = np.flatnonzero(source.without(eligible, excluded, used))
    counts = {"eligible_queries": len(rows), "excluded_queries": int(np.count_nonzero(eligible)) - len(rows)}

    wanted = len(rows) if config.drawn == "all" else int(config.drawn)
    purpose = f"{config.split}|{config.field}"
    ordered = rows[smallest(priorities(source.keys(rows), config.seed, "queries", purpose), len(rows))]
    accepted: list[Ints] = []
    count = tried = 0
    while count < wanted and tried < len(ordered):
        block = ordered[tried : tried + max(1024, 2 * (wanted - count))]
        with_positive = np.unique(_positives(source, config, prefiltered, block)[0])[: wanted - count]
        accepted.append(block[with_positive])
        count += len(with_positive)
        tried += int(with_positive[-1]) + 1 if count == wanted else len(block)
    if not count or (count < wanted and config.drawn != "all"):
        raise _too_few_queries(config, count, source, prefiltered)
    chosen = np.sort(np.concatenate(accepted))
    counts["queries_without_positive" if config.drawn == "all" else "queries_replaced"] = tried - count
    owner, positives, removed = _positives(source, config, prefiltered, chosen)
    years = corpus.attributes["year"][positives]
    counts |= {
        "queries": len(chosen),
        "positives": len(positives),
        **{f"positives_dropped_{reason}": count for reason, count in removed.items()},
        "positives_after_query_year": int(np.count_nonzero(years > config.year)),
        "positives_without_year": int(np.count_nonzero(years == NO_YEAR)),
    }
    return Queries(chosen.astype(np.uint32), owner, positives, counts)


def _eligible(source: QuerySource, config: PoolConfig, prefiltered: Mask) -> Mask:
    """Return which can be queries, bool: possible and of the year; raise InsufficientDataError if none can."""
    eligible: Mask = source.possible(config, prefiltered) & (source.years == config.year)
    if not eligible.any():
        raise _no_query(source, config, prefiltered)
    return eligible


def _frequent_years(source: QuerySource, config: PoolConfig, prefiltered: Mask) -> list[tuple[int, int]]:
    """Return the years of possible queries after the cutoff with their counts, the most frequent first."""
    years = source.years[source.possible(config, prefiltered)]
    values, counts = np.unique(years[years > config.cutoff], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(values[order].tolist(), counts[order].tolist(), strict=True))


def _too_few_queries(config: PoolConfig, count: int, source: QuerySource, prefiltered: Mask) -> InsufficientDataError:
    """Return the error that fewer papers or contexts than requested have a positive."""
    is_test, left = config.split == "test", count
    if not is_test and config.queries != "all":
        left = int(config.queries) + count
        left = left - config.validation_queries if config.validation_queries else left // 2
    best = next((year for year, _ in _frequent_years(source, config, prefiltered)), config.year)
    nearest = {"year": best} if is_test and best != config.year else {}
    name, others = ("queries", "") if is_test else ("validation-queries", " beyond the test queries")
    wanted = config.drawn if config.drawn == "all" else format_count(int(config.drawn))
    return InsufficientDataError(
        f"{wanted} {name.replace('-', ' ')} requested, but only {count} {source.noun}s {_of_pool(config)}{others} have "
        "a positive",
        f"Give --{name}={count} or fewer" if count else "Choose another year or field, or fewer --queries",
    ).naming(**nearest, **({"queries": left} if left > 0 else {}))


def _no_query(source: QuerySource, config: PoolConfig, prefiltered: Mask) -> InsufficientDataError:
    """Return the error that no paper or context can be a query."""
    what, attributes = f"no {source.noun} {_of_pool(config)} can be a query", source.corpus.attributes
    if frequent := _frequent_years(source, config, prefiltered):
        listed = ", ".join(f"{year} ({count:,})" for year, count in sorted(frequent[:5]))
        remedy = f"Choose another --year; most {source.noun}s are of {listed}"
        return InsufficientDataError(what, remedy).naming(year=frequent[0][0])
    if source.noun == "paper" and not attributes["n_outbound"].any():
        remedy = "Give citation contexts: mdcr corpus --contexts, or queries and judgements: --source beir"
        return InsufficientDataError(f"{what}: no paper has references", remedy)
    papers = {name: values[has_field(attributes["fields"], config.field)] for name, values in attributes.items()}
    dropped, loosened = describe_dropped(prefilter(papers, config.prefilter)[1], config.prefilter)
    remedy = f"Give {loosening(loosened)}" if loosened else "Choose another field"
    if config.cutoff >= 0:
        remedy = "Give an earlier year to --trained-until or --after-cutoff"
    return InsufficientDataError(f"{what}: {', '.join(dropped)}" if dropped else what, remedy).naming(**loosened)


def _positives(
    source: QuerySource, config: PoolConfig, prefiltered: Mask, rows: AnyRows
) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (owner, positive) of the citations of the queries at ``rows`` that the rules keep, and what each removed.

    ``owner`` is the position in ``rows``. A context's positives are of its year or earlier.
    """
    attributes, papers, years = source.corpus.attributes, source.papers(rows), source.years[rows]
    owner, cited = source.citations.of_many(rows)
    removed = {"same_title": 0}
    if source.citing is not None:
        later = (attributes["year"][cited] > years[owner]) & (attributes["year"][cited] != NO_YEAR)
        owner, cited, removed["later"] = owner[~later], cited[~later], int(np.count_nonzero(later))
    is_kept = attributes["title_chars"][cited] > 0
    if config.positives == "prefiltered":
        is_kept &= prefiltered[cited]
    owner, cited = owner[is_kept], cited[is_kept]
    if config.drop_same_title:
        keys = attributes["title_key"]
        same = (keys[cited] == keys[papers[owner]]) & (keys[cited] != 0) & (papers[owner] >= 0)
        owner, cited, removed["same_title"] = owner[~same], cited[~same], int(np.count_nonzero(same))
    if config.earlier_only:
        later = (attributes["year"][cited] >= years[owner]) | (attributes["year"][cited] == NO_YEAR)
        owner, cited, removed["not_earlier"] = owner[~later], cited[~later], int(np.count_nonzero(later))
    if config.trained_until is not None:
        early = attributes["year"][cited] <= config.trained_until
        owner, cited, removed["trained_on"] = owner[~early], cited[~early], int(np.count_nonzero(early))
    if config.drop_near_duplicates:
        near = papers[owner] >= 0
        near[near] = are_near(source.corpus, papers[owner[near]], cited[near])
        owner, cited, removed["near_duplicate"] = owner[~near], cited[~near], int(np.count_nonzero(near))
    if source.corpus.authors is not None:
        classes = Authors(source.corpus.authors, source.corpus).classes(papers, years, owner, cited)
        far = classes == CLASSES.index("stranger")
        owner, cited, removed["no_stranger"] = owner[far], cited[far], int(np.count_nonzero(~far))
    return owner, cited, removed


def has_field(masks: npt.NDArray[Any], field: str | None) -> Mask:
    """Return which bit masks include a field, bool ``[masks]``; all if it is None."""
    if field is None:
        return np.ones(len(masks), dtype=bool)
    mask: Mask = (masks >> np.uint32(FIELD_BIT[field])) & np.uint32(1) == 1
    return mask


def _of_pool(config: PoolConfig) -> str:
    return f"of {config.year}" + (f" in {config.field}" if config.field else "")
