"""``mdcr export`` and runs of other tools in ``mdcr score``: files, figures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from pipeline.core.artifact import published
from pipeline.core.workspace import RANKINGS
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

POOL = flags("--corpus tiny --year 2019 --size 900 --queries 20 --samples 1")


@pytest.fixture(scope="module")
def out(root: Path) -> Path:
    """Return a folder with rankings in every format; the systems are scored."""
    folder = root / "out"
    mdcr_json(root, "eval", *POOL, "--model", "bm25,lsa")
    for form in ("trec", "json"):
        words = ("--model", "bm25,lsa", "--format", form, "--output", str(folder / "runs"))
        assert len(mdcr_json(root, "export", "run", *POOL, *words)["exported"]) == 2
    return folder


def values(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {(row["system"], row["measure"]): row["value"] for row in rows}


def run_of(out: Path, system: str, ending: str) -> Path:
    (path,) = (out / "runs").glob(f"{system}-*.{ending}")
    return path


def test_a_pool_that_is_missing_is_made_with_its_run(root: Path, tmp_path: Path) -> None:
    pool = flags("--corpus tiny --year 2019 --size 800 --queries 15 --samples 1 --model newest")
    (exported,) = mdcr_json(root, "export", "run", *pool, "--output", str(tmp_path))["exported"]
    assert len({line.split()[0] for line in Path(exported).read_text().splitlines()}) == 15


@pytest.mark.parametrize("ending", ["trec", "json"])
def test_an_exported_run_scores_what_it_scored(root: Path, out: Path, tmp_path: Path, ending: str) -> None:
    mine = tmp_path / f"mine.{ending}"
    mine.write_bytes(run_of(out, "bm25", ending).read_bytes())
    scored = values(mdcr_json(root, "score", *POOL, "--model", "bm25", "--run", str(mine))["rows"])
    ours = {measure: value for (system, measure), value in scored.items() if system == "bm25"}
    assert ours == {measure: value for (system, measure), value in scored.items() if system != "bm25"}
    assert len(ours) >= 6


def test_a_run_is_fused_and_shown_beside_ours(root: Path, out: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_bytes(run_of(out, "lsa", "json").read_bytes())
    model = f"rrf(bm25,lsa),rrf(bm25,run:{mine})"
    scored = values(mdcr_json(root, "score", *POOL, "--model", model)["rows"])
    assert scored["rrf(bm25,lsa)", "map"] == scored["rrf(bm25,mine)", "map"]
    shown = mdcr(root, "score", *POOL, "--run", str(mine)).stdout
    assert "mine" in shown
    assert "mine" in mdcr(root, "show", "table").stdout


def test_what_is_missing_or_unknown_is_counted_and_said(root: Path, out: Path, tmp_path: Path) -> None:
    run = json.loads(run_of(out, "bm25", "json").read_text())
    first, second, *_ = run
    run = {query: documents for query, documents in run.items() if query != first}
    run |= {second: {**run[second], "nowhere": 99.0}, "nobody": {"nowhere": 1.0}}
    (tmp_path / "partly.json").write_text(json.dumps(run))
    words = ("score", *POOL, "--run", str(tmp_path / "partly.json"))
    assert "name a query that tiny-" in one_line_error(mdcr(root, *words))
    allowed = mdcr(root, *words, "--allow-unknown")
    assert allowed.returncode == 0
    assert "1 query without results scored 0; 1 entry of unknown queries left out" in allowed.stderr
    assert "1 entry of unknown documents left out" in allowed.stderr
    assert "Queries without results, scored 0: partly 1" in " ".join(allowed.stdout.split())
    (made,) = [ranking for ranking in published(root / RANKINGS) if ranking.manifest.config.get("name") == "partly"]
    counts = made.manifest.counts
    assert counts["read"] == counts["entries"] + 2
    assert (counts["queries_without_results"], counts["unknown_queries"], counts["unknown_documents"]) == (1, 1, 1)


def test_scores_are_one_tidy_table(root: Path, out: Path, tmp_path: Path) -> None:
    words = ("export", "scores", "--corpus", "tiny", "--model", "bm25,lsa", "--output", str(tmp_path), "--format")
    frame = pl.read_csv(mdcr_json(root, *words, "csv")["exported"][0])
    table = pl.read_parquet(mdcr_json(root, *words, "parquet")["exported"][0])
    assert frame["value"].to_list() == table["value"].to_list()
    assert len(table) == len(table.unique(["system", "pool", "query_id", "measure"]))
    grouped = table.group_by("system", "measure").agg(pl.mean("value")).iter_rows()
    means = {(system, measure): value for system, measure, value in grouped}
    shown = values(mdcr_json(root, "eval", *POOL, "--model", "bm25,lsa")["rows"])
    assert means.keys() == shown.keys()
    assert all(means[key] == pytest.approx(value, abs=1e-12) for key, value in shown.items())
    for path in map(Path, mdcr_json(root, *words, "eval_results")["exported"]):
        entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
        found = {entry.task_id.rpartition("-")[2]: entry.value for entry in entries}
        assert found["map"] == pytest.approx(100 * shown[path.parts[-3], "map"])
        assert all("95% interval" in str(entry.notes) for entry in entries)
