"""Measures by judgements: equal to the engine where all is judged, unbiased where not; intervals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import judging
from pipeline.core.errors import InputError
from pipeline.core.schema import JUDGEMENTS
from pipeline.corpus.pools import table
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.judged import (
    FEWEST,
    Sample,
    by_pairs,
    by_queries,
    check_measures,
    draw_queries,
    inclusion,
    price_of_pairs,
    price_of_queries,
    random_numbers,
    stratify,
    weights_of,
)
from pipeline.measure.measures import parse_measures
from tests.shared import real

QUERIES, PAIRS, GRADES = 12, 25, 3
LINEAR = "precision@5,dcg@5,dcg(rel=2)@5,judged@10,precision(rel=2)@5"


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


def shares(grade: Any) -> Any:
    """Return whether grades are at least 1, 2, ...: float64 ``[grades, pairs]``."""
    return (grade >= np.arange(1, GRADES + 1)[:, None]).astype(np.float64)


def sample(judged: judging.Judged, drawn: np.ndarray, probability: np.ndarray, machine: Any = np.nan) -> Sample:
    relevance = np.where(drawn, shares(judged.grade), np.nan)
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
    machine = shares(np.random.default_rng(1).integers(0, 4, len(judged.query))) if with_model else np.nan
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)), machine)
    values = by_pairs(everything, judged.ranks, parse_measures(LINEAR))
    np.testing.assert_allclose(values, np.nan_to_num(by_engine(judged, LINEAR)), atol=1e-12)


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


def test_an_independent_implementation_agrees(judged: judging.Judged) -> None:
    random = np.random.default_rng(8)
    probability = inclusion(stratify(judged.ranks, judged.cited, 10), 120)
    machine = shares(np.where(random.random(len(judged.query)) < 0.3, 0, judged.grade))
    of = sample(judged, random.random(len(probability)) < probability, probability, machine)
    p, labels = predicted(of), of.relevance[0]
    whole = p + np.where(np.isnan(labels), 0, (labels - p) / of.probability)
    expected = [whole[(of.query == query) & (judged.ranks[0] <= 5)].sum() / 5 for query in range(QUERIES)]
    np.testing.assert_allclose(by_pairs(of, judged.ranks, parse_measures("precision@5"))[0, 0], expected, atol=1e-10)


def test_precision_is_unbiased_whatever_the_model_says(judged: judging.Judged) -> None:
    random, probability = np.random.default_rng(2), inclusion(stratify(judged.ranks, judged.cited, 10), 60)
    wrong = shares(GRADES - judged.grade)
    wrong[:, judged.ranks[0] > 15] = np.nan
    draws = []
    for _ in range(600):
        of = sample(judged, random.random(len(probability)) < probability, probability, wrong)
        draws.append(by_pairs(of, judged.ranks, parse_measures("precision@5"))[:, 0].mean(axis=1))
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


@pytest.mark.parametrize(
    ("design", "name", "why"),
    [
        ("pairs", "map", "divides by the relevant papers of a query"),
        ("pairs", "recall@20", "divides by the relevant papers"),
        ("pairs", "precision", "cannot be estimated from single pairs"),
        ("queries", "dcg@10", "is no fraction"),
    ],
)
def test_a_measure_that_a_design_cannot_give_is_refused_with_the_reason(design: str, name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_measures(parse_measures(name), design)


def test_no_labels_and_grades_that_none_has_are_refused(judged: judging.Judged) -> None:
    nothing = sample(judged, np.full(len(judged.query), False), np.ones(len(judged.query)))
    with pytest.raises(InputError, match="no pair has a label of a person"):
        by_pairs(nothing, judged.ranks, parse_measures("precision@5"))
    everything = sample(judged, np.full(len(judged.query), True), np.ones(len(judged.query)))
    with pytest.raises(InputError, match="grade that labels have, got up to 3"):
        by_pairs(everything, judged.ranks, parse_measures("precision(rel=4)@5"))


def test_queries_are_drawn_evenly_and_larger_draws_contain_smaller_ones() -> None:
    precision, rows = np.random.default_rng(0).random(80), np.arange(80) + 1000
    smaller, strata = np.zeros(80, bool), np.argsort(np.argsort(precision)) * 4 // 80
    for count in (4, 20, 44, 80):
        drawn = draw_queries(precision, rows, count, 7)
        assert drawn.sum() == count
        assert not (smaller & ~drawn).any()
        assert np.bincount(strata[drawn], minlength=4).tolist() == [count // 4] * 4
        smaller = drawn
    often = np.mean([draw_queries(precision, rows, 18, seed) for seed in range(2_000)], axis=0)
    assert np.abs(often - 18 / 80).max() < 4.5 * np.sqrt(18 / 80 * 62 / 80 / 2_000)


def test_whole_queries_give_the_mean_itself_when_all_are_judged_and_no_interval_when_few_are() -> None:
    random = np.random.default_rng(4)
    people, citations = random.random((2, 60))
    everything = by_queries(people, citations[None])
    assert everything.value == pytest.approx(people.mean())
    assert everything.error == pytest.approx(people.std(ddof=1) / np.sqrt(60))
    few = by_queries(np.where(np.arange(60) < FEWEST - 1, people, np.nan), citations[None])
    assert np.isnan([few.low, few.high]).all()
    assert 0 <= few.value <= 1


def test_the_weight_of_citations_is_fitted_to_the_other_queries() -> None:
    random = np.random.default_rng(5)
    citations = random.random((2, 40))
    people = np.clip(0.5 * citations[0] + 0.2 * random.random(40), 0, 1)
    drawn = np.where(np.arange(40) < 20, people, np.nan)
    residuals = []
    for query in range(20):
        others = [other for other in range(20) if other != query]
        x = citations[:, others].T - citations[:, others].mean(axis=1)
        weights = np.clip(np.linalg.lstsq(x, people[others] - people[others].mean(), rcond=None)[0], 0, 1)
        residuals.append(people[query] - (citations[:, query] - citations.mean(axis=1)) @ weights)
    assert by_queries(drawn, citations).value == pytest.approx(np.mean(residuals))


@pytest.mark.parametrize("design", ["pairs", "queries"])
def test_prices_before_labelling_are_the_widths_that_come_out(design: str) -> None:
    """Where people find relevant what is cited, at the rates of citation, the expected width is the one found."""
    population = judging.synthetic(informative=True, queries=300)
    cited = population.cited.astype(int)
    of = judging.Judged(population.query, cited, np.zeros_like(population.cited), population.ranks)
    values, widths, (precision, *_) = judging.measures_of(of, cited)[0, 0], [], parse_measures("precision@10")
    if design == "queries":
        expected = price_of_queries(values, 40).half_width
        for seed in range(60):
            drawn = draw_queries(np.zeros(300), np.arange(300), 40, seed)
            found = by_queries(np.where(drawn, values, np.nan), np.zeros((1, 300)))
            widths.append((found.high - found.low) / 2)
    else:
        strata, nothing = stratify(of.ranks, of.cited, 20), np.full((1, len(cited)), np.nan)
        universe = Sample(300, of.query, strata[1], np.ones(len(cited)), cited[None].astype(float), nothing)
        expected = price_of_pairs(values, universe, strata, weights_of(precision, of.ranks[0]), 600).half_width
        for seed in range(60):
            figures = {(measure, what): found for measure, what, found in judging.single_pairs(of, 600, seed)}
            found = figures["precision@10", "a system"]
            widths.append((found.high - found.low) / 2)
    assert np.mean(widths) == pytest.approx(expected, rel=0.2)


@pytest.mark.realdata
def test_intervals_hold_the_truth_of_csfcube() -> None:
    population, held, runs = judging.csfcube(real("csfcube")), [], 60
    for design, size in (("pairs", 600), ("queries", 20)):
        for _, _, (error, low, high) in judging.simulate(population, 50, design, size, runs):
            held.append(float(((low <= 0) & (high >= 0)).mean()))
            assert abs(float(error.mean())) < 4.5 * float(error.std()) / np.sqrt(runs)
    # 60 runs of coverage 95% are below 83% once in ten thousand.
    assert min(held) >= 0.83
