"""Choosing queries and their positives (protocols 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.config import format_count
from pipeline.core.csr import Ints
from pipeline.core.errors import InsufficientDataError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.near import are_near
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import Mask, prefilter
from pipeline.corpus.reader import Corpus, Rows


class Queries(NamedTuple):
    """Queries with at least one positive.

    Attributes:
        rows: uint32 ``[queries]``, rising.
        owner: int64 ``[positives]``, position in ``rows`` of each positive's query, rising.
        positives: uint32 ``[positives]``, rising within a query.
        counts: what was eligible, excluded, replaced and removed.
    """

    rows: Rows
    owner: Ints
    positives: Rows
    counts: dict[str, int]


def choose_queries(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints) -> Queries:
    """Draw the queries of a pool: prefiltered papers of the year, in random order, that have a positive.

    ``excluded`` rows are never drawn: training queries and, for a validation pool, the test queries.

    Raises:
        InsufficientDataError: no paper of the year is eligible, or fewer than asked for.
    """
    attributes = corpus.attributes
    eligible = eligible_queries(corpus, config, prefiltered)
    before = int(np.count_nonzero(eligible))
    eligible[excluded] = False
    rows = np.flatnonzero(eligible)
    counts = {"eligible_queries": len(rows), "excluded_queries": before - len(rows)}

    wanted = len(rows) if config.queries == "all" else int(config.queries)
    ordered = rows[smallest(draw_priorities(attributes["key"][rows], config), len(rows))]
    accepted: list[Ints] = []
    count = tried = 0
    while count < wanted and tried < len(ordered):
        block = ordered[tried : tried + max(1024, 2 * (wanted - count))]
        with_positive = np.unique(_positives(corpus, config, prefiltered, block)[0])[: wanted - count]
        accepted.append(block[with_positive])
        count += len(with_positive)
        tried += int(with_positive[-1]) + 1 if count == wanted else len(block)
    if count < wanted and config.queries != "all":
        raise InsufficientDataError(
            f"{format_count(wanted)} queries asked for, but only {count} papers {_where(config)} have a positive",
            f"Ask for --queries={count} or fewer, or for all",
        )
    if not count:
        raise InsufficientDataError(
            f"no paper {_where(config)} cites a paper of the corpus", "Choose another year or field"
        )
    chosen = np.sort(np.concatenate(accepted))
    without = tried - count
    counts["queries_without_positive" if config.queries == "all" else "queries_replaced"] = without
    owner, positives, removed = _positives(corpus, config, prefiltered, chosen)
    years = attributes["year"][positives]
    counts |= {
        "queries": len(chosen),
        "positives": len(positives),
        **{f"positives_dropped_{reason}": count for reason, count in removed.items()},
        "positives_after_query_year": int(np.count_nonzero(years > config.year)),
        "positives_without_year": int(np.count_nonzero(years == NO_YEAR)),
    }
    return Queries(chosen.astype(np.uint32), owner, positives, counts)


def draw_priorities(keys: npt.NDArray[np.uint64], config: PoolConfig) -> npt.NDArray[np.uint64]:
    """Return the priorities by which queries are drawn, the smallest first."""
    return priorities(keys, config.seed, "queries", f"{config.split}|{config.field}")


def queries_by_year(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints) -> Ints:
    """Return how many papers of each year may be queries and have a positive, int64 ``[latest year + 1]``."""
    attributes = corpus.attributes
    possible = prefiltered & of_field(attributes["fields"], config.field)
    possible[excluded] = False
    rows = np.flatnonzero(possible)
    counts = np.zeros(int(attributes["year"].max(initial=0)) + 1, np.int64)
    for start in range(0, len(rows), 1_000_000):
        block = rows[start : start + 1_000_000]
        citing = block[np.unique(_positives(corpus, config, prefiltered, block)[0])]
        counts += np.bincount(attributes["year"][citing], minlength=len(counts))
    return counts


def eligible_queries(corpus: Corpus, config: PoolConfig, prefiltered: Mask) -> Mask:
    """Return which papers may be queries, bool ``[papers]``: the prefiltered ones of the field and year.

    Raises:
        InsufficientDataError: there is none.
    """
    attributes = corpus.attributes
    possible = prefiltered & of_field(attributes["fields"], config.field)
    eligible: Mask = possible & (attributes["year"] == config.year)
    if not eligible.any():
        raise InsufficientDataError(
            f"no paper {_where(config)} can be a query", _years_with(attributes["year"][possible])
        )
    return eligible


def check_queries(corpus: Corpus, config: PoolConfig) -> None:
    """Check that enough papers may be queries, without looking at what they cite."""
    eligible = np.count_nonzero(eligible_queries(corpus, config, prefilter(corpus.attributes, config.prefilter)[0]))
    if config.queries != "all" and eligible < config.queries:
        raise InsufficientDataError(
            f"{format_count(config.queries)} queries asked for, but only {eligible} papers {_where(config)} can be one",
            f"Ask for --queries={eligible} or fewer, or for all",
        )


def _positives(corpus: Corpus, config: PoolConfig, prefiltered: Mask, rows: Ints) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (owner, positive) of every positive of the papers at ``rows``, and how many each rule removed."""
    owner, cited = corpus.outgoing.of_many(rows)
    return kept_positives(corpus, config, prefiltered, rows, corpus.attributes["year"][rows], owner, cited)


def kept_positives(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, asking: Ints, asked: Ints, owner: Ints, cited: Rows
) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (owner, positive) of the citations that rules keep, and how many each rule removed.

    Args:
        corpus: the corpus.
        config: the rules.
        prefiltered: bool ``[papers]``.
        asking: row of the paper that each query is or stands in; -1: none.
        asked: year of each query.
        owner: int64 ``[citations]``, the query of each.
        cited: row of each cited paper.
    """
    attributes = corpus.attributes
    kept = attributes["title_chars"][cited] > 0
    if config.positives == "prefiltered":
        kept &= prefiltered[cited]
    owner, cited = owner[kept], cited[kept]
    removed = {"same_title": 0}
    if config.drop_same_title:
        keys = attributes["title_key"]
        same = (keys[cited] == keys[asking[owner]]) & (keys[cited] != 0) & (asking[owner] >= 0)
        owner, cited, removed["same_title"] = owner[~same], cited[~same], int(np.count_nonzero(same))
    if config.earlier_only:
        later = (attributes["year"][cited] >= asked[owner]) | (attributes["year"][cited] == NO_YEAR)
        owner, cited, removed["not_earlier"] = owner[~later], cited[~later], int(np.count_nonzero(later))
    if config.trained_until is not None:
        seen = attributes["year"][cited] <= config.trained_until
        owner, cited, removed["trained_on"] = owner[~seen], cited[~seen], int(np.count_nonzero(seen))
    if config.drop_near_duplicates:
        near = asking[owner] >= 0
        near[near] = are_near(corpus, asking[owner[near]], cited[near])
        owner, cited, removed["near_duplicate"] = owner[~near], cited[~near], int(np.count_nonzero(near))
    return owner, cited, removed


def field_cited(corpus: Corpus, field: str, enough: Callable[[Mask], bool] = lambda _: False) -> Mask:
    """Return which papers are cited by any paper of a field, bool ``[papers]`` (protocol 3).

    Counting may stop as soon as ``enough`` accepts the papers counted so far.
    """
    cited = np.zeros(len(corpus), dtype=bool)
    rows = np.flatnonzero(of_field(corpus.attributes["fields"], field))
    for start in range(0, len(rows), 1_000_000):
        cited[corpus.outgoing.of_many(rows[start : start + 1_000_000])[1]] = True
        if enough(cited):
            break
    return cited


def of_field(masks: npt.NDArray[Any], field: str | None) -> Mask:
    """Return which masks of fields have a field, bool; all where it is None."""
    if field is None:
        return np.ones(len(masks), dtype=bool)
    mask: Mask = (masks >> np.uint32(FIELD_BIT[field])) & np.uint32(1) == 1
    return mask


def _where(config: PoolConfig) -> str:
    return f"of {config.year}" + (f" in {config.field}" if config.field else "")


def _years_with(years: npt.NDArray[Any]) -> str:
    values, numbers = np.unique(years, return_counts=True)
    if not len(values):
        return "No paper of any year passes the prefilter here: choose another field or prefilter"
    top = np.argsort(-numbers, kind="stable")[:5]
    listed = ", ".join(f"{values[i]} ({numbers[i]:,})" for i in sorted(top))
    return f"Choose another --year; most papers are of {listed}"
