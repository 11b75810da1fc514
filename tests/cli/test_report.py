"""``show``, ``report`` and ``eval``: every option that chooses or shows has an effect, or is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.arguments import parser
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.stages.pool import exclusions
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.scores import published as made
from tests.scores.published import BAD, ENCODER

Row = Mapping[str, Any]
IVF = {"kind": "ivf", "cells": 1.0, "probes": 0.05, "links": 32, "build": 80, "search": 2.0, "seed": 13}
COMMON = set(flags("root memory workers device repair dry-run json quiet verbose help strict ray-address what"))
"""Options of how a command runs."""


def setting(name: str) -> Callable[[Row], Any]:
    return lambda row: json.loads(row["pool_settings"]).get(name)


def rule(name: str) -> Callable[[Row], Any]:
    return lambda row: json.loads(row["pool_settings"])["prefilter"][name]


CHOOSES: dict[str, tuple[str, Callable[[Row], Any], Any]] = {
    "model": ("lsa", lambda row: row["system"].partition("@")[0], "lsa"),
    "depth": ("10", lambda row: row["depth"], 10),
    "precision": ("bf16", lambda row: row["precision"] in (None, "bfloat16"), True),
    "engine": ("ivf", lambda row: row["engine"] in (None, "exact", "ivf"), True),
    "measures": ("recall@2", lambda row: row["size"], 8),
    "missing-positives": ("count", lambda row: json.loads(row["settings"])["missing_positives"], "count"),
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
    given = made.pool(root, of, queries_are="texts")
    for way in ("ignore", "count"):
        made.score(root, of, given, "bm25", missing_positives=way, **bm25)
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
    lines = [line for file in written["files"] for line in csv.DictReader(Path(file).read_text().splitlines())]
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


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of two systems on two samples of one pool."""
    root = tmp_path_factory.mktemp("two")
    of = made.corpus(root)
    for sample in (1, 2):
        pool = made.pool(root, of, sample=sample)
        made.score(root, of, pool, "bm25", measures="map,ndcg,recall@30,recall@2", k1=0.9, b=0.4)
        made.score(root, of, pool, "lsa", BAD, measures="map,ndcg,recall@30", search="exact", encoder=ENCODER)
    return root


SHOWS = {
    "measures": ("recall@2,map", "R@2", "NDCG"),
    "baseline": ("lsa", "differs from lsa", "differs from bm25"),
    "sort": ("map", "\nlsa", None),
    "format": ("markdown", "| system |", "----"),
}
"""A value of every option that shows, what it adds to a table, and what it removes."""


@pytest.mark.parametrize("name", SHOWS)
def test_an_option_shows(two: Path, name: str) -> None:
    value, sign, absent = SHOWS[name]
    plain, shown = mdcr(two, "show"), mdcr(two, "show", f"--{name}", value)
    assert (plain.returncode, shown.returncode) == (0, 0), shown.stderr
    assert shown.stdout != plain.stdout
    assert sign in shown.stdout
    assert absent is None or absent not in shown.stdout
    kind = "csv" if name == "format" else value
    folders = [mdcr_json(two, "report", *more)["reports"] for more in ([], [f"--{name}", kind])]
    texts = [(Path(folder) / "table.csv").read_text() for (folder,) in folders]
    if name in ("sort", "measures"):  # CSV holds all measures, whichever are shown
        assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines())
    assert (folders[0] == folders[1]) == (name == "format")


def test_rows_have_the_order_asked_for(two: Path) -> None:
    def rows(*more: str) -> list[str]:
        shown = mdcr(two, "show", *more).stdout
        return [line.split()[0] for line in shown.splitlines() if line.startswith(("bm25", "lsa"))][:2]

    assert rows() == rows("--model", "bm25,lsa") == ["bm25", "lsa"]
    assert rows("--model", "lsa,bm25") == rows("--sort", "map") == ["lsa", "bm25"]


def test_json_and_csv_have_the_same_fields(two: Path) -> None:
    rows = mdcr_json(two, "show")["rows"]
    (folder,) = mdcr_json(two, "report", "--model", "lsa,bm25")["reports"]
    lines = list(csv.DictReader((Path(folder) / "table.csv").read_text().splitlines()))
    assert list(lines[0]) == list(rows[0])
    assert {row["measure"] for row in rows} == {"map", "ndcg", "recall@2", "recall@30"}
    assert [row["sample"] for row in rows].count(None) == len(rows) / 3
    assert any(row["p_adjusted"] is not None and row["baseline"] == "bm25" for row in rows)
    printed = mdcr(two, "show", "--format", "csv", "--model", "lsa,bm25").stdout
    assert printed == (Path(folder) / "table.csv").read_text()


def test_a_baseline_that_is_not_there_lists_the_systems(two: Path) -> None:
    for command in ("show", "report"):
        error = one_line_error(mdcr(two, command, "--baseline", "bm52"))
        assert "the baseline must be one of bm25, lsa on these pools, got 'bm52'" in error


def test_a_dry_run_writes_nothing_and_a_report_writes_what_it_said(two: Path, tmp_path: Path) -> None:
    words = ["report", "--output", str(tmp_path / "out"), "--sort", "map"]
    before = sorted(two.rglob("*"))
    planned = mdcr_json(two, *words, "--dry-run")
    said = mdcr(two, *words, "--dry-run").stdout.splitlines()
    assert sorted(two.rglob("*")) == before
    assert not (tmp_path / "out").exists()
    written = mdcr_json(two, *words)
    assert planned.pop("dry_run") is True
    assert {key: sorted(value) for key, value in written.items()} == {k: sorted(v) for k, v in planned.items()}
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(map(str, files)) == sorted(written["files"]) == sorted(said)


def test_folders_have_names_that_stay_and_tell_choices_apart(two: Path, tmp_path: Path) -> None:
    def names(*more: str) -> list[str]:
        found = mdcr_json(two, "report", "--dry-run", *more)["reports"]
        return [str(Path(folder).relative_to(two / "runs/reports")) for folder in found]

    assert names() == names("--seed", "13") == ["tiny_2019_queries-3_seed-13"]
    assert names("--model", "lsa,bm25", "--sort", "map") == ["tiny_2019_queries-3_seed-13_model-lsa+bm25_by-map"]
    many = [f"--{name}={value}" for name, value in (("samples", 1), ("depth", 500), ("baseline", "lsa"), ("size", 8))]
    assert len({*names(), *(name for each in many for name in names(each))}) == 5
    long = names("--model", "lsa,bm25", "--measures", "map,ndcg,recall@2,recall@30", *many)
    assert max(map(len, long)) <= 120
    assert long != names("--model", "lsa,bm25", "--measures", "map,ndcg,recall@30,recall@2", *many)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("show corpora --depth 10", "--depth has no effect on mdcr show corpora"),
        ("show pools --model lsa", "--model has no effect on mdcr show pools"),
        ("show measures --corpus tiny", "--corpus has no effect on mdcr show measures"),
        ("show table --spot 4", "--spot has no effect on mdcr show table. It is of mdcr show vectors"),
        ("show table --output x", "It is of mdcr show corpus"),
        ("show --tolerance 0.1", "--tolerance must go with --check"),
        ("show --check x.csv --json", "--check cannot be combined with --json"),
        ("show --format csv --json", "--format cannot be combined with --json"),
        ("report --format terminal", "--format of files must be markdown, csv, latex, figures, page, got 'terminal'"),
        ("show --precision fp31", "--precision 'fp31' is unknown"),
    ],
)
def test_an_option_without_effect_is_refused(two: Path, given: str, said: str) -> None:
    assert said in one_line_error(mdcr(two, *flags(given)))


@pytest.mark.parametrize("given", ["show --bm25-engine lucene", "report --measure-engine ranx", "show --ray-address x"])
def test_an_option_that_decides_no_score_is_unknown(two: Path, given: str) -> None:
    assert mdcr(two, *flags(given)).returncode == 2


def test_pools_are_chosen_like_scores(root: Path) -> None:
    everything = mdcr_json(root, "show", "pools")["pools"]
    for name in ("corpus", "field", "year", "size", "seed", "split", "samples", "min-citations", "exclude"):
        found = mdcr_json(root, "show", "pools", *words(root, name, CHOOSES[name][0]))["pools"]
        assert 0 < len(found) < len(everything), name


def test_every_option_is_tried() -> None:
    for command in ("show", "report"):
        tried = {*CHOOSES, *SHOWS, "output", "spot", "check", "tolerance"}
        assert options_of(command) <= tried | COMMON
    assert options_of("eval") - COMMON == {
        *MAKES,
        *SHOWS,
        "corpus",
        "bm25-engine",
        "measure-engine",
        "missing-positives",
        "allow-unknown",
        "run",
        *("benchmark", "scores", "export-scores", "bm25-index"),  # tests/studies/mdcr
    }


MAKES = {name: value for name, (value, _, _) in CHOOSES.items()} | {"model": "bm25", "size": "901"}
MAKES = {name: value for name, value in MAKES.items() if name not in ("corpus", "missing-positives")}
MAKES |= {"engine": "hnsw", "field": "Medicine", "queries": "9", "year": "2017", "measures": "f1"}
BASE = flags("eval --size 900 --queries 20 --samples 2 --model lsa --dry-run")


@pytest.mark.java
@pytest.mark.parametrize("name", [name for name in MAKES if name != "precision"])
def test_an_option_of_eval_decides_what_is_made(tiny: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "ids.txt").write_text("00001\n")
    plain, other = (
        {step["name"] for step in mdcr_json(tiny, *BASE, *more)["plan"]}
        for more in ([], words(tmp_path, name, MAKES[name]))
    )
    assert plain != other


@pytest.mark.java
def test_eval_shows_what_it_was_asked_for(root: Path, own: Path) -> None:
    words = flags("eval --size 900 --queries 20 --samples 1 --model bm25,lsa")
    plain = mdcr(own, *words)
    assert plain.returncode == 0, plain.stderr
    for name, (value, sign, absent) in {**SHOWS, "measures": ("recall@7,map", "R@7", "NDCG")}.items():
        shown = mdcr(own, *words, f"--{name}", value)
        assert shown.returncode == 0, shown.stderr
        assert sign in shown.stdout
        assert absent is None or absent not in shown.stdout
        assert shown.stdout != plain.stdout
    shallow = mdcr(own, *flags("eval --size 900 --queries 20 --samples 1 --model bm25 --depth 10")).stdout
    assert "top 10)" in shallow
    assert "lsa" not in shallow
    rows = mdcr_json(own, *words)["rows"]
    scored = {row["measure"] for row in rows}
    stored = mdcr_json(own, "show", "--depth", "500", "--model", "bm25,lsa")["rows"]
    assert {row["measure"] for row in stored} - scored == {"recall@7"}  # asked for by an earlier command
    figures = [(row["label"], row["measure"], row["value"], row["low"], row["p_value"]) for row in rows]
    assert figures == [
        (row["label"], row["measure"], row["value"], row["low"], row["p_value"])
        for row in stored
        if row["measure"] in scored
    ]
    mixed = mdcr(own, "show").stdout
    assert "bm25 (depth 10)" in mixed
    assert "lsa (depth 500)" in mixed
    assert "top 10 (bm25 (depth 10)) and the top 500" in " ".join(mixed.split())
