"""Measures under judged relevance, from labels of a part of the pairs of query and paper.

The universe of pairs is the first ranks of every system and all cited papers; papers outside count as not relevant.
Two designs say which of its pairs people judge:

| design | drawn | measures | estimator |
|---|---|---|---|
| ``pairs`` | pairs, independently (Poisson sampling) | linear in the labels: precision@k, DCG@k | Horvitz-Thompson |
| ``queries`` | queries, with all their pairs | all that are fractions | difference estimator, the query as unit |

**Pairs.** Pair ``i`` is drawn with a known probability ``pi_i`` if its permanent random number is below it (Ohlsson
1995), so a larger draw contains the smaller one. Let ``y`` be the relevance of a pair (share of its annotators), ``p``
a prediction of it, and ``e = (y - p) / pi`` for labelled pairs, 0 for the others. Predictions are Hajek means of the
labels of a stratum; labels of a model move them by a tuned weight (PPI++, Angelopoulos et al. 2023). Those of a query
are fitted without its own labels, so sums of ``p + e`` are unbiased whatever the model is worth. The variance between
values of queries contains that of queries and that of draws, so the usual intervals over queries hold for both.

**Queries.** Recall, MAP and nDCG are ratios, which two labels a query cannot tell. So ``n`` of the ``Q`` queries are
judged in full, and each has its measure ``h`` by people. The measure ``c`` by citations (and by a model) is known for
all queries. The estimate is ``mean_n(h - w (c - mean_Q(c)))``, with the weight ``w`` from 0 to 1 that has the least
variance among the *other* judged queries, so it is unbiased whatever citations are worth (PPI++ with the query as
unit). Its variance is that of two-phase sampling, of the draw and of queries: ``(1/n - 1/Q) var(h - w c) + var(h) /
Q``. Intervals are Student's; those of a system's mean on the scale of log odds, which fits a skewed mean between 0 and
1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Owners, pack
from pipeline.core.errors import InputError
from pipeline.core.rng import generator, priorities
from pipeline.measure.measures import Measure
from pipeline.measure.resampling import Floats

Ints = npt.NDArray[np.int64]


BANDS = (1, 2, 6, 11, 21, 51, 101)
"""First rank of each band of ranks; unretrieved papers are a band of their own."""

FEWEST = 15
"""Judged queries below which nothing is concluded: estimates have no interval."""

ENOUGH = 40
"""Judged queries from which intervals of a system's mean hold as they say (docs/judging.md)."""

_LINEAR = ("precision", "dcg", "judged")
_PSEUDO_LABELS = 2.0
"""Weight of the mean of all labels in the prediction of a stratum."""
_STRATA = 4
"""Strata of queries, equal parts by the citations' MAP."""
_TARGET = 0.02
"""Half-width of an interval for which the labels are counted before labelling."""


class Sample(NamedTuple):
    """The pairs of a pool that could be judged, with the labels there are.

    Attributes:
        queries: number of queries.
        query: query of each pair, int64 ``[pairs]``.
        stratum: stratum of each pair, int64 ``[pairs]``.
        probability: probability that the pair is labelled, float64 ``[pairs]``, above 0 for labelled pairs.
        relevance: share of the annotators whose grade is at least 1, 2, ...: float64 ``[grades, pairs]``; NaN: none.
        machine: the same by a model, or NaN. Pairs with such labels may not depend on which pairs were drawn.
    """

    queries: int
    query: Ints
    stratum: Ints
    probability: Floats
    relevance: Floats
    machine: Floats

    def sums(self, values: Floats) -> Floats:
        """Return the sums of values of pairs by query, float64 ``[queries]``."""
        return np.bincount(self.query, values, self.queries).astype(np.float64)


class Estimate(NamedTuple):
    """An estimated mean with its standard error and 95% interval; NaN: too few queries to conclude."""

    value: float
    error: float
    low: float
    high: float


def stratify(ranks: Ints, cited: npt.NDArray[np.bool_], depth: int) -> npt.NDArray[np.int64]:
    """Return the strata of pairs as int64 ``[3, pairs]``: whether cited, band of the best rank, and system.

    The system is the one that ranks the paper best, or the number of systems where all have it within ``depth``.

    Args:
        ranks: ranks by the systems, int64 ``[systems, pairs]``; 0: not retrieved.
        cited: whether the query cites the paper, bool ``[pairs]``.
        depth: ranks of each system in the universe.
    """
    known = np.where(ranks > 0, ranks, np.iinfo(np.int64).max)
    band = np.searchsorted(BANDS, known.min(axis=0), "right") - 1
    band[known.min(axis=0) == np.iinfo(np.int64).max] = len(BANDS)
    return np.stack([cited, band, np.where((known <= depth).all(axis=0), len(ranks), known.argmin(axis=0))])


def inclusion(strata: Ints, pairs: int) -> Floats:
    """Return the probability of each pair, so that ``pairs`` are drawn on average, float64 ``[universe]``.

    Strata get pairs by the square root of their size (power allocation, Bankier 1988), at most all they have.
    """
    _, stratum, sizes = np.unique(strata, axis=1, return_inverse=True, return_counts=True)
    low, high = 0.0, float(np.sqrt(sizes.max()))
    for _ in range(60):
        middle = (low + high) / 2
        expected = (sizes * np.minimum(1, middle / np.sqrt(sizes))).sum()
        low, high = (middle, high) if expected < pairs else (low, middle)
    return np.asarray(np.minimum(1, high / np.sqrt(sizes))[stratum.ravel()])


def random_numbers(query: Owners, row: Owners, seed: int, purpose: str = "judge") -> Floats:
    """Return the permanent random number of each pair, float64 ``[pairs]`` from 0 to below 1.

    Args:
        query: row of the query's paper or text in the corpus.
        row: row of the paper.
        seed: the user's seed.
        purpose: numbers of other purposes are independent.
    """
    return np.asarray((priorities(pack(query, row), seed, purpose) >> np.uint64(11)) * 2.0**-53)


def draw_queries(precision: Floats, rows: Owners, count: int, seed: int) -> npt.NDArray[np.bool_]:
    """Return which queries are drawn, bool ``[queries]``: at random, equal parts of each stratum of ``precision``.

    A larger draw contains the smaller one.

    Args:
        precision: average precision by citations, float64 ``[queries]``.
        rows: row of each query's paper or text in the corpus.
        count: number of queries drawn.
        seed: the user's seed.
    """
    number, queries = random_numbers(rows, rows, seed, "queries"), len(rows)
    stratum = np.empty(queries, np.int64)
    stratum[np.lexsort((number, precision))] = np.arange(queries) * _STRATA // queries
    order, sizes = np.lexsort((number, stratum)), np.bincount(stratum, minlength=_STRATA)
    place = np.empty(queries, np.int64)
    place[order] = np.arange(queries) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    start = generator(seed, "strata of queries").permutation(_STRATA) / _STRATA
    drawn = np.zeros(queries, bool)
    drawn[np.lexsort((number, (place + start[stratum]) / sizes[stratum]))[:count]] = True
    return drawn


def check_measures(measures: Sequence[Measure], design: str) -> None:
    """Raise InputError unless a design can give all measures."""
    for measure in measures:
        linear = measure.name in _LINEAR and measure.cutoff and not measure.share
        if design == "pairs" and not linear:
            raise InputError(
                f"{measure} cannot be estimated from single pairs: it divides by the relevant papers of a query, most "
                "of which have no label",
                "Ask for precision@k, dcg@k or judged@k, or judge whole queries: mdcr judge draw --design=queries",
            )
        if design == "queries" and measure.name == "dcg":
            raise InputError(f"{measure} is no fraction, for which this design has no interval", "Ask for ndcg")


def by_pairs(sample: Sample, ranks: Ints, measures: Sequence[Measure]) -> Floats:
    """Return the estimated measures of systems for queries, float64 ``[systems, measures, queries]``.

    Values of a query are not confined to 0 to 1; means over queries are what counts.

    Args:
        sample: pairs with labels.
        ranks: ranks of the pairs, int64 ``[systems, pairs]``; 0: not retrieved.
        measures: measures that are linear in the labels (:func:`check_measures`).

    Raises:
        InputError: the design cannot give a measure, or no pair has a label.
    """
    check_measures(measures, "pairs")
    labelled, grades = ~np.isnan(sample.relevance[0]), len(sample.relevance)
    if not labelled.any():
        raise InputError("no pair has a label of a person", "Fill in the column label of people.csv, and read it")
    chance = np.where(labelled, sample.probability, 1.0)
    predictions = [_predicted(sample, grade) for grade in range(grades)]
    relevance = [
        p + np.where(labelled, y - p, 0.0) / chance for p, y in zip(predictions, sample.relevance, strict=True)
    ]
    values = np.empty((len(ranks), len(measures), sample.queries))
    for number, measure in enumerate(measures):
        if measure.relevant > grades:
            raise InputError(f"{measure} must be of a grade that labels have, got up to {grades}", "Lower rel=")
        for system, ranked in enumerate(ranks):
            weight = weights_of(measure, ranked)
            if measure.name == "judged":
                values[system, number] = sample.sums(weight * labelled)
            elif measure.name == "precision":
                values[system, number] = sample.sums(weight * relevance[measure.relevant - 1])
            else:
                values[system, number] = sample.sums(weight * _grade(relevance, measure.relevant))
    return values


def _grade(relevance: Sequence[Floats], least: int) -> Floats:
    """Return the grade of pairs from the relevance at each grade; grades below ``least`` count as 0."""
    return np.asarray(least * relevance[least - 1] + np.sum(relevance[least:], axis=0))


def weights_of(measure: Measure, ranks: Ints) -> Floats:
    """Return what the relevance of each pair adds to a linear measure of its query, float64 ``[pairs]``."""
    inside = (ranks > 0) & (ranks <= (measure.cutoff or 0))
    if measure.name == "dcg":
        return np.where(inside, 1 / np.log2(np.where(inside, ranks, 1) + 1.0), 0.0)
    return inside / float(measure.cutoff or 1)


def mean_of_pairs(values: Floats, *, most: float = 1.0, difference: bool = False) -> Estimate:
    """Return the mean of estimated values (:func:`by_pairs`), or of their differences, float64 ``[queries]``.

    Few labelled pairs stand for many, so values have long tails: Student's t has the degrees of freedom of their
    variance, given their kurtosis. ``most`` is the greatest value that the measure can have.
    """
    queries, deviation = len(values), float(values.std(ddof=1))
    if not deviation:
        return Estimate(float(values.mean()), np.nan, np.nan, np.nan)
    kurtosis = float((((values - values.mean()) / deviation) ** 4).mean())
    freedom = 2 / (2 / (queries - 1) + max(kurtosis - 3, 0.0) / queries)
    return _estimate(float(values.mean()), deviation / queries**0.5, freedom, most, difference=difference)


def greatest(measure: Measure, grades: int) -> float:
    """Return the greatest value of a measure by labels up to a grade."""
    if measure.name != "dcg":
        return 1.0
    return float(grades * (1 / np.log2(np.arange(2, (measure.cutoff or 1) + 2))).sum())


def by_queries(people: Floats, predictors: Floats, *, difference: bool = False) -> Estimate:
    """Return the mean over all queries of a measure that only some have, or of the difference of two systems.

    Args:
        people: the measure by people, float64 ``[queries]``, from 0 to 1 (differences from -1 to 1); NaN: not judged.
        predictors: the measure by citations, and by a model if there is one, float64 ``[predictors, queries]``.
        difference: whether the values are differences, whose interval is symmetric.

    Returns:
        The estimate, within the range of the measure. It has no interval if fewer than :data:`FEWEST` queries are
        judged, or all have the same value.
    """
    judged, queries = np.flatnonzero(~np.isnan(people)), len(people)
    values, count = people[judged], len(judged)
    known = (predictors - predictors.mean(axis=1, keepdims=True))[:, judged].T
    residuals = values if count == queries else values - (_weights(values, known) * known).sum(axis=1)
    value = float(residuals.mean())
    if count < FEWEST or not values.std():
        return Estimate(min(max(value, -1.0 if difference else 0.0), 1.0), np.nan, np.nan, np.nan)
    variance = (1 / count - 1 / queries) * residuals.var(ddof=1) + values.var(ddof=1) / queries
    return _estimate(value, float(np.sqrt(variance)), count - 1, difference=difference)


def _estimate(value: float, error: float, freedom: float, most: float = 1.0, *, difference: bool) -> Estimate:
    """Return an estimate with Student's interval, on the scale of log odds unless it is a difference."""
    from scipy.stats import t

    least, width = -most if difference else 0.0, float(t.ppf(0.975, freedom)) * error
    value = min(max(value, least), most)
    if difference:
        return Estimate(value, error, max(value - width, least), min(value + width, most))
    if not least < value < most:
        return Estimate(value, error, np.nan, np.nan)
    stretch = np.exp(min(width * most / (value * (most - value)), 50.0))
    low, high = (most / (1 + (most - value) / value * factor) for factor in (stretch, 1 / stretch))
    return Estimate(value, error, float(low), float(high))


def _weights(values: Floats, known: Floats) -> Floats:
    """Return the weights of the predictors for each query, fitted to the others, float64 ``[queries, predictors]``."""
    x, y, scale = known - known.mean(axis=0), values - values.mean(), len(values) / max(len(values) - 1, 1)
    products = x.T @ x - scale * x[:, :, None] * x[:, None, :]
    moments = y @ x - scale * y[:, None] * x
    weights: Floats = (np.linalg.pinv(products, rcond=1e-9, hermitian=True) @ moments[..., None])[..., 0]
    return weights.clip(0.0, 1.0)


class Price(NamedTuple):
    """What a design would give, before labelling: the half-width of an interval, and what 2 points need.

    Attributes:
        half_width: expected, as a fraction; NaN: fewer than :data:`FEWEST` queries.
        needed: pairs or queries for a half-width of 2 points; None: all are too few.
    """

    half_width: float
    needed: int | None


def price_of_queries(values: Floats, count: int) -> Price:
    """Return the price of judging ``count`` whole queries, if values by people spread as those by citations."""
    from scipy.stats import t

    deviation = float(values.std(ddof=1))
    needed = int(np.ceil((1.96 * deviation / _TARGET) ** 2))
    width = float(t.ppf(0.975, count - 1)) * deviation / np.sqrt(count) if count >= FEWEST else np.nan
    return Price(width, max(needed, FEWEST) if needed <= len(values) else None)


def price_of_pairs(values: Floats, sample: Sample, strata: Ints, weights: Floats, pairs: int) -> Price:
    """Return the price of judging ``pairs`` pairs, if papers are relevant as often as they are cited at their ranks.

    Args:
        values: the measure by citations, float64 ``[queries]``.
        sample: the universe, whose ``relevance`` is whether papers are cited.
        strata: strata of the pairs (:func:`stratify`).
        weights: what the relevance of each pair adds to the measure, float64 ``[pairs]``.
        pairs: expected number of labelled pairs.
    """
    _, place = np.unique(strata[1:], axis=1, return_inverse=True)
    share = (np.bincount(place.ravel(), sample.relevance[0]) / np.bincount(place.ravel()))[place.ravel()]
    spread = weights**2 * share * (1 - share) / len(values) ** 2

    def half_width(count: int) -> float:
        chance = inclusion(strata, count)
        return 1.96 * float(np.sqrt(values.var(ddof=1) / len(values) + (spread * (1 - chance) / chance).sum()))

    low, high = 1, len(weights)
    if half_width(high) > _TARGET:
        return Price(half_width(pairs), None)
    while high - low > max(low // 50, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(middle) <= _TARGET else (middle, high)
    return Price(half_width(pairs), high)


def _predicted(sample: Sample, grade: int) -> Floats:
    """Return the predictions of pairs, each fitted on the labels of other queries, float64 ``[pairs]``."""
    query, stratum, chance = sample.query, sample.stratum, sample.probability
    relevance, machine = sample.relevance[grade], sample.machine[grade]
    labelled, known, shape = ~np.isnan(relevance), ~np.isnan(machine), (sample.queries, int(stratum.max()) + 1)

    def others(values: Floats) -> Floats:
        """Return the sums of values over the queries but one, by stratum, float64 ``[queries, strata]``."""
        own = np.bincount(query * shape[1] + stratum, values, shape[0] * shape[1]).reshape(shape)
        return np.asarray(own.sum(axis=0) - own)

    weight = np.divide(1.0, chance, out=np.zeros_like(chance), where=labelled)
    labels = np.where(labelled, relevance, 0.0)
    weights, weighted, count = others(weight), others(weight * labels), np.round(others(labelled.astype(np.float64)))
    overall = _over(weighted.sum(axis=1), weights.sum(axis=1))[:, None]
    mean = np.where(count > 0, _over(weighted, weights), 0.0)
    mean = (count * mean + _PSEUDO_LABELS * overall) / (count + _PSEUDO_LABELS)
    prediction = mean[query, stratum]
    if known.any():
        by_model = np.where(known, machine, 0.0)
        sums, sizes = (np.bincount(stratum, of).astype(np.float64) for of in (by_model, known))
        centred = np.where(known, by_model - _over(sums, sizes)[stratum], 0.0)
        importance = (1 - chance) * weight**2 * centred  # the weights that minimise the variance of sums of p + e
        residual = others(importance * labels) - mean * others(importance)
        tuned = _over(residual.sum(axis=1), others(importance * centred).sum(axis=1))
        prediction = prediction + tuned[query] * centred
    return np.asarray(np.clip(prediction, 0.0, 1.0))


def _over(numerator: Floats, denominator: Floats) -> Floats:
    """Return ratios, 0 where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 1e-12)
