"""What explains which system wins a query: rank correlations of differences with facts about the query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.measure.inputs import query_of
from pipeline.measure.statistics import RESAMPLES, UNKNOWN, Floats, Interval
from pipeline.studies.large_scale.data import PoolRuns, means_by_query

_WORDS = re.compile(r"\w{3,}")


def words(text: str) -> frozenset[str]:
    """Return the distinct words of three letters or more, in lower case."""
    return frozenset(_WORDS.findall(text.casefold()))


def facts(ranked: PoolRuns) -> dict[str, Floats]:
    """Return facts about the queries of a pool, float64 ``[queries]`` each.

    - length: characters of title and abstract;
    - positives: number of positives;
    - age: mean years from the positives that have a year to the query; NaN if none has;
    - shared words: share of the query's words that a positive also has, mean over positives;
    - with abstract: share of the positives that have one.
    """
    pool, qrels = ranked.pool, ranked.qrels
    attributes, rows = pool.corpus.attributes, pool.query_rows
    years = attributes["year"][qrels.rows].astype(np.float64)
    age = attributes["year"][rows[query_of(qrels.offsets)]] - np.where(years == NO_YEAR, np.nan, years)
    return {
        "length": (attributes["title_chars"][rows] + attributes["abstract_chars"][rows]).astype(np.float64),
        "positives": qrels.positives().astype(np.float64),
        "age": means_by_query(age, qrels),
        "shared words": means_by_query(shared_words(ranked), qrels),
        "with abstract": means_by_query(attributes["abstract_chars"][qrels.rows] > 0, qrels),
    }


def shared_words(ranked: PoolRuns) -> Floats:
    """Return the share of a query's words that each positive has, float64 ``[positives]``."""
    rows = np.union1d(ranked.qrels.rows, ranked.pool.query_rows)
    texts = (words(f"{t.title} {t.abstract}") for block in ranked.pool.corpus.texts(rows) for t in block)
    of: Mapping[int, frozenset[str]] = dict(zip(rows.tolist(), texts, strict=True))
    own = ranked.pool.query_rows[query_of(ranked.qrels.offsets)].tolist()
    shares = [len(of[q] & of[p]) / max(len(of[q]), 1) for q, p in zip(own, ranked.qrels.rows.tolist(), strict=True)]
    return np.array(shares, np.float64)


def within(values: Floats) -> Floats:
    """Return the ranks of values in one field, from 0 to 1: fields then have equal distributions; NaN stays."""
    from scipy.stats import rankdata

    known = max(int(np.count_nonzero(~np.isnan(values))), 1)
    ranks: Floats = rankdata(values, nan_policy="omit") / known
    return ranks


def between(groups: Sequence[Floats], seed: int, resamples: int = RESAMPLES) -> Interval:
    """Return the share of the variance of some values that lies between groups (epsilon squared), with its interval.

    Each group is resampled by itself for the 95% percentile interval. NaN of fewer than two groups.
    """
    if len(groups) < 2:
        return UNKNOWN
    random = generator(seed, "between")
    sizes = np.array([len(each) for each in groups])
    drawn = [
        np.concatenate([each[None, :], each[random.integers(0, len(each), (resamples, len(each)))]]) for each in groups
    ]
    means = np.stack([each.mean(axis=1) for each in drawn])
    mean = (sizes[:, None] * means).sum(axis=0) / sizes.sum()
    inside = sum(((each - own[:, None]) ** 2).sum(axis=1) for each, own in zip(drawn, means, strict=True))
    total = inside + (sizes[:, None] * (means - mean) ** 2).sum(axis=0)
    error = inside / max(sizes.sum() - len(groups), 1)
    shares = 1 - error * (sizes.sum() - 1) / np.where(total > 0, total, np.inf)
    low, high = np.quantile(shares[1:], [0.025, 0.975])
    return float(shares[0]), float(low), float(high)
