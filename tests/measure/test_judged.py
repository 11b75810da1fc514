"""Measures by judgements: equal to the engine where all is judged, unbiased where they claim it; intervals hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bench import judging
from pipeline.core.errors import InputError
from pipeline.core.schema import JUDGEMENTS
from pipeline.corpus.pools import table
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.judged import Sample, inclusion, judged_values, random_numbers, stratify
from pipeline.measure.measures import parse_measures
from tests.shared import real

QUERIES, PAIRS, GRADES = 12, 25, 3
ALL = "precision@5,recall@5,map,map@8,ndcg,ndcg@5,ndcg(gains=exp)@10,ndcg(rel=2)@5,recall(rel=2)@10,map(rel=3)"


@pytest.fixture
def judged() -> judging.Judged:
    """Random grades that fall with the rank; the second system lacks some papers."""
    random = np.random.default_rng(3)
    query = np.repeat(np.arange(QUERIES), PAIRS)
    ranks = np.stack([np.concatenate([random.permutation(PAIRS) + 1 for _ in range(QUERIES)]) for _ in range(2)])
    ranks[1, ranks[1] > 20] = 0
    grade = random.binomial(GRADES, 0.5 / np.sqrt(ranks[0]))
    grade[::PAIRS] = np.maximum(grade[::PAIRS], 3)
    return judging.Judged(query, grade, random.random(len(query)) < 0.2, ranks)


def sample(judged: judging.Judged, drawn: np.ndarray, probability: np.ndarray, machine: Any = np.nan) -> Sample:
    relevance = np.where(drawn, judging.shares(judged.grade), np.nan)
    stratum = np.unique(stratify(judged.ranks, judged.cited, 10), axis=1, return_inverse=True)[1].ravel()
    return Sample(QUERIES, judged.query, stratum, probability, relevance, np.broadcast_to(machine, relevance.shape))


def by_engine(judged: judging.Judged, measures: str) -> np.ndarray:
    rows = np.arange(len(judged.query)).astype(np.uint32)
    qrels = Qrels.from_table(table(JUDGEMENTS, judged.query, rows, judged.grade.astype(np.int16)), QUERIES)
    values = []
    for ranks in judged.ranks:
        order = np.lexsort((ranks, judged.query))
        order = order[ranks[order] > 0]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(judged.query[order], minlength=QUERIES))])
        values.append(evaluate_all(qrels, RankedRun(offsets, rows[order]), parse_measures(measures)))
    return np.array(values)


@pytest.mark.parametrize("with_model", [False, True])
def test_where_all_is_judged_the_measures_are_those_of_the_engine(judged: judging.Judged, with_model: bool) -> None:
    machine = judging.shares(np.random.default_rng(1).integers(0, 4, len(judged.query))) if with_model else np.nan
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)), machine)
    values = judged_values(everything, judged.ranks, parse_measures(ALL))
    np.testing.assert_allclose(values, by_engine(judged, ALL), atol=1e-12)


def test_a_query_without_relevant_papers_has_no_value_where_that_is_known(judged: judging.Judged) -> None:
    judged.grade[:PAIRS] = 0
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)))
    values = judged_values(everything, judged.ranks, parse_measures("recall@5,map,ndcg@5,precision@5"))
    assert np.isnan(values[:, :3, 0]).all()
    assert (values[:, 3, 0] == 0).all()
    np.testing.assert_allclose(values[:, :3], by_engine(judged, "recall@5,map,ndcg@5"), atol=1e-12)


def predicted(of: Sample) -> np.ndarray:
    """Predictions for grade 1, pair by pair, from the labels of other queries."""
    labels, chance, model = of.relevance[0], of.probability, of.machine[0]
    stratum_means = {h: np.nanmean(model[of.stratum == h]) for h in {*of.stratum.tolist()}}
    predictions = []
    for query in range(QUERIES):
        others = [i for i in range(len(labels)) if not np.isnan(labels[i]) and of.query[i] != query]
        overall = sum(labels[i] / chance[i] for i in others) / sum(1 / chance[i] for i in others)
        means = {}
        for h in stratum_means:
            mine = [i for i in others if of.stratum[i] == h]
            hajek = sum(labels[i] / chance[i] for i in mine) / sum(1 / chance[i] for i in mine) if mine else 0
            means[h] = (len(mine) * hajek + 2 * overall) / (len(mine) + 2)
        centred = [model[i] - stratum_means[of.stratum[i]] for i in range(len(labels))]
        weights = {i: (1 - chance[i]) / chance[i] ** 2 for i in others}
        products = sum(weights[i] * centred[i] * (labels[i] - means[of.stratum[i]]) for i in others)
        tuned = products / sum(weights[i] * centred[i] ** 2 for i in others)
        pairs = np.flatnonzero(of.query == query)
        predictions += [min(max(means[of.stratum[i]] + tuned * centred[i], 0.0), 1.0) for i in pairs]
    return np.array(predictions)


def plain_values(of: Sample, rank: np.ndarray) -> np.ndarray:
    """Precision@5, recall@5 and MAP of each query by its own pairs, pair by pair; NaN for a query without pairs."""
    p, labels = predicted(of), of.relevance[0]
    e = np.where(np.isnan(labels), 0, (labels - p) / of.probability)
    by_query = [np.flatnonzero(of.query == query) for query in range(QUERIES)]
    # Shrinkage: variance between queries against that of their own sums.
    sums = np.array([[p[i].sum(), e[i].sum()] for i in by_query])
    missing = (1 - of.probability) / of.probability
    noise = [np.nansum(missing[i] / of.probability[i] * (labels[i] - p[i]) ** 2) for i in by_query]
    between = max(sum(b**2 - v for (_, b), v in zip(sums, noise, strict=True)), 0) / (sums[:, 0] ** 2).sum()
    expected = np.full((3, QUERIES), np.nan)
    for query, pairs in enumerate(by_query):
        if not len(pairs):
            continue
        total, correction = sums[query]
        own = between * total**2
        weight = own / (own + (missing[pairs] * p[pairs] * (1 - p[pairs])).sum())
        shrunk = max(total + weight * correction, np.nansum(labels[pairs]), 0.1 * total)
        factor = (shrunk + 0.5) * (PAIRS - total + 0.5) / ((PAIRS - shrunk + 0.5) * (total + 0.5))
        anchor = {i: factor * p[i] / (1 - p[i] + factor * p[i]) for i in pairs}
        at_anchor = sum(anchor.values())
        spread = weight**2 * sum(missing[i] * p[i] * (1 - p[i]) for i in pairs)

        def ratio(hits: float, hits_at_anchor: float, slope: dict[int, float]) -> float:
            start = hits_at_anchor / at_anchor  # noqa: B023
            shared = weight * sum((slope[i] - start) * missing[i] * p[i] * (1 - p[i]) for i in slope)  # noqa: B023
            value = start + (hits - start * (total + correction)) / shrunk  # noqa: B023
            return float(value + shared / (shrunk**2 + 3 * spread))  # noqa: B023

        top = [i for i in pairs if rank[i] <= 5]
        expected[0, query] = sum(p[i] + e[i] for i in top) / 5
        inside = {i: float(rank[i] <= 5) for i in pairs}
        expected[1, query] = ratio(sum(p[i] + e[i] for i in top), sum(anchor[i] for i in top), inside)
        above = {i: [j for j in pairs if rank[j] < rank[i]] for i in pairs}
        below = {i: [j for j in pairs if rank[j] > rank[i]] for i in pairs}
        hits = sum(
            (p[i] + e[i]) / rank[i] + sum((p[i] + e[i]) * (p[j] + e[j]) for j in above[i]) / rank[i] for i in pairs
        )
        hits_at_anchor = sum(anchor[i] * (1 + sum(anchor[j] for j in above[i])) / rank[i] for i in pairs)
        slope = {
            i: (1 + sum(anchor[j] for j in above[i])) / rank[i] + sum(anchor[j] / rank[j] for j in below[i])
            for i in pairs
        }
        expected[2, query] = ratio(hits, hits_at_anchor, slope)
    return expected


def test_an_independent_implementation_agrees(judged: judging.Judged) -> None:
    random = np.random.default_rng(8)
    probability = inclusion(stratify(judged.ranks, judged.cited, 10), 120)
    machine = judging.shares(np.where(random.random(len(judged.query)) < 0.3, 0, judged.grade))
    of = sample(judged, random.random(len(probability)) < probability, probability, machine)
    values, rank = plain_values(of, judged.ranks[0]), judged.ranks[0]
    expected = values.copy()
    for query in range(QUERIES):  # ratios are pseudo-values of a jackknife over queries
        others = of.query != query
        changes = values - plain_values(of.of_pairs(others), rank[others])
        expected[1:, query] += np.nansum(changes[1:], axis=1)
    found = judged_values(of, judged.ranks, parse_measures("precision@5,recall@5,map"))
    np.testing.assert_allclose(found[0], expected, atol=1e-10)


def test_precision_is_unbiased_whatever_the_model_says(judged: judging.Judged) -> None:
    random, probability = np.random.default_rng(2), inclusion(stratify(judged.ranks, judged.cited, 10), 60)
    wrong = judging.shares(GRADES - judged.grade)
    wrong[:, judged.ranks[0] > 15] = np.nan
    draws = []
    for _ in range(600):
        of = sample(judged, random.random(len(probability)) < probability, probability, wrong)
        draws.append(judged_values(of, judged.ranks, parse_measures("precision@5"))[:, 0].mean(axis=1))
    truth = by_engine(judged, "precision@5")[:, 0].mean(axis=1)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - truth) < 3.5 * error).all()


def test_larger_draws_contain_smaller_ones_and_have_their_size(judged: judging.Judged) -> None:
    strata, row = stratify(judged.ranks, judged.cited, 10), np.arange(len(judged.query))
    numbers = random_numbers(judged.query, row, 5)
    assert len(np.unique(numbers)) == len(numbers)
    smaller = np.full(len(row), False)
    for pairs in (10, 50, 200, 300):
        probability = inclusion(strata, pairs)
        assert probability.sum() == pytest.approx(pairs)
        drawn = numbers < probability
        assert not (smaller & ~drawn).any()
        smaller = drawn
    assert smaller.all()
    assert (inclusion(strata, 10**6) == 1).all()
    assert not np.array_equal(numbers, random_numbers(judged.query, row, 6))


def test_strata_are_of_citation_band_and_system() -> None:
    ranks = np.array([[1, 3, 0, 30, 8], [2, 0, 0, 7, 9]])
    strata = stratify(ranks, np.array([True, False, True, False, False]), 10)
    assert strata.tolist() == [[1, 0, 1, 0, 0], [0, 1, 7, 2, 2], [2, 0, 0, 1, 2]]


@pytest.mark.parametrize("name", ["mrr", "precision", "ndcg%20", "f1@5"])
def test_other_measures_are_refused(judged: judging.Judged, name: str) -> None:
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)))
    with pytest.raises(InputError, match="cannot be estimated from a draw of judgements"):
        judged_values(everything, judged.ranks, parse_measures(name))


def test_no_labels_and_grades_that_none_has_are_refused(judged: judging.Judged) -> None:
    nothing = sample(judged, np.full(len(judged.query), False), np.ones(len(judged.query)))
    with pytest.raises(InputError, match="no pair has a label of a person"):
        judged_values(nothing, judged.ranks, parse_measures("map"))
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)))
    with pytest.raises(InputError, match="grade that labels have, got up to 3"):
        judged_values(everything, judged.ranks, parse_measures("map(rel=4)"))


@pytest.mark.realdata
def test_intervals_hold_the_truth_of_csfcube() -> None:
    population, runs, queries = judging.read(real("csfcube")), 40, 16
    held, bias = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for model in (False, True):
        for measure, what, (error, low, high) in judging.simulate(population, 0.1, runs, model=model, size=queries):
            held[measure, what] = held.get((measure, what), 0) + float(((low <= 0) & (high >= 0)).mean()) / 2
            bias[measure, what] = max(bias.get((measure, what), 0), abs(float(error.mean())))
    # 80 runs of coverage 95% are below 86% once in a thousand.
    assert all(held[key] >= 0.86 for key in itertools.product(["precision@20", "recall@20"], ["specter", "difference"]))
    assert max(bias.values()) < 0.05
