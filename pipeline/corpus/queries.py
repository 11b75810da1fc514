"""Choose queries and their positives (protocols 2 and 3)."""

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
from pipeline.corpus.prefilter import Mask, describe_dropped, prefilter
from pipeline.corpus.reader import Corpus, Rows


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


def choose_queries(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints) -> Queries:
    """Draw the queries of a pool, in random order, from the prefiltered papers of the year that have a positive.

    ``excluded`` rows are never drawn: training queries and, for a validation pool, the test queries.

    Raises:
        InsufficientDataError: the corpus has too few such papers.
    """
    attributes = corpus.attributes
    eligible = eligible_queries(corpus, config, prefiltered)
    before_exclusion = int(np.count_nonzero(eligible))
    eligible[excluded] = False
    rows = np.flatnonzero(eligible)
    counts = {"eligible_queries": len(rows), "excluded_queries": before_exclusion - len(rows)}

    wanted = len(rows) if config.drawn == "all" else int(config.drawn)
    ordered = rows[smallest(draw_priorities(attributes["key"][rows], config), len(rows))]
    accepted: list[Ints] = []
    count = tried = 0
    while count < wanted and tried < len(ordered):
        block = ordered[tried : tried + max(1024, 2 * (wanted - count))]
        with_positive = np.unique(_positives(corpus, config, prefiltered, block)[0])[: wanted - count]
        accepted.append(block[with_positive])
        count += len(with_positive)
        tried += int(with_positive[-1]) + 1 if count == wanted else len(block)
    if not count or (count < wanted and config.drawn != "all"):
        raise too_few_queries(config, count, "papers")
    chosen = np.sort(np.concatenate(accepted))
    counts["queries_without_positive" if config.drawn == "all" else "queries_replaced"] = tried - count
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
    """Return the random priorities of queries, uint64 ``[keys]``; the smallest are drawn first."""
    return priorities(keys, config.seed, "queries", f"{config.split}|{config.field}")


def queries_by_year(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints) -> Ints:
    """Return the number of possible queries with a positive per year, int64 ``[latest year + 1]``."""
    attributes = corpus.attributes
    possible = prefiltered & has_field(attributes["fields"], config.field)
    possible[excluded] = False
    rows = np.flatnonzero(possible)
    counts = np.zeros(int(attributes["year"].max(initial=0)) + 1, np.int64)
    for start in range(0, len(rows), 1_000_000):
        block = rows[start : start + 1_000_000]
        citing = block[np.unique(_positives(corpus, config, prefiltered, block)[0])]
        counts += np.bincount(attributes["year"][citing], minlength=len(counts))
    return counts


def eligible_queries(corpus: Corpus, config: PoolConfig, prefiltered: Mask) -> Mask:
    """Return which papers can be queries, bool ``[papers]``: prefiltered and of the field and year.

    Raises:
        InsufficientDataError: no paper can.
    """
    attributes = corpus.attributes
    possible = prefiltered & has_field(attributes["fields"], config.field)
    eligible: Mask = possible & (attributes["year"] == config.year)
    if not eligible.any():
        raise no_query(corpus, config, "paper", attributes["year"][possible])
    return eligible


def too_few_queries(config: PoolConfig, count: int, papers: str) -> InsufficientDataError:
    """Return the error that fewer ``papers`` (or contexts) than requested have a positive."""
    name, others = ("queries", "") if config.split == "test" else ("validation-queries", " beyond the test queries")
    if not count:
        remedy = "Choose another year or field"
        if config.split == "validation":
            remedy = "Give fewer --queries, or the same --validation-queries to mdcr tune and mdcr eval"
        return InsufficientDataError(f"no {papers[:-1]} {_of_pool(config)}{others} has a positive", remedy)
    remedy = f"Give --{name}={count} or fewer" + (", or all" if config.split == "test" else "")
    what = f"{format_count(int(config.drawn))} {name.replace('-', ' ')} requested, but only {count} {papers} "
    return InsufficientDataError(f"{what}{_of_pool(config)}{others} have a positive", remedy)


def no_query(corpus: Corpus, config: PoolConfig, paper: str, years: npt.NDArray[Any]) -> InsufficientDataError:
    """Return the error that no ``paper`` (or context) can be a query; ``years`` are those of possible queries."""
    what = f"no {paper} {_of_pool(config)} can be a query"
    if len(years := years[years > config.cutoff]):
        values, counts = np.unique(years, return_counts=True)
        frequent = np.sort(np.argsort(-counts, kind="stable")[:5])
        listed = ", ".join(f"{values[index]} ({counts[index]:,})" for index in frequent)
        return InsufficientDataError(what, f"Choose another --year; most {paper}s are of {listed}")
    of_field = has_field(corpus.attributes["fields"], config.field)
    if config.field and not of_field.any():
        return InsufficientDataError(f"no paper of the corpus is in {config.field}", "Choose another field")
    papers = {name: values[of_field] for name, values in corpus.attributes.items()}
    dropped, loosened = describe_dropped(prefilter(papers, config.prefilter)[1], config.prefilter)
    if paper == "paper" and not corpus.attributes["n_outbound"].any():
        remedy = "Give citation contexts: mdcr corpus --contexts, or queries and judgements: --source beir"
        return InsufficientDataError(f"{what}: no paper has references", remedy)
    if config.cutoff >= 0:
        remedy = "Give an earlier year to --trained-until or --after-cutoff"
        return InsufficientDataError(f"{what}, nor one of a later year than the training data", remedy)
    remedy = f"Give {loosened}" if loosened else "Choose another field"
    return InsufficientDataError(f"{what}: {', '.join(dropped)}" if dropped else what, remedy)


def check_queries(corpus: Corpus, config: PoolConfig) -> None:
    """Raise InsufficientDataError unless enough papers can be queries; their positives are not checked."""
    eligible = np.count_nonzero(eligible_queries(corpus, config, prefilter(corpus.attributes, config.prefilter)[0]))
    if config.drawn != "all" and eligible < config.drawn:
        raise too_few_queries(config, int(eligible), "papers")


def _positives(corpus: Corpus, config: PoolConfig, prefiltered: Mask, rows: Ints) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (owner, positive) of the positives of the papers at ``rows``, and the number each rule removed."""
    owner, cited = corpus.outgoing.of_many(rows)
    return filter_positives(corpus, config, prefiltered, rows, corpus.attributes["year"][rows], owner, cited)


def filter_positives(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, papers: Ints, years: Ints, owner: Ints, cited: Rows
) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (owner, positive) of the citations that the rules keep, and the number each rule removed.

    Args:
        corpus: the corpus.
        config: the rules.
        prefiltered: bool ``[papers]``.
        papers: row of each query's paper (for a citation context, its citing paper), int64 ``[queries]``; -1: none.
        years: year of each query, ``[queries]``.
        owner: query of each citation, int64 ``[citations]``.
        cited: row of each cited paper, ``[citations]``.
    """
    attributes = corpus.attributes
    is_kept = attributes["title_chars"][cited] > 0
    if config.positives == "prefiltered":
        is_kept &= prefiltered[cited]
    owner, cited = owner[is_kept], cited[is_kept]
    removed = {"same_title": 0}
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
        near[near] = are_near(corpus, papers[owner[near]], cited[near])
        owner, cited, removed["near_duplicate"] = owner[~near], cited[~near], int(np.count_nonzero(near))
    return owner, cited, removed


def field_cited(corpus: Corpus, field: str, enough: Callable[[Mask], bool] = lambda _: False) -> Mask:
    """Return which papers are cited by a paper of a field, bool ``[papers]`` (protocol 3).

    The search stops as soon as ``enough`` is true for the papers found so far.
    """
    cited = np.zeros(len(corpus), dtype=bool)
    rows = np.flatnonzero(has_field(corpus.attributes["fields"], field))
    for start in range(0, len(rows), 1_000_000):
        cited[corpus.outgoing.of_many(rows[start : start + 1_000_000])[1]] = True
        if enough(cited):
            break
    return cited


def has_field(masks: npt.NDArray[Any], field: str | None) -> Mask:
    """Return which bit masks include a field, bool ``[masks]``; all if it is None."""
    if field is None:
        return np.ones(len(masks), dtype=bool)
    mask: Mask = (masks >> np.uint32(FIELD_BIT[field])) & np.uint32(1) == 1
    return mask


def _of_pool(config: PoolConfig) -> str:
    return f"of {config.year}" + (f" in {config.field}" if config.field else "")
