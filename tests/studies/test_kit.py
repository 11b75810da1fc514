"""The study kit against plain references: positives, gains, pools of one's own, tables, plans."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mdcr
import numpy as np
import polars as pl
import pytest

from pipeline.studies import kit
from pipeline.studies.run import plan, run

RECIPE = SimpleNamespace(corpus="tiny", systems="bm25,newest", depth=50, baseline="bm25")


def pools(workspace: kit.Workspace) -> list[kit.Task]:
    return kit.pool_tasks(workspace, RECIPE, kit.selection(size=300, year=2019, queries=8, samples=2))


def steps_of(tasks_of: Any) -> Any:
    """Return a study that scores the pools of a function, and keeps what it found."""
    kept: dict[str, Any] = {}

    @kit.study("kept", "keeps what it found", SimpleNamespace)
    def study(workspace: kit.Workspace, recipe: Any) -> kit.Steps:
        kept["found"] = yield from kit.scored(workspace, recipe, tasks_of(workspace))
        return kit.Report([])

    return study, kept


@pytest.fixture(scope="module")
def found(root: Path) -> kit.Scored:
    study, kept = steps_of(pools)
    run(mdcr.open(root), study, RECIPE)
    return kept["found"]


def test_positives_are_those_of_the_lists(found: kit.Scored) -> None:
    assert found.labels == ["bm25", "newest"]
    assert len(found.sources) == 1 + 2
    for pool in found.runs["pool"].unique():
        opened = found.open(pool)
        for label, ranked in opened.runs.items():
            own = found.positives.filter(pool=pool, label=label)
            for query in range(len(opened.pool.query_rows)):
                papers = ranked.rows[ranked.offsets[query] : ranked.offsets[query + 1]].tolist()
                relevant = opened.qrels.rows[opened.qrels.offsets[query] : opened.qrels.offsets[query + 1]].tolist()
                rank_of = {row: rank for rank, row in enumerate(papers, 1)}
                rows = own.filter(query=query)
                assert dict(rows.select("paper", "rank").iter_rows()) == {row: rank_of.get(row) for row in relevant}
                hits = sorted(rank_of[row] for row in relevant if row in rank_of)
                precision = {rank: number / rank for number, rank in enumerate(hits, 1)}
                assert rows["precision"].to_list() == [precision.get(rank, 0.0) for rank in rows["rank"]]
        attributes = opened.pool.corpus.attributes
        assert own["abstract"].to_list() == (attributes["abstract_chars"][own["paper"]] > 0).tolist()


def test_their_mean_precision_is_map_and_gains_are_differences(found: kit.Scored) -> None:
    of_query = found.positives.group_by("label", "pool", "query").agg(pl.mean("precision"))
    both = found.values.filter(measure="map").join(of_query, on=["label", "pool", "query"])
    assert both["precision"].to_list() == pytest.approx(both["value"].to_list())
    wide = both.pivot("label", index=["pool", "query"], values="value")
    gains = found.gains("bm25").join(wide, on=["pool", "query"])
    assert set(gains["label"]) == {"newest"}
    assert gains["value"].to_list() == (gains["newest"] - gains["bm25"]).to_list()


def test_a_pool_of_ones_own_is_scored_like_any_other(root: Path) -> None:
    workspace = mdcr.open(root)

    def oldest(draw: kit.Draw) -> np.ndarray:
        rows = np.flatnonzero(draw.may_be).astype(np.uint32)
        return rows[np.argsort(draw.pool.corpus.attributes["year"][rows], kind="stable")[: draw.count]]

    def tasks_of(workspace: kit.Workspace) -> list[kit.Task]:
        return [kit.with_negatives(pool, "oldest", oldest) for pool in pools(workspace)]

    study, kept = steps_of(tasks_of)
    planned, remark = plan(workspace, study, RECIPE)
    assert {step.task.stage for step in planned if not step.present} == {"pool", "terms", "search", "score"}
    assert "planned once these are made" in remark
    assert "found" not in kept
    run(workspace, study, RECIPE)
    (first, *_) = pools(workspace)
    base, own = (workspace.view(task).pool for task in (first, tasks_of(workspace)[0]))
    assert own.artifact.manifest.config == base.artifact.manifest.config | {"negatives": "oldest"}
    assert own.qrels.equals(base.qrels)
    positives = own.qrels.column("row").to_numpy()
    years = own.corpus.attributes["year"]
    drawn = np.setdiff1d(own.candidates, positives)
    others = np.setdiff1d(base.candidates, own.candidates)
    assert years[drawn].max() <= years[others].min()


FRAME = pl.DataFrame(
    [("a", "x", 1, 0.5, 0.4, 0.6), ("a", "y", 1, None, None, None), ("AVG", "x", 2, 0.25, None, None)],
    ["system", "measure", "size", "value", "low", "high"], orient="row",
)  # fmt: skip


def test_a_frame_is_a_table_with_a_line_for_each_row() -> None:
    columns: kit.Columns = {
        "value": "{value:.2f}",
        "twice": lambda row: f"{row['size'] * 2}",
        "in percent": kit.figure(),
    }
    shown = kit.table("t", "T", FRAME, "{system}, {measure}", columns)
    assert shown.corner == "system, measure"
    assert [str(column) for column in shown.columns] == ["value", "twice", "in percent"]
    assert [(line.label, *map(str, line.values)) for line in shown.lines] == [
        ("a, x", "0.50", "2", "50.0 [40.0, 60.0]"), ("a, y", "None", "2", "None"), ("AVG, x", "0.25", "4", "25.0"),
    ]  # fmt: skip
    assert shown.frame.equals(FRAME)


def test_a_long_frame_is_a_table_with_a_column_for_each_heading() -> None:
    shown = kit.table("t", "T", FRAME, "row: {system}", kit.figure(), across="{measure}", group="{size}", last=["AVG"])
    assert shown.corner == "row"
    assert [(column.group, column.label) for column in shown.columns] == [("1", "x"), ("1", "y"), ("2", "x")]
    assert [[line.label, line.summary, *map(str, line.values)] for line in shown.lines] == [
        ["a", False, "50.0 [40.0, 60.0]", "None", "None"], ["AVG", True, "None", "None", "25.0"],
    ]  # fmt: skip
