"""Costs cover every part of a system, and what is unknown of one part is unknown of the system."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.encode.known import Training
from pipeline.studies.leaderboard.costs import leak
from tests.cli.run import flags, mdcr_json
from tests.encode.tiny import save_bert, save_cross_encoder

POOLS = "--corpus tiny --year 2019 --queries 20 --nested --size 500 --samples 1"
OTHER = "citations: pairs, from a base"


@pytest.fixture(scope="module")
def cost(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Costs of two encoders, of one whose vectors are gone, and of systems made of them and of BM25."""
    other, folder = tmp_path_factory.mktemp("costs") / "other", tmp_path_factory.mktemp("models")
    shutil.copytree(root, other)
    seeds = {"one": 1, "two": 2, "gone": 3}
    names = {name: save_bert(folder / name, seed=seed, positions=32) for name, seed in seeds.items()}
    cross, gone = f"cross:{save_cross_encoder(folder / 'cross', positions=64)}", names.pop("gone")
    one, two = names.values()
    systems = [
        "bm25",
        f"one={one}",
        f"two={two}",
        f"view={one}:dimension=8",
        f"mean=mean({one},{two})",
        f"rrf=rrf(bm25,{one})",
        f"rerank=rerank(rrf(bm25,{two}),{cross},20)",
        f"lost=rrf(bm25,{gone})",
        "random",
    ]
    mdcr_json(other, *flags(f"eval {POOLS} --measures map"), "--model", ",".join(systems))
    for manifest in (other / "indexes/vectors").glob("*/*/manifest.json"):
        if json.loads(manifest.read_text())["provenance"]["model"] == str(gone):
            shutil.rmtree(manifest.parent)
    rows = mdcr_json(other, "leaderboard")["tables"]["overall"]
    return {row["system"]: row for row in rows}


def test_costs_are_sums_over_the_parts_and_what_is_unknown_is_never_0(cost: dict[str, dict[str, Any]]) -> None:
    """A tiny classifier has the weights of the encoder and a head."""
    one, two = cost["one"]["parameters"], cost["two"]["parameters"]
    assert one > 0
    expected = {"mean": one + two, "rrf": one, "view": one, "lost": None, "random": 0, "bm25": 0}
    assert {name: cost[name]["parameters"] for name in expected} == expected
    assert cost["rerank"]["parameters"] > 2 * two
    assert {cost[name]["trained_on"] for name in ("mean", "rerank", "lost")} == {"unknown"}
    assert cost["rrf"]["bytes"] == pytest.approx(cost["one"]["bytes"] + cost["bm25"]["bytes"])
    assert cost["rerank"]["bytes"] == pytest.approx(cost["two"]["bytes"] + cost["bm25"]["bytes"])
    seconds = {name: 1 / cost[name]["papers_per_second"] for name in ("two", "bm25", "rerank")}
    assert seconds["rerank"] > seconds["two"] + seconds["bm25"]
    unknown = [cost[name][of] for name in ("lost", "random") for of in ("bytes", "papers_per_second")]
    assert unknown == [None] * 4


@pytest.mark.parametrize(
    ("parts", "year", "flag"),
    [
        ([], 2019, ""),
        ([("", None)], 2019, None),
        ([("sentences: any", 2025)], 2019, ""),
        ([(OTHER, 2019)], 2019, "to 2019"),
        ([(OTHER, 2018)], 2019, ""),
        ([(OTHER, 2018), ("sentences: any", 2025)], 2019, ""),
        ([(OTHER, 2018)], None, None),
        ([(OTHER, None)], 2019, "to an unknown year"),
        ([(OTHER, 2018), (OTHER, None)], 2019, "to an unknown year"),
        ([(OTHER, 2018), ("", None)], 2019, None),
        ([("", None), (OTHER, 2019)], 2019, "to 2019"),
    ],
)
def test_the_flag_of_a_leak_follows_what_is_known_of_every_part(
    parts: list[tuple[str, int | None]], year: int | None, flag: str | None
) -> None:
    training = [Training(on, until) for on, until in parts]
    assert leak({"training": training, "parameters": 1e6 if parts else 0}, year) == flag


def test_a_system_of_unknown_costs_may_leak() -> None:
    assert leak({"training": [], "parameters": None}, 2019) is None
