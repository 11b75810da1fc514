"""What a ranking and qrels must be before they are measured."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.schema import JUDGEMENTS, RANKING
from pipeline.measure.inputs import Qrels, RankedRun, select
from tests.measure.cases import inputs, qrels_table, ranking_table, table


def test_lists_of_a_query() -> None:
    qrels, ranked = inputs([{5: 1.0, 9: 1.0, 7: 2.0}, {}, {3: 0.0}], [{9: 1, 2: 3, 4: 0, 1: -1}, {8: 1}, {}])
    assert ranked.rows.tolist() == [7, 9, 5, 3]
    assert ranked.offsets.tolist() == [0, 3, 3, 4]
    assert ranked.depth == 3
    assert qrels.rows.tolist() == [2, 9, 8]
    assert qrels.grades.tolist() == [3, 1, 1]
    assert qrels.positives().tolist() == [2, 1, 0]


def test_select_keeps_lists_whole() -> None:
    qrels, ranked = inputs([{5: 1.0}, {}, {3: 0.0, 4: 1.0}], [{9: 1, 2: 3}, {8: 1}, {4: 2}])
    some, judged = select(ranked, qrels, np.array([2, 0]))
    assert (some.offsets.tolist(), some.rows.tolist()) == ([0, 2, 3], [4, 3, 5])
    assert (judged.offsets.tolist(), judged.rows.tolist(), judged.grades.tolist()) == ([0, 1, 3], [4, 2, 9], [2, 3, 1])


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([(0, 1, 2.0, 1), (0, 2, 1.0, 3)], r"entry 1 .*query 0, rank 3.* rank out of place"),
        ([(0, 1, 1.0, 1), (0, 2, 2.0, 2)], r"entry 1 .* below a worse one"),
        ([(0, 1, 1.0, 1), (0, 2, 1.0, 2)], "below a worse one"),
        ([(0, 1, 2.0, 1), (0, 1, 1.0, 2)], "repeats a paper of this query"),
        ([(0, 1, float("nan"), 1)], "not finite"),
        ([(1, 1, 1.0, 1), (0, 1, 1.0, 1)], "not sorted by query"),
        ([(2, 1, 1.0, 1)], "query 2 of the ranking must be one of 2 queries"),
    ],
)
def test_a_ranking_that_breaks_the_contract_is_refused(entries: list[tuple[int, int, float, int]], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        RankedRun.from_table(table(entries, RANKING), 2)


def test_empty_tables() -> None:
    assert RankedRun.from_table(ranking_table([]), 3).retrieved().tolist() == [0, 0, 0]
    assert Qrels.from_table(qrels_table([]), 2).positives().tolist() == [0, 0]


def test_two_judgements_of_a_pair_are_refused() -> None:
    with pytest.raises(InputError, match="query 0 has two judgements of row 4"):
        Qrels.from_table(table([(0, 4, 1), (0, 4, 0)], JUDGEMENTS), 1)
