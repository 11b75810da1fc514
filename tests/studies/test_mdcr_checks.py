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
from pipeline.core.workspace import find_corpus
from pipeline.corpus.reader import Corpus
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.stages.systems import system_names
from pipeline.studies.mdcr import checks
from pipeline.studies.mdcr.checks import Recipe, tau
from pipeline.studies.mdcr.evaluation import opened
from pipeline.studies.mdcr.layout import TRUE, read_lists
from pipeline.studies.mdcr.study import benchmark
from pipeline.studies.recipe import read_recipe
from pipeline.studies.registry import find
from tests.cli.run import mdcr, mdcr_json, one_line_error

SYSTEMS = "bm25,bm25:k1=2,b=0.9,bm25:k1=0.1,b=0.1,lsa"
SETTINGS = {"corpus": "tiny", "systems": SYSTEMS, "model_negatives": "bm25,lsa", "size": "300", "queries": 6}
SETTINGS |= {"fields": "Medicine,Biology", "top": 40, "rebuilds": 3}
WORDS = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]


@pytest.fixture(scope="module")
def printed(root: Path) -> dict[str, Any]:
    tables: dict[str, Any] = mdcr_json(root, "study", "mdcr_checks", *WORDS)["tables"]
    return tables


@pytest.fixture(scope="module")
def found(root: Path, printed: dict[str, Any]) -> checks.Measured:
    assert printed
    return checks.measured(interface.open(root), recipe())[0]


def recipe() -> Recipe:
    chosen: Recipe = read_recipe(find("mdcr_checks").default_recipe, Recipe, SETTINGS)
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_kendalls(seed: int) -> None:
    one, other = np.random.default_rng(seed).normal(size=(2, 6, 4))
    expected = [kendalltau(one[:, place], other[:, place]).statistic for place in range(4)]
    assert tau(one, other) == pytest.approx(expected)


def test_the_first_draw_is_the_benchmark(root: Path, printed: dict[str, Any]) -> None:
    assert printed
    workspace, corpus = interface.open(root), Corpus(find_corpus(root, "tiny"))
    lists = read_lists(workspace.runner.make(benchmark(workspace, recipe())).path, "test")
    _, parts, wanted = checks._plan(workspace, recipe())
    for ranked in checks._ranked(workspace, recipe(), parts, wanted):
        own, _ = opened(workspace, corpus.artifact, ranked)
        ids = corpus.ids(own.row)
        names = own.pool.query_ids()
        drawn: dict[str, dict[str, dict[str, list[str]]]] = {}
        for number, name, paper in zip(own.query.tolist(), own.type.tolist(), ids, strict=True):
            draw, _, kind = name.rpartition("/")
            drawn.setdefault(draw, {}).setdefault(names[number], {}).setdefault(kind, []).append(paper)
        true = {query: by_type[TRUE] for query, by_type in drawn.pop("").items()}
        assert {q: {**by_type, TRUE: true[q]} for q, by_type in drawn["0"].items()} == lists[ranked.field]
        assert len({json.dumps(each, sort_keys=True) for each in drawn.values()}) == len(drawn) == 5
        assert set(next(iter(drawn["matched"].values()))) == {*system_names(SYSTEMS), "graph", "most_cited", "random"}


def test_tables_are_means_of_the_queries(found: checks.Measured, printed: dict[str, Any]) -> None:
    def mean(fields: Any, system: str) -> float:
        place = found.systems.index(system)
        return float(np.mean([values[place].mean() for values in fields.values()]))

    own = {row["system"]: row["value"] for row in printed["redraws"] if row["column"] == "benchmark"}
    for row in printed["redraws"]:
        fields = {"benchmark": "0", "matched": "matched"}.get(row["column"])
        if row["column"] == "rebuilds":
            expected = float(np.mean([mean(found.fields[str(number)], row["system"]) for number in (1, 2, 3)]))
        else:
            expected = mean(found.fields[fields] if fields else found.large, row["system"])
        assert row["value"] == pytest.approx(expected)
        assert row["low"] <= row["value"] <= row["high"]
    gains = {(row["system"], row["column"]): row["value"] for row in printed["bias"]}
    for (system, name), gain in gains.items():
        if name in found.chosen:
            assert gain == pytest.approx(mean(found.fields[f"without {name}"], system) - own[system])
            assert gain >= 0
    assert gains["lsa", "own less others"] == pytest.approx(gains["lsa", "lsa"] - gains["lsa", "bm25"])
    assert ("bm25:k1=2,b=0.9", "own less others") not in gains


def test_large_pools_are_what_eval_scores(root: Path, found: checks.Measured) -> None:
    words = "eval --corpus tiny --field Medicine --year 2019 --size 300 --queries 6 --samples 1 --model lsa"
    rows = mdcr_json(root, *words.split())["rows"]
    (expected,) = (row["value"] for row in rows if row["measure"] == "map")
    assert found.large["Medicine"][found.systems.index("lsa")].mean() == pytest.approx(expected)


def test_queries_needed_are_those_of_the_normal_test(found: checks.Measured, printed: dict[str, Any]) -> None:
    place = found.systems.index("lsa")
    variance = np.mean([(values[place] - values[0]).var() for values in found.fields["0"].values()])
    expected = (norm.ppf(0.975) + norm.ppf(0.8)) ** 2 * variance / 0.02**2
    (row,) = (row for row in printed["power"] if row["system"] == "lsa" and row["column"] == "2 points")
    assert row["value"] == pytest.approx(expected)
    assert row["low"] <= row["high"]


def test_intervals_of_few_queries_say_so(found: checks.Measured) -> None:
    for table in (checks.order_table(found, 3), checks.power_table(found, "bm25", [0.02])):
        assert table.table.notes[-1] == "Percentile intervals of 12 queries, which are too short."
    many = {draw: {field: np.tile(each, 9) for field, each in own.items()} for draw, own in found.fields.items()}
    enough = dataclasses.replace(
        found, fields=many, large={field: np.tile(each, 9) for field, each in found.large.items()}
    )
    assert len(checks.order_table(enough, 3).table.notes) == 1
    own, others = ({f: v[3] for f, v in found.fields[name].items()} for name in ("0", "without lsa"))
    gains = [(others[field] - own[field])[None] for field in own]
    draws = np.mean([bootstrap_means(g, seed=13, item=field) for field, g in zip(own, gains, strict=True)], axis=0)
    low, high = confidence_interval(draws, *gains)
    (row,) = (
        row for row in checks.bias_table(found).frame.to_dicts() if (row["system"], row["column"]) == ("lsa", "lsa")
    )
    assert (row["low"], row["high"]) == pytest.approx((low[0], high[0]))


@pytest.mark.parametrize("setting", ["baseline=specter", "rebuilds=0"])
def test_bad_settings_are_one_line(root: Path, setting: str) -> None:
    assert setting.split("=")[1] in one_line_error(mdcr(root, "study", "mdcr_checks", *WORDS, "--set", setting))
