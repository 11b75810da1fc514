"""The Python interface against the command line and the artifacts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from IPython.core.formatters import DisplayFormatter

import pipeline as mdcr
from pipeline.api import selection
from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.corpus.poolconfig import PoolConfig
from tests.cli.conftest import root, tiny
from tests.cli.run import flags, mdcr_json
from tests.stages.making import flip

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
    papers = pl.DataFrame(pool.pool.corpus.artifact.arrow("papers-00000.arrow")).select("paper_id", "title", "abstract")
    shown = pool.candidates.select(papers.columns)
    assert shown.equals(shown.select("paper_id").join(papers, on="paper_id", how="left", maintain_order="left"))


def test_views_print_one_line(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    assert re.fullmatch(r"<pool tiny-medicine\S+: 10 queries, 300 candidates, \d+ positives>", repr(pool))
    assert repr(workspace) == f"<workspace {workspace.root}: tiny>"


def test_a_notebook_needs_no_terminal(tmp_path: Path) -> None:
    """It builds a corpus and tunes as the commands do, and shows its plots as pictures, without a backend."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    workspace, theirs = mdcr.open(tmp_path / "ours"), tmp_path / "theirs"
    corpus = workspace.build("synthetic", corpus="tiny", papers=3_000, seed=5)
    mdcr_json(theirs, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))
    assert (workspace.corpora(), len(corpus)) == (["tiny"], 3_000)
    (tuned,) = workspace.tune(**SETTINGS).rows(named=True)
    (printed,) = mdcr_json(theirs, *flags(COMMAND.replace("eval", "tune").split(" --samples")[0]))["tunings"]
    assert tuned["tuning"] == Path(printed["path"]).name
    assert (tuned["k1"], tuned["b"], tuned["map"]) == tuple(printed["counts"][name] for name in ("k1", "b", "map"))
    figure = mdcr.plot.by_field(workspace.evaluate(workspace.pool(**SETTINGS), "bm25"))
    shown, _ = DisplayFormatter().format(figure)
    assert shown["image/png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        ("synthetic", {"input": "somewhere"}, "source synthetic takes no --input, got somewhere"),
        ("parquet", {}, "must have the folder of the release. Give it with --input"),
        ("jsonl", {"input": ".", "colums": {"title": "headline"}}, "no option --colums. Did you mean '--columns'"),
    ],
)
def test_a_corpus_that_cannot_be_built(workspace: mdcr.Workspace, source: str, settings: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        workspace.build(source, **settings)
    assert said in str(error.value)


def test_evaluate_scores_what_the_command_scores(workspace: mdcr.Workspace) -> None:
    frame = workspace.evaluate(workspace.pool(**SETTINGS), ["bm25", "lsa"])
    rows = mdcr_json(workspace.root, *flags(COMMAND))["rows"]
    means = {names: part["value"].mean() for names, part in frame.group_by("system", "measure")}
    assert {(row["system"], row["measure"]): row["value"] for row in rows} == pytest.approx(means, abs=1e-12)
    again = workspace.scores(field="Medicine", systems="lsa", measures="map")
    assert again.sort("measure", "query").equals(frame.filter(system="lsa").sort("measure", "query"))
    assert len(frame.to_pandas()) == len(frame)


def test_a_ranking_has_its_grades(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, "bm25")
    frame = workspace.ranking(pool, "bm25")
    first = frame.filter(rank=1)
    assert len(first) == 10
    precision = workspace.scores(systems="bm25").filter(measure="precision@1")["value"].mean()
    assert (first["grade"] > 0).mean() == precision
    for _, entries in frame.group_by("query_id", maintain_order=True):
        assert entries["rank"].to_list() == list(range(1, len(entries) + 1))
        assert entries["score"].is_sorted(descending=True)


def test_vectors_are_those_that_were_ranked_by(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, "lsa")
    ids, vectors = workspace.vectors(pool, "lsa")
    assert set(ids) == {*pool.candidates["paper_id"], *pool.queries["query_id"]}
    assert isinstance(vectors, np.memmap)
    place = {paper: number for number, paper in enumerate(ids)}
    first = workspace.ranking(pool, "lsa").filter(rank=1).row(0, named=True)
    query, paper = (vectors[place[first[name]]].astype(np.float64) for name in ("query_id", "paper_id"))
    cosine = query @ paper / np.linalg.norm(query) / np.linalg.norm(paper)
    assert first["score"] == pytest.approx(cosine, abs=1e-5)
    written = mdcr_json(
        workspace.root, *flags(f"export vectors {COMMAND[5:].replace('bm25,lsa', 'lsa')} --format parquet")
    )
    (exported,) = (pl.read_parquet(path) for path in written["exported"])
    assert exported["id"].to_list() == ids
    assert np.array_equal(np.stack(exported["vector"].to_list()), vectors)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("ending", [".npy", ".ids.txt"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_export_is_made_again(workspace: mdcr.Workspace, ending: str, damage: Callable[[Path], None]) -> None:
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, "lsa")
    ids, vectors = workspace.vectors(pool, "lsa")
    path = Path(vectors.filename).with_suffix(ending)  # type: ignore[attr-defined]
    expected = path.read_bytes(), vectors.copy()
    damage(path)
    again, values = workspace.vectors(pool, "lsa")
    assert (again, path.read_bytes()) == (ids, expected[0])
    np.testing.assert_array_equal(values, expected[1])


def test_two_systems_are_compared(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**SETTINGS)
    frame = workspace.evaluate(pool, ["bm25", "lsa"])
    difference = mdcr.compare(frame, "bm25", "lsa").row(by_predicate=pl.col("measure") == "map", named=True)
    means = dict(frame.filter(measure="map").group_by("system").agg(pl.col("value").mean()).iter_rows())
    assert difference["difference"] == pytest.approx(means["lsa"] - means["bm25"], abs=1e-12)
    assert difference["low"] <= difference["difference"] <= difference["high"]
    (table,) = mdcr.tables(frame, ["map"])
    assert f"{100 * means['lsa']:.1f}" in str(table)


def test_plots_show_the_means(workspace: mdcr.Workspace) -> None:
    scores = workspace.evaluate(workspace.pools(**SETTINGS | {"size": "300,400", "samples": 2}), ["bm25", "lsa"])
    summary = mdcr.summarise(scores).filter(measure="ndcg")
    assert set(summary["samples"].list.len()) == {2}
    (axes,) = mdcr.plot.by_size(scores, "ndcg").axes
    drawn = [tuple(line.get_ydata()) for line in axes.lines]
    expected = [tuple(100 * part.sort("size")["value"]) for _, part in summary.group_by("system", maintain_order=True)]
    assert drawn == expected
    (axes,) = mdcr.plot.by_field(scores.filter(size=300), "ndcg").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Medicine"]
    with pytest.raises(InputError, match="one pool size"):
        mdcr.plot.by_field(scores, "ndcg")
    fewer = workspace.evaluate(workspace.pools(**SETTINGS | {"size": "300", "queries": 9}), ["bm25", "lsa"])
    both = mdcr.summarise(pl.concat([scores, fewer])).filter(measure="ndcg", size=300, system="lsa")
    assert sorted(both["queries"]) == [9, summary["queries"][0]]
    with pytest.raises(InputError, match="differ in size alone"):
        mdcr.plot.by_size(pl.concat([scores, fewer]), "ndcg")
    with pytest.raises(InputError, match="one that was scored"):
        mdcr.plot.by_size(scores, "err")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda ws, _: ws.pool(**SETTINGS | {"field": "Medicine,Physics"}), "medicine.*physics"),
        (lambda ws, pool: ws.ranking(pool, "bm25", depth=7), "ws.evaluate"),
        (lambda ws, _: ws.scores(field="Art"), "Medicine"),
        (lambda ws, pool: ws.vectors(pool, "bm25"), "one encoder"),
        (lambda ws, _: mdcr.open(ws.root, workers=0), "workers must be at least 1, got 0"),
        (lambda ws, _: mdcr.open(ws.root / "absent"), "must be a folder"),
    ],
)
def test_a_choice_that_is_not_one_lists_what_there_is(
    workspace: mdcr.Workspace, ask: Callable[..., Any], message: str
) -> None:
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, "lsa")
    with pytest.raises(InputError, match=message):
        ask(workspace, pool)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("nested", "no", "nested must be true or false, got 'no'"),
        ("drop_same_title", 0, "--keep-same-title must be true or false, got 0"),
        ("seed", 13.0, "--seed must be a whole number, got 13.0"),
        ("year", 2019.0, "--year must be a whole number, got 2019.0"),
        ("samples", True, "--samples must be a whole number, got True"),
        ("queries", 0, "--queries must be a whole number of at least 1, such as 200k, or all, got 0"),
        ("min_citations", "few", "--min-citations must be a whole number, got 'few'"),
        ("positives", "prefilterd", "got 'prefilterd'. Did you mean 'prefiltered'"),
        ("feild", "Art", "there is no setting 'feild'. Did you mean 'field'"),
    ],
)
def test_settings_of_another_type_are_refused(root: Path, setting: str, value: Any, said: str) -> None:
    workspace = mdcr.open(root)
    for refuses in (workspace.pool, workspace.scores):
        with pytest.raises(InputError) as error:
            refuses(**{setting: value})
        assert said in str(error.value)


def test_numbers_of_numpy_and_texts_are_the_settings_that_they_mean() -> None:
    plain = selection(size=900, queries=20, year=2018, seed=7, field="Art").configs(None)
    numbers = {"size": np.int32(900), "queries": np.uint8(20), "year": np.int16(2018), "seed": np.int64(7)}
    typed = {name: str(value) for name, value in numbers.items()}
    for given in (numbers, typed):
        assert selection(field=["art"], **given).configs(None) == plain
        assert [*map(digest, selection(field="art", **given).configs(None))] == [*map(digest, plain)]
    assert digest(PoolConfig()) == "d6bab7d2d25dc2febf2f23175e0094ad08ce388776d283cd5bf18b9a8fcf493a"
    with pytest.raises(InputError, match=r"seed must be a whole number, got 13\.0"):
        PoolConfig(seed=13.0)  # type: ignore[arg-type]
