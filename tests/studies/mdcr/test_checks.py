"""What the figures of a benchmark depend on: the tables' figures against plain computations."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

import pipeline as interface
from pipeline.encode.names import split_names
from pipeline.measure.statistics import mean_of_means
from pipeline.studies.base import find
from pipeline.studies.mdcr import checks
from pipeline.studies.mdcr.build import least_alike
from pipeline.studies.mdcr.checks import Recipe
from pipeline.studies.mdcr.evaluation import read_evaluation
from pipeline.studies.mdcr.lists import read_lists
from pipeline.studies.recipe import read_recipe
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
def precisions(root: Path, planned: checks.Plan) -> pl.DataFrame:
    return checks.average_precisions(interface.open(root), recipe(), planned)


def recipe() -> Recipe:
    chosen: Recipe = read_recipe(find("mdcr_checks").default_recipe, Recipe, SETTINGS)
    return chosen


def by_field(precisions: pl.DataFrame, draw: str, system: str) -> dict[str, Any]:
    fields = precisions.filter(draw=draw, system=system).sort("query").partition_by("field", as_dict=True)
    return {str(field): of_field["value"].to_numpy() for (field,), of_field in fields.items()}


def mean(precisions: pl.DataFrame, draw: str, system: str) -> float:
    return float(np.mean([values.mean() for values in by_field(precisions, draw, system).values()]))


def test_the_first_draw_is_the_benchmark(root: Path, planned: checks.Plan) -> None:
    lists, seen = read_lists(planned[0].path, "test"), set()
    for draw, evaluations in planned[2].items():
        for evaluation in evaluations[:: len(split_names(SYSTEMS))]:
            of_field, _ = read_evaluation(interface.open(root), evaluation)
            ids, names = of_field.pool.corpus.ids(of_field.row), of_field.pool.query_ids()
            drawn: dict[str, dict[str, list[str]]] = {}
            for number, kind, paper in zip(of_field.query.tolist(), of_field.type.tolist(), ids, strict=True):
                drawn.setdefault(names[number], {}).setdefault(kind, []).append(paper)
            assert draw != "0" or drawn == lists[of_field.field]
            seen.add(json.dumps(drawn, sort_keys=True))
            kinds = set(split_names(SYSTEMS)) if draw == "matched" else {"bm25", "lsa"}
            assert set(next(iter(drawn.values()))) == {"true", "graph", "most_cited", "random"} | kinds
    assert len(seen) == 5 * len(lists)


def test_the_benchmarks_row_is_what_mdcr_eval_prints_whatever_the_rebuilds(
    root: Path, planned: checks.Plan, printed: dict[str, Any]
) -> None:
    untrained = SYSTEMS.removesuffix(",lsa")
    settings = ("--set", "baseline=", "--model", untrained)
    found = mdcr_json(root, "study", "mdcr_eval", "--input", str(planned[0].path), *settings)["tables"]["fields"]
    expected = {row["system"]: row["value"] for row in found if row["field"] == "AVG" and row["measure"] == "map"}
    assert len(expected) == 3
    fewer = [word.replace("rebuilds=3", "rebuilds=1") for word in WORDS]
    tables = [printed, mdcr_json(root, "study", "mdcr_checks", *fewer)["tables"]]
    for table in tables:
        own = {row["system"]: row["value"] for row in table["redraws"] if row["column"] == "benchmark"}
        assert {system: own[system] for system in expected} == pytest.approx(expected)


def test_tables_are_means_of_the_queries(precisions: pl.DataFrame, printed: dict[str, Any]) -> None:
    own = {row["system"]: row["value"] for row in printed["redraws"] if row["column"] == "benchmark"}
    draws = {"benchmark": ["0"], "rebuilds": ["1", "2", "3"], "matched": ["matched"], "large": ["large"]}
    for row in printed["redraws"]:
        expected = np.mean([mean(precisions, draw, row["system"]) for draw in draws[row["column"]]])
        assert row["value"] == pytest.approx(expected)
        assert row["low"] < row["value"] < row["high"]
    gains = {(row["system"], row["column"]): row["value"] for row in printed["bias"]}
    for (system, name), gain in gains.items():
        if name in ("bm25", "lsa"):
            assert gain == pytest.approx(mean(precisions, f"without {name}", system) - own[system])
            assert gain >= 0
    others = ["bm25:k1=2,b=0.9", "bm25:k1=0.1,b=0.1"]  # bm25 gave the only other list
    excess = [gains[other, "lsa"] - gains[other, "bm25"] for other in others]
    assert gains["lsa", "own less others"] == pytest.approx(
        gains["lsa", "lsa"] - gains["lsa", "bm25"] - np.mean(excess)
    )
    assert ("bm25:k1=2,b=0.9", "own less others") not in gains


def test_the_own_cost_is_0_where_lists_and_systems_differ_only_in_how_hard_they_are() -> None:
    names, queries = ["a", "b", "c", "d"], np.array([0.5, 1.0])
    gains = {s: {n: (i + 10 * j) * queries for j, n in enumerate("abc")} for i, s in enumerate(names)}
    for system in "abc":
        found = checks.own_cost(gains, system, [name for name in names if name != system])
        assert found == pytest.approx(np.zeros(2))
    gains["a"]["a"] = gains["a"]["a"] + 0.3
    assert checks.own_cost(gains, "a", ["b", "c", "d"]) == pytest.approx([0.3, 0.3])
    assert checks.own_cost({s: {"a": queries} for s in names}, "a", ["b"]) is None


def test_pairs_are_tested_together(precisions: pl.DataFrame, printed: dict[str, Any]) -> None:
    rows = {(row["system"], row["column"]): row for row in printed["order"]}
    pairs = {pair for pair, _ in rows}
    assert len(pairs) == 6
    assert all(rows[pair, "effect"]["value"] * rows[pair, "benchmark"]["value"] >= 0 for pair in pairs)
    for pair in pairs:
        one, other = pair.split(" over ")
        for name, draw in (("benchmark", "0"), ("matched", "matched"), ("large", "large")):
            row = rows[pair, name]
            assert row["value"] == pytest.approx(mean(precisions, draw, one) - mean(precisions, draw, other))
            assert row["low"] <= row["value"] <= row["high"]
        assert rows[pair, "benchmark"]["value"] >= 0
        kept = [mean(precisions, draw, one) > mean(precisions, draw, other) for draw in "123"]
        assert rows[pair, "3 rebuilds"]["value"] == pytest.approx(np.mean(kept))
    base = by_field(precisions, "large", "bm25")
    change = {field: (values - base[field])[None] for field, values in by_field(precisions, "large", "lsa").items()}
    low, high = mean_of_means(change, 13, level=1 - 0.05 / 6)[1:3]
    row = rows.get(("lsa over bm25", "large")) or rows["bm25 over lsa", "large"]
    assert sorted(np.abs([row["low"], row["high"]])) == pytest.approx(sorted(np.abs([low[0], high[0]])), abs=1e-3)


def test_large_pools_are_what_eval_scores(root: Path, precisions: pl.DataFrame) -> None:
    words = "eval --corpus tiny --field Medicine --year 2019 --size 300 --queries 6 --samples 1 --model lsa"
    (expected,) = (row["value"] for row in mdcr_json(root, *words.split())["rows"] if row["measure"] == "map")
    assert by_field(precisions, "large", "lsa")["Medicine"].mean() == pytest.approx(expected)


def test_each_field_needs_queries_of_its_own(precisions: pl.DataFrame, printed: dict[str, Any]) -> None:
    rows = {(row["system"], row["column"]): row for row in printed["power"]}
    tails = {alpha: norm.ppf(1 - alpha / 2) for alpha in (0.05, 0.025)}
    base = by_field(precisions, "0", "bm25")
    for field, values in by_field(precisions, "0", "lsa").items():
        variance = np.var(values - base[field], ddof=1)
        row = rows[f"lsa, {field}", "2 points"]
        expected = (tails[0.025] + norm.ppf(0.8)) ** 2 * variance / 0.02**2 + tails[0.025] ** 2 / 2
        assert row["value"] == pytest.approx(expected)
        assert row["low"] < row["value"] < row["high"]
        for name, alpha in (("one test", 0.05), ("first of 2", 0.025)):
            spread = np.sqrt(variance / (len(values) - tails[alpha] ** 2 / 2))
            found = rows[f"lsa, {field}", f"points detected, {name}"]["value"]
            assert found == pytest.approx(100 * (tails[alpha] + norm.ppf(0.8)) * spread)


def test_equal_systems_are_chosen_by_name_whatever_their_order() -> None:
    for names in (("a", "b", "c", "d"), ("d", "c", "b", "a")):
        jaccard = dict.fromkeys(itertools.combinations(names, 2), 0.5)
        assert sorted(least_alike(jaccard, names, 3)) == ["a", "b", "c"]
