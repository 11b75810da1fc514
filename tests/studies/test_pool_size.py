"""The example of a study, run as users run it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

SMALL = flags("study pool_size --corpus tiny")
SMALL += ["--set", "sizes=[300,600]", "--set", "queries=10", "--set", "samples=2"]


def test_it_writes_what_eval_scores_and_makes_nothing_twice(root: Path) -> None:
    before = mdcr_json(root, *SMALL, "--dry-run")["plan"]
    assert {row["stage"] for row in before} >= {"pool", "terms", "embed", "search", "score"}
    found = mdcr_json(root, *SMALL)
    assert not mdcr_json(root, *SMALL, "--dry-run")["plan"]
    folder = Path(found["folder"])
    assert folder == root / "runs/reports/pool_size"
    written = {path.name for path in folder.iterdir()}
    assert {"index.html", "scores.md", "scores.csv", "scores.tex", "study.json"} <= written
    assert {"sizes-dataset-map.svg", "sizes-dataset-recall-at-30.svg"} <= written
    page = (folder / "index.html").read_text()
    assert '<script type="text/plain" id="pool-' in page
    index = (folder.parent / "index.html").read_text()
    assert 'href="pool_size/index.html"' in index
    record = json.loads((folder / "study.json").read_text())
    assert record["recipe"]["queries"] == "10"
    assert len(record["sources"]) == 1 + 2 * 2
    rows = list(csv.DictReader((folder / "scores.csv").open()))
    evaluated = flags(
        "eval --corpus tiny --year 2019 --size 300,600 --queries 10 --samples 2 --nested --model bm25,lsa"
    )
    plan = mdcr_json(root, *evaluated, "--dry-run")["plan"]
    assert all(step["present"] for step in plan)
    assert {(row["system"], row["size"], row["measure"]) for row in rows} == {
        (system, size, measure)
        for system in ("bm25", "lsa")
        for size in ("300", "600")
        for measure in ("map", "ndcg", "recall@30")
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["study", "pool_sise"], "pool_size"),
        (["study", "pool_size", "--set", "sampels=2"], "samples"),
        (["study", "pool_size", "--set", "samples"], "name=value"),
        (["study", "pool_size", "--set", "seed=x"], "seed must be a whole number, got 'x'"),
        (["study", "pool_size", "--set", "sizes=[0.5]"], "sizes must be a list"),
        (["study", "large_scale", "--set", "positives=all"], "positives must be corpus, prefiltered or strangers"),
        (
            ["study", "large_scale", "--corpus", "tiny", "--model", "lsa"],
            "baseline must be one of lsa, got 'bm25:tuned'",
        ),
        (["study", "scirepeval", "--set", "edition=26"], "edition must be 24 or 25, got 26"),
        (["study", "scirepeval", "--set", "resamples=0"], "resamples must be at least 1, got 0"),
        (["study", "pool_size", "--recipe", "absent.toml"], "absent.toml"),
        (["study", "pool_size", "--corpus", "absent"], "absent"),
        (["study", "neighbours"], "for the corpus of mdcr demo; give another of English abstracts with --corpus"),
        (["study", "neighbours", "--input", "nowhere"], "the input folder nowhere does not exist"),
        (["study", "scirepeval"], "hf download allenai/"),
        (["study", "facets"], "git clone https://github.com/iesl/CSFCube csfcube"),
    ],
)
def test_bad_input_is_one_line(root: Path, arguments: list[str], named: str) -> None:
    assert named in one_line_error(mdcr(root, *arguments))


def test_a_recipe_must_be_complete(root: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "half.toml"
    recipe.write_text('corpus = "tiny"\nsamples = 1\n')
    line = one_line_error(mdcr(root, "study", "pool_size", "--recipe", str(recipe)))
    assert "lacks" in line
    assert "depth" in line


def test_tuned_bm25_is_tuned_first(root: Path) -> None:
    arguments = [*flags("study pool_size --corpus tiny --model bm25:tuned"), *SMALL[4:], "--set", "sizes=300"]
    assert {"tune"} == {row["stage"] for row in mdcr_json(root, *arguments, "--dry-run")["plan"]} & {"tune", "score"}
    found = mdcr_json(root, *arguments)
    assert {row["system"] for row in found["tables"]["scores"]} == {"bm25"}


def test_several_fields_have_a_table_at_each_size(root: Path) -> None:
    arguments = [*flags("study pool_size --corpus tiny --model bm25"), "--set", 'sizes=["300","400"]']
    arguments += ["--set", "field=Medicine,Physics", "--set", "queries=5", "--set", "samples=1"]
    tables = mdcr_json(root, *arguments)["tables"]
    sizes = [{row["size"] for row in tables[name]} for name in ("scores", "scores-2")]
    assert sizes == [{300}, {400}]
    assert {row["field"] for rows in tables.values() for row in rows} == {"Medicine", "Physics", "AVG"}


def test_studies_are_listed(root: Path) -> None:
    assert mdcr_json(root, "study")["studies"][0]["study"] == "pool_size"
