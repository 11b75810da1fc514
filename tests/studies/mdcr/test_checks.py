"""What the figures of a benchmark depend on: the tables' figures against plain computations."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

import pipeline as interface
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.stages.systems import system_names
from pipeline.studies.mdcr import checks
from pipeline.studies.mdcr.checks import Recipe, tau
from pipeline.studies.mdcr.evaluation import opened
from pipeline.studies.mdcr.layout import read_lists
from pipeline.studies.recipe import read_recipe
from pipeline.studies.registry import find
from tests.cli.run import mdcr_json

SYSTEMS = "bm25,bm25:k1=2,b=0.9,bm25:k1=0.1,b=0.1,lsa"
SETTINGS = {"corpus": "tiny", "systems": SYSTEMS, "model_negatives": "bm25,lsa", "size": "300", "queries": 6}
SETTINGS |= {"fields": "Medicine,Biology", "top": 40, "rebuilds": 3}
WORDS = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]


@pytest.fixture(scope="module")
def printed(root: Path) -> dict[str, Any]:
    tables: dict[str, Any] = mdcr_json(root, "study", "mdcr_checks", *WORDS)["tables"]
    return tables


@pytest.fixture(scope="module")
def planned(root: Path, printed: dict[str, Any]) -> checks.Plan:
    assert printed
    return checks.plan(interface.open(root), recipe())


@pytest.fixture(scope="module")
def precisions(root: Path, planned: checks.Plan) -> checks.Precisions:
    return checks.average_precisions(interface.open(root), recipe(), planned)


def recipe() -> Recipe:
    chosen: Recipe = read_recipe(find("mdcr_checks").default_recipe, Recipe, SETTINGS)
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_kendalls(seed: int) -> None:
    one, other = np.random.default_rng(seed).normal(size=(2, 6, 4))
    expected = [kendalltau(one[:, place], other[:, place]).statistic for place in range(4)]
    assert tau(one, other) == pytest.approx(expected)


def test_the_first_draw_is_the_benchmark(root: Path, planned: checks.Plan) -> None:
    lists = read_lists(planned.benchmark.path, "test")
    for evaluation in planned.lists:
        of_field, _ = opened(interface.open(root), evaluation)
        ids, names = of_field.pool.corpus.ids(of_field.row), of_field.pool.query_ids()
        draws: dict[str, dict[str, dict[str, list[str]]]] = {}
        for number, kind, paper in zip(of_field.query.tolist(), of_field.type.tolist(), ids, strict=True):
            draw, _, name = kind.rpartition("/")
            draws.setdefault(draw, {}).setdefault(names[number], {}).setdefault(name, []).append(paper)
        true = draws.pop("")
        assert {query: {**by_type, **true[query]} for query, by_type in draws["0"].items()} == lists[of_field.field]
        assert len({json.dumps(draw, sort_keys=True) for draw in draws.values()}) == len(draws) == 5
        assert set(next(iter(draws["matched"].values()))) == {*system_names(SYSTEMS), "graph", "most_cited", "random"}


def test_tables_are_means_of_the_queries(precisions: checks.Precisions, printed: dict[str, Any]) -> None:
    def mean(draw: str, system: str) -> float:
        place = precisions.systems.index(system)
        return float(np.mean([values[place].mean() for values in precisions.values[draw].values()]))

    own = {row["system"]: row["value"] for row in printed["redraws"] if row["column"] == "benchmark"}
    draws = {"benchmark": ["0"], "rebuilds": ["1", "2", "3"], "matched": ["matched"], "large": ["large"]}
    for row in printed["redraws"]:
        assert row["value"] == pytest.approx(np.mean([mean(draw, row["system"]) for draw in draws[row["column"]]]))
        assert row["low"] <= row["value"] <= row["high"]
    gains = {(row["system"], row["column"]): row["value"] for row in printed["bias"]}
    for (system, name), gain in gains.items():
        if name in precisions.chosen:
            assert gain == pytest.approx(mean(f"without {name}", system) - own[system])
            assert gain >= 0
    assert gains["lsa", "own less others"] == pytest.approx(gains["lsa", "lsa"] - gains["lsa", "bm25"])
    assert ("bm25:k1=2,b=0.9", "own less others") not in gains


def test_large_pools_are_what_eval_scores(root: Path, precisions: checks.Precisions) -> None:
    words = "eval --corpus tiny --field Medicine --year 2019 --size 300 --queries 6 --samples 1 --model lsa"
    (expected,) = (row["value"] for row in mdcr_json(root, *words.split())["rows"] if row["measure"] == "map")
    values = precisions.values["large"]["Medicine"][precisions.systems.index("lsa")]
    assert values.mean() == pytest.approx(expected)


def test_queries_needed_are_those_of_the_normal_test(precisions: checks.Precisions, printed: dict[str, Any]) -> None:
    place = precisions.systems.index("lsa")
    variance = np.mean([(values[place] - values[0]).var() for values in precisions.values["0"].values()])
    expected = (norm.ppf(0.975) + norm.ppf(0.8)) ** 2 * variance / 0.02**2
    (row,) = (row for row in printed["power"] if row["system"] == "lsa" and row["column"] == "2 points")
    assert row["value"] == pytest.approx(expected)
    assert row["low"] <= row["high"]


def test_intervals_of_few_queries_say_so(precisions: checks.Precisions) -> None:
    for table in (checks.order_table(precisions, 3), checks.power_table(precisions, "bm25", [0.02])):
        assert table.table.notes[-1] == "Percentile intervals of 12 queries, which are too short."
    many = {draw: {f: np.tile(v, 9) for f, v in fields.items()} for draw, fields in precisions.values.items()}
    assert len(checks.order_table(dataclasses.replace(precisions, values=many), 3).table.notes) == 1
    own, others = precisions.values["0"], precisions.values["without lsa"]
    gains = {field: (others[field] - own[field])[[3]] for field in own}
    draws = np.mean([bootstrap_means(gain, seed=13, item=field) for field, gain in gains.items()], axis=0)
    low, high = confidence_interval(draws, *gains.values())
    (row,) = checks.bias_table(precisions).frame.filter(system="lsa", column="lsa").to_dicts()
    assert (row["low"], row["high"]) == pytest.approx((low[0], high[0]))
