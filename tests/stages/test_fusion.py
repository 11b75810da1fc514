"""Fused systems: their names, what their weights are chosen on, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.errors import InputError
from pipeline.core.workspace import POOLS, RANKINGS, WEIGHTS
from pipeline.stages.systems import Fused, encoders, parse_systems
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

pytestmark = pytest.mark.xdist_group("fusion")
"""One process makes what all of them look at."""

POOL = flags("--year 2019 --size 900 --queries 20 --samples 2")


def test_names_with_commas_inside_parentheses() -> None:
    rrf, wsum, lsa = parse_systems("rrf(bm25:k1=2,b=0.5,lsa),wsum(bm25,lsa),lsa")
    assert isinstance(rrf, Fused)
    assert (rrf.method, rrf.name) == ("rrf", "rrf(bm25:k1=2,b=0.5,lsa)")
    assert parse_systems(rrf.name)[0].name == rrf.name
    assert [model.name for model in encoders([rrf, wsum, lsa])] == ["lsa"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rrf()", "fuses 0 systems"),
        ("rrf(bm25)", "fuses 1 systems"),
        ("wsum(lsa,rrf(bm25,lsa))", "fuses what is fused already"),
        ("rrf(bm25,no-such)", "no-such"),
    ],
)
def test_what_cannot_be_fused_is_said(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_systems(name)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fusion")
    mdcr_json(root, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))
    return root


def test_fused_systems_in_the_table(root: Path) -> None:
    model = "bm25,lsa,rrf(bm25,lsa),wsum(bm25,lsa)"
    rows = mdcr_json(root, "eval", *POOL, "--model", model)["rows"]
    of = {(row["system"], row["sample"]): row["value"] for row in rows if row["measure"] == "map"}
    assert {system for system, _ in of} == {"bm25", "lsa", "rrf(bm25,lsa)", "wsum(bm25,lsa)"}
    (weights,) = published(root / WEIGHTS)
    pools = {pool.id: pool for pool in published(root / POOLS)}
    tuned_on = pools[weights.manifest.inputs["pool"]]
    assert tuned_on.manifest.config["split"] == "validation"
    chosen = weights.manifest.counts["weights"]
    assert sum(chosen.values()) == pytest.approx(1)
    grid = weights.arrow("grid.arrow").to_pylist()
    assert len(grid) == 11
    assert max(point["map"] for point in grid) == weights.manifest.counts["map"]
    by_weight = {point["weights"][0]: point["map"] for point in grid}
    assert by_weight[chosen["bm25"]] == weights.manifest.counts["map"] >= max(by_weight[0.0], by_weight[1.0])
    names = {ranking.name.split("-")[0] for ranking in published(root / RANKINGS)}
    assert names == {"bm25", "lsa", "rrf", "wsum"}
    shown = mdcr(root, "show", "--model", "wsum(bm25,lsa),bm25", *POOL[2:4])
    assert "wsum(bm25,lsa)" in shown.stdout
    assert "rrf" not in shown.stdout


def test_queries_of_validation_and_test_never_meet(root: Path) -> None:
    pools = list(published(root / POOLS))
    queries: dict[str, set[int]] = {"test": set(), "validation": set()}
    for pool in pools:
        rows = pool.arrow("queries.arrow").column("row").to_pylist()
        queries[pool.manifest.config["split"]].update(rows)
    assert len(queries["validation"])
    assert not queries["test"] & queries["validation"]


def test_weights_are_not_judged_on_what_they_were_chosen_on(root: Path) -> None:
    error = one_line_error(mdcr(root, "eval", *POOL, "--split", "validation", "--model", "wsum(bm25,lsa)"))
    assert "is tuned on validation queries" in error


def test_approximate_search_says_what_it_leaves_out(root: Path) -> None:
    for kind in ("ivf", "hnsw"):
        arguments = ("eval", *POOL, "--model", "bm25,lsa", "--engine", kind)
        result = mdcr_json(root, *arguments)
        assert {row["system"] for row in result["rows"]} == {"bm25", "lsa", f"lsa@{kind}"}
        map_of = {(r["system"], r["pool"]): r["value"] for r in result["rows"] if r["measure"] == "map"}
        assert len(result["approximate"]) == 2
        for each in result["approximate"]:
            assert each["system"] == f"lsa@{kind}"
            assert 0 < each["recall"] <= 1
            assert each["map"] == pytest.approx(map_of[f"lsa@{kind}", each["pool"]])
            assert each["map_exact"] == pytest.approx(map_of["lsa", each["pool"]])
            assert each["change"] == pytest.approx(each["map"] - each["map_exact"])
        printed = mdcr(root, *arguments).stdout
        assert printed.count(f"lsa@{kind} on ") == 2
        assert f"recall@500 {result['approximate'][0]['recall']:.4f} of exact search, MAP " in printed
