"""The fast engine against the NumPy reference, and both against trec_eval."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.measure import ranx_engine, reference
from pipeline.measure.names import parse_measures
from tests.measure.cases import Grades, Run, inputs, random_case, trec_eval

MEASURES = parse_measures(
    "map,map@5,ndcg,ndcg@5,recall,recall@5,precision,precision@5,mrr,mrr@5,hit_rate,hit_rate@5,r-precision,f1,f1@5"
)


def assert_all_agree(run: Run, grades: Grades) -> None:
    expected = trec_eval(run, grades, MEASURES)
    for engine in (reference, ranx_engine):
        values = engine.evaluate(*inputs(run, grades), MEASURES)
        np.testing.assert_allclose(values, expected, atol=1e-9, err_msg=engine.__name__)


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


@given(queries)
@settings(max_examples=60, deadline=None)
def test_engines_agree_on_anything(drawn: list[tuple[dict[int, float], tuple[int, dict[int, int]]]]) -> None:
    run = [scores for scores, _ in drawn]
    grades = [{**judged, positive: max(1, judged.get(positive, 1))} for _, (positive, judged) in drawn]
    assert_all_agree(run, grades)


def test_by_hand() -> None:
    """Two of three positives, at ranks 1 and 3 of four retrieved."""
    qrels, ranking = inputs([{1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6}], [{1: 1, 3: 1, 9: 1}])
    values = dict(zip(map(str, MEASURES), ranx_engine.evaluate(qrels, ranking, MEASURES)[:, 0], strict=True))
    assert values["map"] == pytest.approx((1 + 2 / 3) / 3)
    assert values["ndcg"] == pytest.approx(1.5 / (1 + 1 / np.log2(3) + 0.5))
    assert values["recall@5"] == pytest.approx(2 / 3)
    assert values["precision@5"] == pytest.approx(2 / 5)
    assert values["precision"] == pytest.approx(2 / 4)
    assert values["r-precision"] == pytest.approx(2 / 3)
    assert values["mrr"] == 1.0


def test_grades_are_linear_gains() -> None:
    qrels, ranking = inputs([{1: 2.0, 2: 1.0}], [{1: 1, 2: 3}])
    (values,) = ranx_engine.evaluate(qrels, ranking, parse_measures("ndcg"))
    assert values[0] == pytest.approx((1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))


@pytest.mark.parametrize("engine", [reference, ranx_engine])
def test_a_run_without_any_result_scores_zero(engine: object) -> None:
    values = engine.evaluate(*inputs([{}, {}], [{1: 1}, {2: 1}]), MEASURES)  # type: ignore[attr-defined]
    assert values.shape == (len(MEASURES), 2)
    assert not values.any()


@pytest.mark.parametrize("engine", [reference, ranx_engine])
def test_a_query_without_positives_is_refused(engine: object) -> None:
    with pytest.raises(InputError, match="1 queries have no relevant paper, first query 1"):
        engine.evaluate(*inputs([{1: 1.0}, {1: 1.0}], [{1: 1}, {1: 0}]), MEASURES)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="the qrels have 1 queries, the ranking 2"):
        engine.evaluate(*inputs([{1: 1.0}, {}], [{1: 1}]), MEASURES)  # type: ignore[attr-defined]


def test_one_cut_measure_alone() -> None:
    """``ranx.evaluate`` raises KeyError here."""
    qrels, ranking = inputs([{1: 1.0, 2: 0.5}], [{2: 1}])
    assert ranx_engine.evaluate(qrels, ranking, parse_measures("recall@2")).tolist() == [[1.0]]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    qrels, ranking = inputs(*random_case(7, queries=50, rows=40, depth=6, positives=10, score_levels=3))
    whole = ranx_engine.evaluate(qrels, ranking, MEASURES)
    monkeypatch.setattr(ranx_engine, "_BLOCK_BYTES", 300)
    assert (ranx_engine.evaluate(qrels, ranking, MEASURES) == whole).all()


def test_threads_do_not_show_and_stay_as_they_were() -> None:
    import numba

    qrels, ranking = inputs(*random_case(8, queries=5, rows=40, depth=20, positives=10, score_levels=3))
    before = numba.get_num_threads()
    whole = ranx_engine.evaluate(qrels, ranking, MEASURES)
    assert numba.get_num_threads() == before
    numba.set_num_threads(1)
    try:
        assert (ranx_engine.evaluate(qrels, ranking, MEASURES) == whole).all()
    finally:
        numba.set_num_threads(before)


def test_import_is_light() -> None:
    code = (
        "import sys, pipeline.measure.ranx_engine, pipeline.measure.trec, pipeline.measure.statistics\n"
        "print(*sorted({'ranx', 'numba', 'pandas', 'scipy', 'polars', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_kernels_are_cached_below_the_users_cache(tmp_path: Path) -> None:
    code = (
        "import os, {first}sys; from pipeline.measure import ranx_engine; ranx_engine._metrics(); import numba\n"
        "print(os.environ['NUMBA_CACHE_DIR'], numba.config.CACHE_DIR)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {"XDG_CACHE_HOME": str(tmp_path)}
    chosen = str(tmp_path / "mdcr" / "numba")
    late = [sys.executable, "-c", code.format(first="numba, ")]
    assert (
        subprocess.run(late, env=environment, capture_output=True, text=True, check=True).stdout.split() == [chosen] * 2
    )
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "mine")
    early = [sys.executable, "-c", code.format(first="")]
    printed = subprocess.run(early, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert printed == [str(tmp_path / "mine")] * 2
