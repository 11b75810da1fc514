"""The expected value of random rankings, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.measure.engines import by_chance
from pipeline.measure.inputs import Qrels
from pipeline.measure.measures import parse_measures
from tests.measure.cases import qrels_table

GRADES = [{3: 1, 9: 1, 4: 0}, {1: 2}, {0: 1, 1: 1, 2: 3, 5: 0, 6: -1}]
CANDIDATES = np.array([10, 4, 25])


def test_expected_values_are_those_of_closed_forms() -> None:
    measures = parse_measures("precision@3,recall@3,map,hit_rate@1,ndcg")
    values = by_chance(Qrels.from_table(qrels_table(GRADES), 3), CANDIDATES, measures, seed=1, draws=4_000)
    n, r = CANDIDATES.astype(float), np.array([2.0, 1.0, 3.0])
    harmonic = np.array([(1 / np.arange(1, size + 1)).sum() for size in n])
    average_precision = ((r - 1) / (n - 1) * (n - harmonic) + harmonic) / n  # Bestgen 2015
    grades = np.array([2.0, 2.0, 5.0])
    discounts = [1 / np.log2(np.arange(2, size + 2)) for size in CANDIDATES]
    ideal = np.array([1 + 1 / np.log2(3), 2.0, 3 + 1 / np.log2(3) + 1 / 2])
    gain = np.array([grade / len(of) * of.sum() for grade, of in zip(grades, discounts, strict=True)]) / ideal
    np.testing.assert_allclose(values, [r / n, 3 / n, average_precision, r / n, gain], atol=0.025)


def test_more_judgements_than_candidates_are_refused() -> None:
    with pytest.raises(InputError, match="a query has 4 candidates, fewer than are judged"):
        by_chance(Qrels.from_table(qrels_table(GRADES), 3), np.array([10, 4, 4]), parse_measures("map"), seed=1)
