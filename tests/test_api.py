"""The Python interface against the command line and the artifacts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import pipeline as mdcr
from pipeline.core.errors import InputError
from tests.cli.conftest import root, tiny
from tests.cli.run import flags, mdcr_json

__all__ = ["root", "tiny"]

SETTINGS = {"field": "Medicine", "size": 300, "year": 2019, "queries": 10}
COMMAND = "eval --field Medicine --size 300 --year 2019 --queries 10 --samples 1 --model bm25,lsa"


@pytest.fixture(scope="module")
def workspace(root: Path) -> mdcr.Workspace:
    return mdcr.open(root)


def test_a_pool_is_three_frames(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    counts = pool.pool.artifact.manifest.counts
    assert (len(pool.queries), len(pool.candidates)) == (counts["queries"], counts["candidates"]) == (10, 300)
    assert pool.queries["year"].unique().to_list() == [2019]
    assert len(pool.qrels) == counts["positives"]
    assert set(pool.qrels["query_id"]) <= set(pool.queries["query_id"])
    assert set(pool.qrels["paper_id"]) <= set(pool.candidates["paper_id"])
    texts = dict(pool.pool.corpus.artifact.arrow("papers-00000.arrow").select(["paper_id", "title"]).to_pydict())
    title_of = dict(zip(texts["paper_id"], texts["title"], strict=True))
    assert [title_of[each] for each in pool.candidates["paper_id"]] == pool.candidates["title"].to_list()


def test_evaluate_scores_what_the_command_scores(workspace: mdcr.Workspace) -> None:
    frame = workspace.evaluate(workspace.pool(**SETTINGS), ["bm25", "lsa"])
    rows = mdcr_json(workspace.root, *flags(COMMAND))["rows"]
    means = {
        (system, measure): value
        for system, measure, value in frame.group_by("system", "measure").agg(pl.col("value").mean()).iter_rows()
    }
    shown = {(row["system"], row["measure"]): row["value"] for row in rows if row["measure"] in ("map", "ndcg")}
    assert len(shown) == 4
    assert shown == {key: pytest.approx(means[key], abs=1e-12) for key in shown}
    again = workspace.scores(field="Medicine", systems="lsa", measures="map")
    own = frame.filter(system="lsa")
    assert again.sort("measure", "query").equals(own.sort("measure", "query"))
    assert len(frame.to_pandas()) == len(frame)


def test_a_ranking_has_its_grades(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, "bm25")
    frame = workspace.ranking(pool, "bm25").frame
    first = frame.filter(rank=1)
    assert len(first) == 10
    precision = workspace.scores(systems="bm25").filter(measure="precision@1")["value"].mean()
    assert (first["grade"] > 0).mean() == precision
    for _, entries in frame.group_by("query_id", maintain_order=True):
        assert entries["rank"].to_list() == list(range(1, len(entries) + 1))
        assert entries["score"].is_sorted(descending=True)


def test_a_choice_that_is_not_one_lists_what_there_is(workspace: mdcr.Workspace, tmp_path: Path) -> None:
    pool = workspace.pool(**SETTINGS)
    with pytest.raises(InputError, match="medicine.*physics"):
        workspace.pool(**SETTINGS | {"field": "Medicine,Physics"})
    with pytest.raises(InputError, match="ws.evaluate"):
        workspace.ranking(pool, "bm25", depth=7)
    with pytest.raises(InputError, match="Medicine"):
        workspace.scores(field="Art")
    with pytest.raises(InputError, match="'feild'"):
        workspace.scores(feild="Art")
    with pytest.raises(InputError, match="must be a folder"):
        mdcr.open(tmp_path / "absent")


def test_two_corpora_must_be_told_apart(root: Path, tmp_path: Path) -> None:
    import shutil

    own = shutil.copytree(root, tmp_path / "own")
    mdcr_json(own, *flags("corpus --source synthetic --papers 1k --seed 6 --corpus other"))
    with pytest.raises(InputError, match="other, tiny"):
        mdcr.open(own).pool(**SETTINGS)
    assert mdcr.open(own).corpora() == ["other", "tiny"]


def test_importing_it_is_instant() -> None:
    code = (
        "import sys, pipeline; print(len([m for m in sys.modules if m.split('.')[0] in ('numpy', 'polars', 'torch')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
