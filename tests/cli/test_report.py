"""``show``, ``report`` and ``eval``: every option that chooses or shows has an effect, and is refused where it has none."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.arguments import parser
from pipeline.core.artifact import Artifact
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.stages.pool import exclusions
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.report import published as made
from tests.report.published import BAD, ENCODER, GOOD

Row = Mapping[str, Any]
IVF = {"kind": "ivf", "cells": 1.0, "probes": 0.05, "links": 32, "build": 80, "search": 2.0, "seed": 13}
COMMON = set(flags("root memory workers device repair dry-run json quiet verbose help strict ray-address"))
"""Options of how a command runs."""


def setting(name: str) -> Callable[[Row], Any]:
    return lambda row: json.loads(row["pool_settings"]).get(name)


def rule(name: str) -> Callable[[Row], Any]:
    return lambda row: json.loads(row["pool_settings"])["prefilter"][name]


CHOOSES: dict[str, tuple[str, Callable[[Row], Any], Any]] = {
    "model": ("lsa", lambda row: row["system"], "lsa"),
    "depth": ("10", lambda row: row["depth"], 10),
    "precision": ("bf16", lambda row: row["precision"] in (None, "bfloat16"), True),
    "engine": ("ivf", lambda row: row["engine"] in (None, "exact", "ivf"), True),
    "measures": ("recall@2", lambda row: row["size"], 8),
    "corpus": ("other", lambda row: row["corpus"].split("-")[0], "other"),
    "field": ("Art", lambda row: row["field"], "Art"),
    "year": ("2018", lambda row: row["year"], 2018),
    "size": ("7", setting("size"), 7),
    "queries": ("4", setting("queries"), 4),
    "samples": ("1", lambda row: row["samples"], [1]),
    "seed": ("99", lambda row: row["seed"], 99),
    "split": ("validation", lambda row: row["split"], "validation"),
    "nested": ("", setting("nested"), True),
    "exclude": ("ids.txt", lambda row: len(setting("exclude")(row)), 1),
    "citation-direction": ("total", rule("citation_direction"), "total"),
    "min-citations": ("5", rule("min_citations"), 5),
    "min-abstract-chars": ("9", rule("min_abstract_chars"), 9),
    "positives": ("prefiltered", setting("positives"), "prefiltered"),
    "keep-same-title": ("", setting("drop_same_title"), False),
}
"""A value of every option that chooses, what to look at in each row, and what it must be there."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of pools and systems that differ in one setting each."""
    root = tmp_path_factory.mktemp("scored")
    (root / "ids.txt").write_text("00001\n")
    of, other = made.corpus(root), made.corpus(root, "other", 9)
    pools: list[dict[str, Any]] = [{"year": 2018}, {"candidates": 7}, {"queries": 4}, {"sample": 2}, {"seed": 99}]
    pools += [{"split": "validation"}, {"nested": True}, {"positives": "prefiltered"}, {"drop_same_title": False}]
    pools += [{"field": "Art"}, {"exclude": exclusions([root / "ids.txt"])}]
    for prefilter in ({"citation_direction": "total"}, {"min_citations": 5}, {"min_abstract_chars": 9}):
        pools.append({"prefilter": PrefilterConfig(**prefilter)})  # type: ignore[arg-type]
    bm25 = {"k1": 0.9, "b": 0.4}
    for settings in pools:
        made.score(root, of, made.pool(root, of, **settings), "bm25", **bm25)
    made.score(root, other, made.pool(root, other), "bm25", **bm25)
    pool = made.pool(root, of)
    made.score(root, of, pool, "bm25", measures="map,ndcg,recall@30", **bm25)
    made.score(root, of, pool, "bm25", depth=10, **bm25)
    made.score(root, of, pool, "lsa", BAD, search="exact", encoder=ENCODER, measures="map,ndcg,recall@30,recall@2")
    made.score(root, of, pool, "lsa@ivf", BAD, search=IVF, encoder={**ENCODER, "compute": "bfloat16"})
    made.score(root, of, pool, "lsa@hnsw", BAD, search={**IVF, "kind": "hnsw"}, encoder=ENCODER)
    made.score(root, of, pool, "lsa", BAD, search="exact", encoder={**ENCODER, "compute": "bfloat16"})
    return root


def words(root: Path, name: str, value: str) -> list[str]:
    return [f"--{name}", *([str(root / value) if name == "exclude" else value] if value else [])]


def options_of(command: str) -> set[str]:
    return {text[2:] for text in parser()[1][command]._option_string_actions if text.startswith("--")}


@pytest.mark.parametrize("name", [name for name in CHOOSES if name != "measures"])
def test_an_option_chooses_rows(root: Path, name: str) -> None:
    value, look, expected = CHOOSES[name]
    everything = mdcr_json(root, "show")["rows"]
    chosen = mdcr_json(root, "show", *words(root, name, value))["rows"]
    assert 0 < len(chosen) < len(everything)
    assert {str(look(row)) for row in chosen} == {str(expected)}
    assert any(str(look(row)) != str(expected) for row in everything)
    written = mdcr_json(
        root, "report", "--format", "csv", "--output", str(root / f"by-{name}"), *words(root, name, value)
    )
    lines = [line for file in written["files"] for line in csv.DictReader(Path(file).open())]
    assert [(line["label"], line["measure"], float(line["value"])) for line in lines] == [
        (row["label"], row["measure"], row["value"]) for row in chosen
    ]


def test_a_choice_that_fits_nothing_says_what_there_is(root: Path) -> None:
    for given, said in (
        ("--seed 7", "--seed must be one of 13, 99 here, got 7"),
        ("--year 1999", "--year must be one of 2018, 2019 here, got 1999"),
        ("--depth 11", "--depth must be one of 10, 500 here, got 11"),
        ("--field Physics", "--field must be Art here, got Physics"),
        ("--model bm52", "--model must name systems that were scored on these pools, got 'bm52'"),
        ("--precision fp16", "--precision must be one of bfloat16, float32 here, got float16"),
        ("--engine cagra", "--engine must be one of exact, hnsw, ivf here, got cagra"),
        ("--measures mrr", "mrr was not scored for any of these rows. Run mdcr eval --measures mrr"),
        ("--measures recall@1000", "Run mdcr eval --measures recall@1000 --depth 1000"),
    ):
        for command in ("show", "report"):
            assert said in one_line_error(mdcr(root, command, *flags(given)))


def test_options_that_show(root: Path) -> None:
    own = flags(
        "show --corpus tiny --seed 13 --year 2019 --queries 3 --split test --model bm25,lsa --depth 500 --size 8"
    )
    own += flags("--min-citations 3 --citation-direction outbound --min-abstract-chars 30 --positives corpus")
    plain = mdcr(root, *own, "--engine", "exact", "--precision", "fp32")
    assert "\nbm25 " in plain.stdout.split("Retrieval by pool size, Art")[0]
    for more, sign, absent in (
        ("--measures recall@2,map", "R@2", "NDCG"),
        ("--baseline lsa", "differs from lsa", "differs from bm25"),
        ("--sort map", "\nbm25 ", "nothing"),
        ("--format markdown", "| system |", "----"),
        ("--format csv", "system,label,corpus", "----"),
        ("--format latex", "\\toprule", "----"),
    ):
        shown = mdcr(root, *own, "--engine", "exact", "--precision", "fp32", *flags(more))
        assert shown.returncode == 0, shown.stderr
        assert sign in shown.stdout
        assert absent not in shown.stdout
    order = mdcr(root, *own, "--sort", "map").stdout
    assert order.index("\nbm25 ") < order.index("\nlsa ")
    turned = mdcr(root, *own[:-8], "--model", "lsa,bm25").stdout
    assert turned.index("\nlsa ") < turned.index("\nbm25 ")
