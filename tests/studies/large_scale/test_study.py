"""The study, run as users run it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline
from tests.cli.run import COMMAND, flags, mdcr, mdcr_json, one_line_error, scores_of

RECIPE = """
corpus = "tiny"
fields = "dataset,Medicine,Physics"
sizes = ["900", "1200", "all"]
year = 2019
queries = "12"
samples = 2
seed = 13
nested = true
positives = "corpus"
systems = "bm25:k1=0.9,b=0.4,lsa"
baseline = "bm25"
depth = 100
own = { Medicine = { sizes = ["all"], queries = "5" }, Physics = { sizes = ["all"], queries = "5" } }
"""
TABLES = {*("table-1", "table-2", "table-7", "table-8", "tests")}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE)
    return [*flags("study large_scale --recipe"), str(file)]


@pytest.fixture(scope="module")
def found(root: Path, recipe: list[str]) -> Any:
    return mdcr_json(root, *recipe)


def test_it_writes_every_table_and_figure(found: Any) -> None:
    assert set(found["tables"]) == TABLES
    folder = Path(found["folder"])
    written = {path.name for path in folder.iterdir()}
    assert {f"{name}.{end}" for name in TABLES for end in ("md", "csv", "tex")} <= written
    assert {"sizes-dataset-map.svg", "study.json"} <= written
    assert "without abstract" in (folder / "table-1.md").read_text()
    page = (folder / "index.html").read_text()
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert "Score against pool size (dataset level)" in headings
    charted = [place for place, part in enumerate(re.split("<h2>", page)[1:]) if '<div data-chart="' in part]
    assert charted == list(range(len(charted)))
    assert re.findall('aria-label="(Charts|Tables|Browse)"', page) == ["Charts", "Tables", "Browse"]
    row = next(csv.DictReader((folder / "table-1.csv").open()))
    interval = f"{100 * float(row['value']):.1f} [{100 * float(row['low']):.1f}, {100 * float(row['high']):.1f}]"
    assert f"| {row['system']} | {interval} |" in (folder / "table-1.md").read_text()
    assert "<img" not in page
    assert len(json.loads((folder / "study.json").read_text())["sources"]) == 1 + 2 * 2 + 1 + 2


def test_its_figures_are_those_of_the_scores(root: Path, found: Any) -> None:
    rows = list(csv.DictReader((Path(found["folder"]) / "table-1.csv").open()))
    scores = pipeline.open(root).scores(corpus="tiny", size="900,1200,all", queries=12, nested=True, depth=100)
    means = scores.group_by("system", "size", "measure").agg(pl.col("value").mean())
    expected = {(system, size, measure): value for system, size, measure, value in means.iter_rows()}
    assert len(rows) == 2 * 3 * 3
    for row in rows:
        assert float(row["value"]) == pytest.approx(expected[row["system"], int(row["size"]), row["measure"]])


def test_a_new_system_or_pool_makes_what_is_new_alone(root: Path, recipe: list[str], found: Any) -> None:
    before = scores_of(root)
    assert not mdcr_json(root, *recipe, "--dry-run")["plan"]
    fused = [*recipe, "--model", "bm25:k1=0.9,b=0.4,lsa,rrf(bm25:k1=0.9,b=0.4,lsa)"]
    plan = {row["stage"]: row["make"] for row in mdcr_json(root, *fused, "--dry-run")["plan"]}
    pools = 2 * 2 + 1 + 2
    assert plan == {"search": pools, "score": pools}
    mdcr_json(root, *fused)
    larger = [*recipe, "--set", 'sizes=["900","1200","1300","all"]']
    plan = {row["stage"]: row["make"] for row in mdcr_json(root, *larger, "--dry-run")["plan"]}
    assert (plan["pool"], plan["search"], plan["score"]) == (2, 4, 4)
    after = scores_of(root)
    assert {name: after[name] for name in before} == before


@pytest.mark.kill
def test_a_killed_study_goes_on(tiny: Path, tmp_path: Path, recipe: list[str], root: Path, found: Any) -> None:
    own = shutil.copytree(tiny, tmp_path / "root")
    small = [*recipe, "--set", 'fields=dataset;own={};sizes=["900"];samples=1']
    process = subprocess.Popen([*COMMAND, *small, "--root", str(own)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and not list(own.glob("runs/scores/[!.]*/manifest.json")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = scores_of(own)
    assert mdcr_json(own, *small)["tables"] == mdcr_json(root, *small)["tables"]
    whole = scores_of(own)
    assert {name: whole[name] for name in kept} == kept
    theirs = scores_of(root)
    assert {name: theirs[name] for name in whole} == whole


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("fields=Medicin", "Medicin"),
        ("own={Art={queries='3'}}", "Art"),
        ("own={Medicine={querys='3'}}", "querys"),
        ("fields=", "'Medicine' has settings, but is not studied"),
    ],
)
def test_bad_settings_are_one_line(root: Path, recipe: list[str], setting: str, named: str, found: Any) -> None:
    assert named in one_line_error(mdcr(root, *recipe, "--set", setting))
