"""Plausible wrong values of every argument of the Python interface end in one line of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pipeline as mdcr
from pipeline.core.door import checked
from pipeline.core.errors import InputError, MdcrError
from tests.cli.conftest import root, tiny
from tests.scores.cases import made_up

__all__ = ["root", "tiny"]

NAN = float("nan")
SETTINGS = {"corpus": "tiny", "field": "Medicine", "size": 300, "year": 2019, "queries": 10}
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


@pytest.fixture(scope="module")
def workspace(root: Path) -> mdcr.Workspace:
    ws = mdcr.open(root)
    ws.evaluate(ws.pool(**SETTINGS), ["bm25", "lsa"])
    return ws


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


def test_of_pools(workspace: mdcr.Workspace) -> None:
    wrong: dict[str, list[Any]] = {
        "corpus": NO_NAME, "field": NO_NAME, "size": [*NO_COUNT, ""], "year": ["x", 2.5, []],
        "queries": [*NO_COUNT, ""], "seed": ["x", 2.5], "colour": ["red"],
    }  # fmt: skip
    refused(workspace.tune, SETTINGS, wrong)
    refused(workspace.pools, SETTINGS, {
        "samples": NO_COUNT, "nested": ["x", 5], "min_citations": ["x", 2.5], "split": NO_NAME,
        "exclude": [5, "/nope", [5]],
    })  # fmt: skip
    refused(workspace.pool, SETTINGS, {"sample": [*NO_COUNT, None, 99_999], "size": ["300,400"]})
    task = workspace.pool(**SETTINGS).task
    refused(workspace.view, {"task": task}, {"task": [None, "x", workspace.pool(**SETTINGS)]})


def test_of_systems(workspace: mdcr.Workspace, tmp_path: Path) -> None:
    pool = workspace.pool(**SETTINGS)
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
    refused(workspace.most_different, {"pool": pool, "first": "bm25", "second": "lsa"}, {
        "pool": [*no_pool, [pool]], "first": [*NO_NAME, "lsa"], "second": NO_NAME,
        "measure": NO_MEASURES, "most": NO_COUNT,
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


def test_values_of_other_libraries_are_taken(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**{**SETTINGS, "size": np.int64(300), "year": np.int32(2019)})
    names = np.array(["bm25", "lsa"]).tolist()
    assert len(workspace.evaluate((each for each in [pool]), tuple(names), depth=np.int64(500))) > 0
    differences = mdcr.compare(SCORES.with_columns(more=pl.lit(1), query=pl.col("query").cast(pl.Int64)), "bm25", "lsa")
    assert len(differences) > 0


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
