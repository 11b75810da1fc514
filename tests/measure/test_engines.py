"""The definitions of the table and ranx against trec_eval, and against each other."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.measure import inputs as measured
from pipeline.measure.engines import ENGINES, average_precision, evaluate, evaluate_all
from pipeline.measure.hits import Hits
from pipeline.measure.measures import MEASURES, Measure, parse_measures
from tests.measure.cases import Grades, Run, inputs, random_case, trec_eval

KINDS = [kind for kind in MEASURES.values() if kind.ranx]
ALL = tuple(Measure(kind.name, cutoff) for kind in KINDS for cutoff in ((None, 5) if kind.cuts else (None,)))


def assert_all_agree(run: Run, grades: Grades) -> None:
    by_table, by_ranx = (evaluate(*inputs(run, grades), ALL, engine) for engine in ENGINES)
    np.testing.assert_allclose(by_table, by_ranx, atol=1e-12, rtol=0)
    np.testing.assert_allclose(by_table, trec_eval(run, grades, ALL), atol=1e-9, rtol=0)


def test_judged_counts_papers_with_a_grade_of_0_or_more() -> None:
    """Grades 0, none, 2, -1 at ranks 1 to 4."""
    case = inputs([{row: -row for row in range(4)}], [{0: 0, 2: 2, 3: -1, 9: 1}])
    assert evaluate(*case, parse_measures("judged@1,judged@2,judged@3,judged@5,judged,judged(rel=2)@1"))[
        :, 0
    ].tolist() == [*(1, 1 / 2, 2 / 3, 2 / 5, 1 / 2, 1)]


@pytest.mark.usefixtures("plain_ranx")
@pytest.mark.parametrize("score_levels", [1, 4, 10_000])
def test_engines_agree_with_trec_eval(score_levels: int) -> None:
    assert_all_agree(*random_case(score_levels, queries=40, rows=60, depth=30, positives=40, score_levels=score_levels))


queries = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 12), st.sampled_from([-1.0, 0.0, 0.5, 1e-3, 1e30])),
        st.tuples(st.integers(0, 12), st.dictionaries(st.integers(0, 12), st.integers(-2, 4))),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.usefixtures("plain_ranx")
@given(queries)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_engines_agree_on_anything(drawn: list[tuple[dict[int, float], tuple[int, dict[int, int]]]]) -> None:
    run = [scores for scores, _ in drawn]
    grades = [{**judged, positive: max(1, judged.get(positive, 1))} for _, (positive, judged) in drawn]
    assert_all_agree(run, grades)


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("precision(rel=2)@5", 2 / 5),
        ("recall(rel=2)@3", 1 / 2),
        ("r-precision(rel=2)", 1 / 2),
        ("map(rel=2)", (1 / 2 + 2 / 5) / 2),
        ("csfcube-r-precision", 4 / 6),
        ("csfcube-r-precision(rel=2)", 2 / 5),
        ("csfcube-ndcg@3", (1 + 3 + 1 / np.log2(3)) / (3 + 2 + 1 / np.log2(3))),
        ("csfcube-ndcg%50", (1 + 3 + 1 / np.log2(3)) / (3 + 2 + 1 / np.log2(3))),
        ("ndcg%34", (1 + 3 / np.log2(3)) / (3 + 2 / np.log2(3))),
        ("precision%1", 1.0),
    ],
)
def test_graded_measures_by_hand(measure: str, value: float) -> None:
    """Grades 1, 3, 1, 0, 2, 1 at ranks 1 to 6; the last is retrieved at rank 6, so all positives are found."""
    run, grades = [{row: 1.0 - row / 10 for row in range(6)}], [dict(enumerate((1, 3, 1, 0, 2, 1)))]
    grades[0].pop(2) if measure == "csfcube-r-precision" else None
    assert evaluate(*inputs(run, grades), parse_measures(measure))[0, 0] == pytest.approx(value)


@pytest.mark.parametrize("measure", ["ndcg%20", "map(rel=2)", "csfcube-ndcg"])
def test_ranx_refuses_what_it_lacks(measure: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"must be one of ranx's, got {measure}")):
        evaluate(*inputs([{1: 1.0}], [{1: 2}]), parse_measures(measure), "ranx")


def test_a_query_without_a_paper_of_the_grade_is_refused_or_left_out() -> None:
    case = inputs([{1: 1.0}, {1: 1.0}], [{1: 2}, {1: 1}])
    with pytest.raises(
        InputError, match=r"map\(rel=2\) must have a paper of grade 2 or more of each query, got none of 1"
    ):
        evaluate(*case, parse_measures("map(rel=2)"))
    np.testing.assert_array_equal(evaluate_all(*case, parse_measures("map,map(rel=2)")), [[1, 1], [1, np.nan]])


@pytest.mark.usefixtures("plain_ranx")
@pytest.mark.parametrize("engine", ENGINES)
def test_queries_without_results_score_zero_and_those_without_positives_are_refused(engine: str) -> None:
    values = evaluate(*inputs([{}, {}], [{1: 1}, {2: 1}]), ALL, engine)
    assert values.shape == (len(ALL), 2)
    assert not values.any()
    with pytest.raises(InputError, match="grade 1 or more of each query, got none of 1"):
        evaluate(*inputs([{1: 1.0}, {1: 1.0}], [{1: 1}, {1: 0}]), ALL, engine)
    with pytest.raises(InputError, match="the qrels have 1 query, the ranking 2"):
        evaluate(*inputs([{1: 1.0}, {}], [{1: 1}]), ALL, engine)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match=r"no measure engine 'rank'.*Did you mean 'ranx'"):
        evaluate(*inputs([{1: 1.0}], [{1: 1}]), ALL, "rank")


def test_block_sizes_do_not_change_values(monkeypatch: pytest.MonkeyPatch) -> None:
    case = inputs(*random_case(7, queries=50, rows=40, depth=6, positives=10, score_levels=3))
    whole = evaluate(*case, ALL)
    monkeypatch.setattr(measured, "_BLOCK", 7)
    assert (evaluate(*case, ALL) == whole).all()


def test_compiled_ranx_gives_the_same_bits_on_any_number_of_threads() -> None:
    """Positives are of grade 1, as citations are."""
    import numba

    run, grades = random_case(5, queries=300, rows=200, depth=150, positives=40, score_levels=10_000)
    case = inputs(run, [{row: min(grade, 1) for row, grade in judged.items()} for judged in grades])
    measures, before = parse_measures("map,ndcg,recall@30"), numba.get_num_threads()
    try:
        for threads in (before, 1):
            numba.set_num_threads(threads)
            assert evaluate(*case, measures, "ranx").tobytes() == evaluate(*case, measures).tobytes()
            assert numba.get_num_threads() == threads
    finally:
        numba.set_num_threads(before)


def test_average_precision_from_ranks_is_the_same_measure() -> None:
    qrels, run = inputs(*random_case(9, queries=30, rows=40, depth=20, positives=10, score_levels=9))
    retrieved = Hits.of(qrels, run).retrieved
    ranks = np.zeros((len(qrels.rows), 2), np.int64)
    ranks[qrels.offsets[retrieved.query] + retrieved.nth() - 1, 0] = retrieved.rank
    values = average_precision(ranks, qrels.offsets)
    assert (values[:, 0] == evaluate(qrels, run, [Measure("map")])[0]).all()
    assert not values[:, 1].any()
    assert np.isnan(average_precision(ranks[:0], np.zeros(2, np.int64))).all()


def test_import_is_light() -> None:
    code = (
        "import sys, pipeline.measure.engines, pipeline.measure.trec, pipeline.measure.statistics\n"
        "print(*sorted({'ranx', 'numba', 'pandas', 'scipy', 'polars', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
