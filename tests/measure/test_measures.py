"""Measure names as users type them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.measure.measures import DEFAULT, MEASURES, Measure, check_depth, parse_measures, within


def test_the_papers_measures_by_default() -> None:
    labels = "MAP NDCG NDCG@10 R@5 R@10 R@20 R@30 R@100 P@1 MRR R-Prec"
    assert [measure.label for measure in DEFAULT] == labels.split()
    assert sorted(DEFAULT, key=lambda measure: measure.order) == list(DEFAULT)
    assert all(definition.text for definition in MEASURES.values())


@pytest.mark.parametrize(("depth", "left_out"), [(1, 6), (9, 5), (10, 3), (99, 1), (100, 0)])
def test_default_measures_within_a_depth(depth: int, left_out: int) -> None:
    assert len(DEFAULT) - len(within(DEFAULT, depth)) == left_out
    check_depth(within(DEFAULT, depth), depth)


def test_a_measure_deeper_than_the_ranking_is_refused_with_the_depth_it_needs() -> None:
    check_depth(parse_measures("map,recall@500"), 500)
    with pytest.raises(InputError, match=r"^recall@1000 needs --depth[ =]1000, got 500\. Rank deeper, or ask for @500"):
        check_depth(parse_measures("ndcg@600,recall@1000,map"), 500)


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("ndcg@10,map@100", ["ndcg@10", "map@100"]),
        ("P@1 r@30\trr", ["precision@1", "recall@30", "mrr"]),
        ("rprec,R-Precision,r_precision", ["r-precision"]),
        ("success@5,hit@5,f1,ap,mrr@10", ["hit_rate@5", "f1", "map", "mrr@10"]),
        (["map", "p@1"], ["map", "precision@1"]),
    ],
)
def test_spellings(typed: str | list[str], canonical: list[str]) -> None:
    assert [str(measure) for measure in parse_measures(typed)] == canonical


@given(st.sampled_from(sorted(MEASURES)), st.none() | st.integers(1, 10**6), st.integers(1, 99), st.booleans())
def test_what_is_printed_is_parsed(name: str, cutoff: int | None, number: int, shared: bool) -> None:
    share = number if shared and cutoff is None and MEASURES[name].cuts else None
    measure = Measure(name, cutoff if MEASURES[name].cuts else None, number, share)
    assert parse_measures(str(measure)) == (measure,)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("ndgc@10,map,recal", "unknown measures 'ndgc@10', 'recal'. Did you mean 'ndcg'? Did you mean 'recall'?"),
        ("map@0", "Write map, perhaps with (rel=2) and a cutoff from 1: map@10"),
        ("rprec@5", "Write r-precision, perhaps with (rel=2)"),
        ("zzz", "Choose one of: map, ndcg"),
        (" , ", "Name some, such as map,ndcg"),
    ],
)
def test_a_bad_name_is_refused_with_the_remedy(typed: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_measures(typed)
