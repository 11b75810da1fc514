"""The Python interface against the command line and the artifacts; plausible wrong values end in one line of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from IPython.core.formatters import DisplayFormatter

import pipeline as mdcr
from pipeline.api import PoolView, selection
from pipeline.core.config import digest
from pipeline.core.door import checked
from pipeline.core.errors import InputError, MdcrError
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.scores.compare import DIFFERENCES
from pipeline.scores.frames import SCORES_SCHEMA
from pipeline.scores.summary import SUMMARY
from tests.cli.conftest import own, root, tiny
from tests.cli.run import flags, mdcr_json
from tests.scores.cases import made_up
from tests.stages.making import flip

__all__ = ["own", "root", "tiny"]

SETTINGS = {"corpus": "tiny", "field": "Medicine", "size": 300, "year": 2019, "queries": 10}
COMMAND = "eval --field Medicine --size 300 --year 2019 --queries 10 --samples 1 --model bm25,lsa"


@pytest.fixture(scope="module")
def workspace(root: Path) -> mdcr.Workspace:
    return mdcr.open(root)


@pytest.fixture(scope="module")
def pool(workspace: mdcr.Workspace) -> PoolView:
    """Return a pool that two systems have ranked."""
    pool = workspace.pool(**SETTINGS)
    workspace.evaluate(pool, ["bm25", "lsa"])
    return pool


def test_a_pool_is_three_frames(workspace: mdcr.Workspace, pool: PoolView) -> None:
    counts = pool.pool.artifact.manifest.counts
    assert (len(pool.queries), len(pool.candidates)) == (counts["queries"], counts["candidates"]) == (10, 300)
    assert pool.queries["year"].unique().to_list() == [2019]
    assert len(pool.qrels) == counts["positives"]
    assert set(pool.qrels["query_id"]) <= set(pool.queries["query_id"])
    assert set(pool.qrels["paper_id"]) <= set(pool.candidates["paper_id"])
    papers = pl.DataFrame(pool.pool.corpus.artifact.arrow("papers-00000.arrow")).select("paper_id", "title", "abstract")
    shown = pool.candidates.select(papers.columns)
    assert shown.equals(shown.select("paper_id").join(papers, on="paper_id", how="left", maintain_order="left"))


def test_views_print_one_line(workspace: mdcr.Workspace, pool: PoolView) -> None:
    assert re.fullmatch(r"<pool tiny-medicine\S+: 10 queries, 300 candidates, \d+ positives>", repr(pool))
    assert repr(workspace) == f"<workspace {workspace.root}: tiny>"


def test_a_notebook_needs_no_terminal(own: Path, tmp_path: Path) -> None:
    """It builds a corpus and tunes as the commands do, and shows its plots as pictures, without a backend."""
    workspace = mdcr.open(tmp_path)
    corpus = workspace.build("synthetic", corpus="tiny", papers=3_000, seed=5)
    assert (workspace.corpora(), len(corpus)) == (["tiny"], 3_000)
    (tuned,) = workspace.tune(**SETTINGS).rows(named=True)
    (printed,) = mdcr_json(own, *flags(COMMAND.replace("eval", "tune").split(" --samples")[0]))["tunings"]
    assert tuned["tuning"] == Path(printed["path"]).name
    assert (tuned["k1"], tuned["b"], tuned["map"]) == tuple(printed["counts"][name] for name in ("k1", "b", "map"))
    figure = mdcr.plot.by_field(workspace.evaluate(workspace.pool(**SETTINGS), "bm25"))
    shown, _ = DisplayFormatter().format(figure)
    assert shown["image/png"].startswith(b"\x89PNG")


def test_evaluate_scores_what_the_command_scores(workspace: mdcr.Workspace, pool: PoolView) -> None:
    frame = workspace.evaluate(pool, ["bm25", "lsa"])
    rows = mdcr_json(workspace.root, *flags(COMMAND))["rows"]
    means = {names: part["value"].mean() for names, part in frame.group_by("system", "measure")}
    assert {(row["system"], row["measure"]): row["value"] for row in rows} == pytest.approx(means, abs=1e-12)
    again = workspace.scores(field="Medicine", systems="lsa", measures="map")
    assert again.sort("measure", "query").equals(frame.filter(system="lsa").sort("measure", "query"))
    assert len(frame.to_pandas()) == len(frame)


def test_a_ranking_has_its_grades(workspace: mdcr.Workspace, pool: PoolView) -> None:
    frame = workspace.ranking(pool, "bm25")
    first = frame.filter(rank=1)
    assert len(first) == 10
    precision = workspace.scores(systems="bm25").filter(measure="precision@1")["value"].mean()
    assert (first["grade"] > 0).mean() == precision
    for _, entries in frame.group_by("query_id", maintain_order=True):
        assert entries["rank"].to_list() == list(range(1, len(entries) + 1))
        assert entries["score"].is_sorted(descending=True)


def test_vectors_are_those_that_were_ranked_by(workspace: mdcr.Workspace, pool: PoolView) -> None:
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


@pytest.mark.parametrize(
    ("damage", "ending"), [(cut, ".npy"), (flip, ".npy"), (flip, ".ids.txt"), (Path.unlink, ".npy")]
)
def test_a_damaged_export_is_made_again(
    workspace: mdcr.Workspace, pool: PoolView, ending: str, damage: Callable[[Path], None]
) -> None:
    ids, vectors = workspace.vectors(pool, "lsa")
    path = Path(vectors.filename).with_suffix(ending)  # type: ignore[attr-defined]
    expected = path.read_bytes(), vectors.copy()
    damage(path)
    again, values = workspace.vectors(pool, "lsa")
    assert (again, path.read_bytes()) == (ids, expected[0])
    np.testing.assert_array_equal(values, expected[1])


def test_two_systems_are_compared(workspace: mdcr.Workspace, pool: PoolView) -> None:
    frame = workspace.evaluate(pool, ["bm25", "lsa"])
    difference = mdcr.compare(frame, "bm25", "lsa").row(by_predicate=pl.col("measure") == "map", named=True)
    means = dict(frame.filter(measure="map").group_by("system").agg(pl.col("value").mean()).iter_rows())
    assert difference["difference"] == pytest.approx(means["lsa"] - means["bm25"], abs=1e-12)
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert len(workspace.most_different(pool, "bm25", "lsa", most=2)) == 2
    (table,) = mdcr.tables(frame, ["map"])
    assert f"{100 * means['lsa']:.1f}" in str(table)


def test_frames_have_the_columns_of_the_reference(workspace: mdcr.Workspace, pool: PoolView) -> None:
    scores = workspace.evaluate(pool, ["bm25", "lsa"])
    assert scores.schema.keys() == SCORES_SCHEMA.keys()
    assert mdcr.summarise(scores).schema.keys() == SUMMARY.keys()
    assert mdcr.compare(scores, "bm25", "lsa").schema.keys() == DIFFERENCES.keys()


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
    fewer = workspace.evaluate(workspace.pool(**SETTINGS | {"queries": 9}), ["bm25", "lsa"])
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
        (lambda ws, _: ws.pool(feild="Art"), "there is no setting 'feild'. Did you mean 'field'"),
        (lambda ws, _: ws.pools(positives="prefilterd"), "got 'prefilterd'. Did you mean 'prefiltered'"),
    ],
)
def test_a_choice_that_is_not_one_lists_what_there_is(
    workspace: mdcr.Workspace, pool: PoolView, ask: Callable[..., Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ask(workspace, pool)


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


NAN = float("nan")
NO_TEXT: list[Any] = [5, "", []]
NO_NAME: list[Any] = [*NO_TEXT, "nope"]
NO_COUNT: list[Any] = ["x", 2.5, 0, NAN, True]
NO_NUMBER: list[Any] = ["x", -1, 2, NAN]
NO_MEASURES: list[Any] = [5, "", [], ["nope"], [5]]
SCORES = made_up(["bm25", "lsa"], [(None, 300)], samples=1)
NO_FRAME: list[Any] = [
    *(None, [], pl.DataFrame(), SCORES.head(0), pl.concat([SCORES, SCORES]), SCORES.drop("label"), SCORES.lazy()),
    *(SCORES.with_columns(value=pl.lit(value)) for value in (NAN, None, "a")),
]
RUN, QRELS = {"q": {"d": 1.0}}, {"q": {"d": 1}}


def refused(function: Callable[..., Any], usual: Mapping[str, Any], wrong: Mapping[str, Sequence[Any]]) -> None:
    """Call a function with each wrong value in place of a usual one; with the usual ones alone it works."""
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(MdcrError) as error:
                pytest.fail(f"{name}={value!r} was taken: {function(**{**usual, name: value})}")
            assert "\n" not in str(error.value)
    function(**usual)


def test_of_the_workspace(workspace: mdcr.Workspace, root: Path) -> None:
    refused(mdcr.open, {"root": root}, {
        "root": [5, [], "/nope", "\0"], "memory": [5, "x", "0"], "workers": NO_COUNT, "device": [*NO_TEXT, "gpu"],
    })  # fmt: skip
    refused(workspace.build, {"source": "synthetic", "corpus": "t2", "papers": 500}, {
        "source": NO_NAME, "input": [5, []], "corpus": [*NO_TEXT, "../x"], "duplicates": NO_NAME,
        "papers": NO_COUNT, "seed": ["x", 2.5], "colour": ["red"],
    })  # fmt: skip
    refused(workspace.corpus, {"name": "tiny"}, {"name": NO_NAME})
    refused(workspace.make, {"tasks": []}, {"tasks": [None, "x", [5]]})
    refused(workspace.evaluated, {"evaluations": []}, {"evaluations": [None, "x", [5]]})


def test_of_pools(workspace: mdcr.Workspace, pool: PoolView) -> None:
    wrong: dict[str, list[Any]] = {
        "corpus": NO_NAME, "field": NO_NAME, "size": [*NO_COUNT, ""], "year": ["x", 2019.0, []],
        "queries": [*NO_COUNT, ""], "seed": ["x", 13.0], "colour": ["red"], "drop_same_title": [0],
    }  # fmt: skip
    refused(workspace.tune, SETTINGS, wrong)
    refused(workspace.pools, SETTINGS, {
        "samples": NO_COUNT, "nested": ["x", 5], "min_citations": ["x", 2.5], "split": NO_NAME,
        "exclude": [5, "/nope", [5]],
    })  # fmt: skip
    refused(workspace.pool, SETTINGS, {"sample": [*NO_COUNT, None, 99_999], "size": ["300,400"]})
    refused(workspace.view, {"task": pool.task}, {"task": [None, "x", pool]})


def test_of_systems(workspace: mdcr.Workspace, pool: PoolView, tmp_path: Path) -> None:
    no_pool: list[Any] = [None, [], [5], pool.name]
    refused(workspace.evaluate, {"pools": pool, "systems": "bm25"}, {
        "pools": no_pool, "systems": [*NO_NAME, ",", ["bm25", None]], "depth": NO_COUNT, "colour": ["red"],
        "measures": NO_MEASURES, "engine": NO_NAME, "bm25_engine": NO_NAME, "precision": NO_NAME,
        "runs": [5, ["/nope"], [5], None], "missing_positives": ["nope", 5], "allow_unknown": ["x", 5],
    })  # fmt: skip
    refused(workspace.scores, {"corpus": "tiny"}, {
        "corpus": NO_NAME, "field": NO_NAME, "size": ["x", 2.5, NAN, True], "systems": NO_NAME,
        "colour": ["red"], "samples": ["x"],
    })  # fmt: skip
    refused(workspace.ranking, {"pool": pool, "system": "bm25"}, {
        "pool": [*no_pool, [pool, pool]], "system": [*NO_NAME, ["bm25", "lsa"], "bm25,lsa"], "depth": ["x", 7],
    })  # fmt: skip
    wrong = {"pool": no_pool, "system": [*NO_NAME, "bm25"], "precision": NO_NAME}
    refused(workspace.vectors, {"pool": pool, "system": "lsa"}, wrong)
    no_path: list[Any] = [None, 5, "", tmp_path / "v.csv", tmp_path]
    refused(workspace.write_vectors, {"pool": pool, "system": "lsa", "path": tmp_path / "v.npy"}, {"path": no_path})


def test_of_scores() -> None:
    draws: list[Any] = [5, "x"]
    refused(mdcr.summarise, {"scores": SCORES}, {
        "scores": NO_FRAME, "baseline": NO_NAME, "sort": NO_NAME, "draws": draws
    })  # fmt: skip
    refused(mdcr.compare, {"scores": SCORES, "first": "bm25", "second": "lsa"}, {
        "scores": NO_FRAME, "first": [*NO_NAME, "lsa"], "second": NO_NAME, "measures": NO_MEASURES, "draws": draws,
    })  # fmt: skip
    refused(mdcr.tables, {"scores": SCORES}, {"scores": NO_FRAME, "measures": NO_MEASURES, "baseline": NO_NAME})
    for plot in (mdcr.plot.by_size, mdcr.plot.by_field):
        refused(plot, {"frame": SCORES}, {"frame": NO_FRAME, "measure": NO_MEASURES, "seed": ["x", 2.5]})
    refused(mdcr.Draws, {}, {
        "seed": ["x", 2.5, "\ud800"], "resamples": ["x", -1, 2.5], "level": NO_NUMBER, "permutations": NO_COUNT,
        "alpha": NO_NUMBER, "resample": NO_NAME,
    })  # fmt: skip


def test_of_runs_and_qrels() -> None:
    refused(mdcr.evaluate, {"runs": RUN, "qrels": QRELS}, {
        "runs": [None, "", [], {}, [5], "/nope", {"q": 5}, {"q": {"d": "x"}}, {"q": {"d": NAN}}],
        "qrels": [None, "", {}, "/nope", {"q": 5}, {"q": {"d": 0.5}}, {"q": {}}, {"z": {"d": 1}}, [QRELS]],
        "measures": NO_MEASURES,
    })  # fmt: skip


def test_of_registrations() -> None:
    no_word: list[Any] = [None, 5, "", "a b"]
    refused(mdcr.register_encoder, {"name": "of-the-door", "like": "lsa"}, {
        "name": [*no_word, "lsa"], "like": [5, "nope", []]
    })  # fmt: skip
    refused(mdcr.register_measure, {"name": "of-the-door", "label": "Z"}, {
        "name": [*no_word, "map(2)"], "label": [5], "aliases": ["x", [5]], "cuts": ["x"], "higher_is_better": ["x"],
    })  # fmt: skip
    with pytest.raises(InputError, match="name must be text, got 5"):
        mdcr.register_source(5, mdcr.Source("x:Y", "help"))
    with pytest.raises(InputError, match="source must be Source, got 'x'"):
        mdcr.register_source("of-the-door", "x")


def test_values_of_other_libraries_are_taken(workspace: mdcr.Workspace, pool: PoolView) -> None:
    assert len(workspace.evaluate((each for each in [pool]), ("bm25", "lsa"), depth=np.int64(500))) > 0
    scores = SCORES.with_columns(more=pl.lit(1), query=pl.col("query").cast(pl.Int64))
    assert len(mdcr.compare(scores, "bm25", "lsa")) > 0


def test_the_message_names_argument_type_value_and_the_nearest_name() -> None:
    def function(depth: int, *, names: Sequence[str] = (), share: float | None = None) -> int:
        return depth

    door = checked(function)
    assert door(np.int64(5), names=["a"], share=1) == 5
    for arguments, said in (
        ({"depth": "x"}, "depth must be a whole number, got 'x'"),
        ({"depth": 1, "names": "ab"}, "names must be a list of texts, got 'ab'"),
        ({"depth": 1, "share": NAN}, "share must be a number, got nan"),
        ({"deph": 1}, "Did you mean 'depth'?"),
        ({}, "missing a required argument: 'depth'"),
    ):
        with pytest.raises(InputError) as error:
            door(**arguments)
        assert said in str(error.value)
