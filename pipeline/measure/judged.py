"""Measures under judged relevance, from labels of a random part of the pairs of query and paper.

The universe of pairs is the first ranks of every system and all cited papers; papers outside count as not relevant.
Pair ``i`` is drawn with a known probability ``pi_i``, independently of all others (Poisson sampling), if its permanent
random number is below it (Ohlsson 1995). A larger draw therefore contains the smaller one.

Let ``y`` be the relevance of a pair (share of its annotators), ``p`` a prediction of it, and ``e = (y - p) / pi`` for
labelled pairs, 0 for the others. Predictions are Hajek means of the labels of a stratum; labels of a model, where there
are any, move them by a tuned weight (PPI++, Angelopoulos et al. 2023). Those of a query are fitted without its own
labels, so that they are constants for its draw: whatever the model is worth, sums of ``p + e`` are unbiased.

| measure | of the relevance of pairs | estimator |
|---|---|---|
| precision@k | linear | unbiased |
| recall@k | ratio of two sums of a query | unbiased sums; ratio linearised |
| MAP | quadratic, over a sum | unbiased numerator, by products of ``e``; ratio linearised |
| nDCG | linear, over a concave function of sums | unbiased sums; ideal and ratio linearised |

With few labels a query's own sum is too noisy to divide by. The ratio is linearised at a sum that is shrunk towards the
prediction by its reliability (as in small-area estimation, Fay & Herriot 1979), and its second-order bias is
subtracted. At a draw of everything all estimates equal the measures.

Values of queries are not confined to 0 to 1. Queries are drawn independently, so the variance between values of queries
contains that of queries and that of draws: the usual intervals over queries hold for both together. Queries share
predictions and the shrinkage, so ratios are pseudo-values of a jackknife over queries (Tukey 1958).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Owners, pack
from pipeline.core.errors import InputError
from pipeline.core.rng import priorities
from pipeline.measure.measures import Measure
from pipeline.measure.resampling import Floats

Ints = npt.NDArray[np.int64]

BANDS = (1, 2, 6, 11, 21, 51, 101)
"""First rank of each band of ranks; unretrieved papers are a band of their own."""

SUPPORTED = ("precision", "recall", "map", "ndcg")

_PSEUDO_LABELS = 2.0
"""Weight of the mean of all labels in the prediction of a stratum."""

_GROUPS = 100
"""Most groups of queries of which a jackknife leaves out one; up to 100 queries with labels are left out one by one."""

_SMALLEST = 0.1
"""Least number of relevant papers of a query, as a share of the predicted one."""


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

    def of_pairs(self, chosen: npt.NDArray[np.bool_]) -> Sample:
        """Return the sample with a part of its pairs; queries keep their numbers."""
        query, stratum, probability = self.query[chosen], self.stratum[chosen], self.probability[chosen]
        return Sample(self.queries, query, stratum, probability, self.relevance[:, chosen], self.machine[:, chosen])


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


def judged_values(sample: Sample, ranks: Ints, measures: Sequence[Measure]) -> Floats:
    """Return the estimated measures of systems for queries, float64 ``[systems, measures, queries]``.

    NaN where all pairs of a query are labelled and none is relevant, except for precision. Ratios are pseudo-values:
    what a query's labels change in the values of the others, by their predictions, counts for the query.

    Args:
        sample: pairs with labels.
        ranks: ranks of the pairs, int64 ``[systems, pairs]``; 0: not retrieved.
        measures: measures of :data:`SUPPORTED`, precision with a cutoff.

    Raises:
        InputError: a measure is another, or no pair has a label.
    """
    check_measures(measures)
    labelled = ~np.isnan(sample.relevance).all(axis=0)
    if not labelled.any():
        raise InputError("no pair has a label of a person", "Fill in the column label of people.csv, and read it")
    values = _values(sample, ranks, measures)
    ratios = [number for number, measure in enumerate(measures) if measure.name != "precision"]
    queries = np.unique(sample.query[labelled])
    if labelled.all() or len(queries) < 2 or not ratios:
        return values
    pseudo = values.copy()
    for group in np.array_split(queries, min(len(queries), _GROUPS)):
        others = ~np.isin(sample.query, group)
        without = _values(sample.of_pairs(others), ranks[:, others], [measures[number] for number in ratios])
        changes = values[:, ratios] - without
        changes[:, :, group] = 0
        pseudo[:, ratios, group[0]] += np.nansum(changes, axis=2)  # by one query, which keeps the variance of the mean
    return pseudo


def _values(sample: Sample, ranks: Ints, measures: Sequence[Measure]) -> Floats:
    """Return what each query's own pairs say of the measures, ``[systems, measures, queries]``."""
    relevant = [_Relevance(sample, grade) for grade in range(1, len(sample.relevance) + 1)]
    values = np.full((len(ranks), len(measures), sample.queries), np.nan)
    for number, measure in enumerate(measures):
        chosen = relevant[measure.relevant - 1 :]
        if not chosen:
            grades = len(sample.relevance)
            raise InputError(f"{measure} must be of a grade that labels have, got up to {grades}", "Lower rel=")
        for system, ranked in enumerate(ranks):
            inside = (ranked > 0) & (ranked <= (measure.cutoff or ranked))
            with np.errstate(divide="ignore", invalid="ignore"):  # a query without pairs has no value
                values[system, number] = _value(chosen, measure, np.where(inside, ranked, np.inf))
    return values


def check_measures(measures: Sequence[Measure]) -> None:
    """Raise InputError unless all measures can be estimated from a part of the labels."""
    for measure in measures:
        if measure.name not in SUPPORTED or measure.share or (measure.name == "precision" and not measure.cutoff):
            raise InputError(
                f"{measure} cannot be estimated from a draw of judgements",
                "Ask for precision@k, recall@k, map or ndcg, such as --measures=precision@10,ndcg@10",
            )


class _Relevance:
    """Relevance at a grade: predictions and errors of pairs, and numbers of relevant papers of queries.

    Attributes:
        prediction: ``p``, float64 ``[pairs]``.
        error: ``e``, float64 ``[pairs]``.
        anchor: the prediction, moved on the scale of odds to the shrunk number of relevant papers.
        variance: variance of ``e`` by the prediction, float64 ``[pairs]``.
        count: unbiased number of relevant papers, float64 ``[queries]``.
        shrunk: the number at which ratios are linearised.
        reliability: weight of the query's own labels in it.
    """

    def __init__(self, sample: Sample, grade: int) -> None:
        self.sample, self.grade = sample, grade
        relevance, probability = sample.relevance[grade - 1], sample.probability
        labelled = ~np.isnan(relevance)
        chance = np.where(labelled, probability, 1.0)
        self.prediction = p = _predicted(sample, grade - 1)
        residual = np.where(labelled, relevance - p, 0.0)
        self.error = residual / chance
        self.variance = _over((1 - probability) * p * (1 - p), probability)
        predicted, pairs = self.sums(p), self.sums(np.ones_like(p))
        correction, noise = self.sums(self.error), self.sums((1 - chance) / chance**2 * residual**2)
        squares = float((predicted**2).sum())
        between = max(float((correction**2 - noise).sum()), 0.0) / squares * predicted**2 if squares else predicted
        unknown = self.sums(self.variance)
        total = between + unknown
        self.reliability = np.divide(between, total, out=np.ones_like(total), where=unknown > 0)
        self.count = predicted + correction
        least = np.maximum(self.sums(np.where(labelled, relevance, 0.0)), _SMALLEST * predicted)
        shrunk = np.maximum(predicted + self.reliability * correction, least)
        self.shrunk = np.where(unknown > 0, shrunk, self.count)
        odds = (self.shrunk + 0.5) / (pairs - self.shrunk + 0.5) * (pairs - predicted + 0.5) / (predicted + 0.5)
        moved = odds[sample.query] * p
        self.anchor = moved / (1 - p + moved)
        self.none = (unknown == 0) & (self.count < 1e-9)

    def sums(self, values: Floats) -> Floats:
        """Return the sums of values of pairs by query, float64 ``[queries]``."""
        return np.bincount(self.sample.query, values, self.sample.queries).astype(np.float64)


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


def _value(relevant: Sequence[_Relevance], measure: Measure, rank: Floats) -> Floats:
    """Return the estimate of one measure of one system, float64 ``[queries]``; ``rank`` is inf beyond the cutoff."""
    first, inside = relevant[0], np.isfinite(rank).astype(np.float64)
    if measure.name == "precision":
        return first.sums((first.prediction + first.error) * inside) / float(measure.cutoff or 1)
    if measure.name == "map":
        hits, at_anchor, slope = _precisions(first, 1 / rank, np.lexsort((rank, first.sample.query)))
        return _ratio([(first, 1.0, slope)], hits, at_anchor, lambda count: count)
    if measure.name == "recall":
        parts, size = [(first, 1.0, inside)], lambda count: count
    else:
        gains = [2.0**of.grade - 1 if measure.gains else float(of.grade) for of in relevant]
        rises = np.diff([0.0, *gains]).tolist()
        parts = [(of, rise, inside / np.log2(rank + 1)) for of, rise in zip(relevant, rises, strict=True)]
        size = _ideal(int(np.bincount(first.sample.query).max(initial=0)), measure.cutoff)
    by_grade = [rise * of.sums((of.prediction + of.error) * slope) for of, rise, slope in parts]
    anchors = [rise * of.sums(of.anchor * slope) for of, rise, slope in parts]
    return _ratio(parts, np.sum(by_grade, axis=0), np.sum(anchors, axis=0), size)


_Part = tuple[_Relevance, float, Floats]
"""The relevance at one grade in a ratio, the gain of the grade less that of the one below, and the derivative of the
numerator by the relevance of a pair, without this gain, float64 ``[pairs]``."""


def _ratio(parts: Sequence[_Part], hits: Floats, at_anchor: Floats, size: Callable[[Floats], Floats]) -> Floats:
    """Return a ratio of queries, linearised, float64 ``[queries]``; NaN where all is known and nothing relevant.

    Args:
        parts: the relevance of pairs by grade, of which numerator and denominator are made.
        hits: unbiased numerator.
        at_anchor: numerator at the anchor.
        size: denominator as a function of the number of relevant papers; those of grades are added.
    """
    query = parts[0][0].sample.query
    start = at_anchor / np.sum([rise * size(of.sums(of.anchor)) for of, rise, _ in parts], axis=0)
    at_shrunk, total, shared, spread = np.zeros((4, len(start)))
    for of, rise, numerator in parts:
        low, high = np.maximum(of.shrunk - 0.5, 0), of.shrunk + 0.5
        slope = rise * (size(high) - size(low)) / (high - low)
        at_shrunk += rise * size(of.shrunk)
        total += rise * size(of.shrunk) + slope * (of.count - of.shrunk)
        shared += slope * of.reliability * of.sums((rise * numerator - (start * slope)[query]) * of.variance)
        spread += (slope * of.reliability) ** 2 * of.sums(of.variance)
    # The mean of 1 / at_shrunk**2 is larger than at its mean by about 3 times the relative variance.
    value = start + (hits - start * total) / at_shrunk + shared / (at_shrunk**2 + 3 * spread)
    return np.where(parts[0][0].none, np.nan, value)


def _precisions(relevant: _Relevance, inverse: Floats, order: Ints) -> tuple[Floats, Floats, Floats]:
    """Return sums of the precision at relevant papers, unbiased and at the anchor, and the slope there by pair.

    Args:
        relevant: the relevance of pairs.
        inverse: one over the rank, float64 ``[pairs]``; 0 if not retrieved.
        order: positions of the pairs by query, then rank.
    """
    query = relevant.sample.query

    def above(values: Floats) -> Floats:
        """Return the sum of values over pairs that are ranked above each pair of the same query."""
        ordered, queries = values[order], query[order]
        before, sums = np.cumsum(ordered) - ordered, np.empty_like(values)
        sums[order] = before - before[np.searchsorted(queries, queries)]
        return sums

    def slope_at(p: Floats) -> Floats:
        weighted = p * inverse
        return np.asarray(inverse * (1 + above(p)) + relevant.sums(weighted)[query] - above(weighted) - weighted)

    p, error, anchor = relevant.prediction, relevant.error, relevant.anchor
    by_pair = p * inverse * (1 + above(p)) + slope_at(p) * error + error * inverse * above(error)
    return relevant.sums(by_pair), relevant.sums(anchor * inverse * (1 + above(anchor))), slope_at(anchor)


def _ideal(pairs: int, cutoff: int | None) -> Callable[[Floats], Floats]:
    """Return the discounted gain of the best order as a function of the number of relevant papers, interpolated."""
    discounts = 1 / np.log2(np.arange(1, pairs + 1) + 1)
    discounts[cutoff or pairs :] = 0
    gains = np.concatenate([[0.0], np.cumsum(discounts)])
    return lambda count: np.asarray(np.interp(count, np.arange(pairs + 1), gains))
