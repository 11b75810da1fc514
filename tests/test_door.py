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
NO_TEXT: list[Any] = [5, 2.5, True, b"x", [], {}, object(), ""]
NO_COUNT: list[Any] = ["x", 2.5, -1, NAN, {}, [[]], 0, True]
NO_NUMBER: list[Any] = ["x", 0, 1, -1, 2, NAN, None, True]
NO_DRAWS: list[Any] = [5, "x", {}, object(), 0.05]
NO_MEASURES: list[Any] = [5, "", [], "nope", ["nope"], [5], b"map", [None], {}]
SCORES = made_up(["bm25", "lsa"], [(None, 300)], samples=1)
NO_FRAME: list[Any] = [
    *(None, "x", 5, [], {}, pl.DataFrame(), pl.DataFrame({"a": [1]}), SCORES.head(0), pl.concat([SCORES, SCORES])),
    *(SCORES.with_columns(value=pl.lit(value, pl.Float64)) for value in (NAN, None)),
    SCORES.with_columns(value=pl.lit("a")),
    *(SCORES.drop("label"), SCORES.to_dict(as_series=False), SCORES.with_columns(measure=pl.lit("zzz")), SCORES.lazy()),
]  # fmt: skip
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
        "root": [5, b"x", [], "/nope", "\0"],
        "memory": [5, -1, "x", "", 2.5, True, [], b"8G", "5", "0"],
        "workers": ["x", 0, -1, 2.5, True, NAN, []],
        "device": [5, "", "gpu", None, True, "cuda:x", []],
    })  # fmt: skip
    refused(workspace.build, {"source": "synthetic", "corpus": "t2", "papers": 500}, {
        "source": [*NO_TEXT, None, "nope"], "input": [5, True, []], "corpus": [5, "", [], "../x", True, "a/b"],
        "duplicates": [5, None, "nope", "", True], "duplicates_by": [5, "nope", "", []],
        "papers": ["x", -1, 0, 2.5, [], True, NAN], "seed": ["x", 2.5, [], True], "colour": ["red"],
    })  # fmt: skip
    refused(workspace.corpus, {"name": "tiny"}, {"name": [5, "", "nope", [], True]})
    refused(workspace.make, {"tasks": []}, {"tasks": [None, 5, "x", [5], [None]]})
    refused(workspace.evaluated, {"evaluations": []}, {"evaluations": [None, 5, "x", [5], {}, [None]]})


def test_of_pools(workspace: mdcr.Workspace) -> None:
    wrong: dict[str, list[Any]] = {
        "corpus": [5, "", "nope", []], "field": [5, "", [], "Nope", True, {}], "size": [*NO_COUNT, [], ""],
        "year": ["x", 2.5, NAN, [], True], "queries": [*NO_COUNT, ""], "seed": ["x", 2.5, []], "colour": ["red"],
    }  # fmt: skip
    more: dict[str, list[Any]] = {
        "samples": ["x", 0, -1, 2.5, True, [], NAN], "nested": ["x", 5, [], 2.5], "min_citations": ["x", 2.5, [], NAN],
        "split": ["x", 5, "", []], "exclude": [5, "/nope", [5]],
    }  # fmt: skip
    refused(workspace.tune, SETTINGS, wrong)
    refused(workspace.pools, SETTINGS, wrong | more)
    refused(workspace.pool, SETTINGS, {"sample": ["x", 0, -1, 2.5, True, None, [], NAN, 99_999], "size": ["300,400"]})
    task = workspace.pool(**SETTINGS).task
    refused(workspace.view, {"task": task}, {"task": [None, 5, "x", workspace.pool(**SETTINGS)]})


def test_of_systems(workspace: mdcr.Workspace, tmp_path: Path) -> None:
    pool = workspace.pool(**SETTINGS)
    no_pool: list[Any] = [None, 5, "x", [], [5], {}, [None], pool.name, object()]
    no_systems: list[Any] = [None, 5, "", [], [5], "nope", {}, [""], b"bm25", ",", ["bm25", None]]
    usual = {"pools": pool, "systems": "bm25"}
    wrong: dict[str, list[Any]] = {
        "pools": no_pool, "systems": no_systems, "depth": ["x", 0, -1, 2.5, NAN, None, True, []], "colour": ["red"],
        "measures": NO_MEASURES, "engine": [5, "", "nope", None, []], "bm25_engine": [5, "", "nope", None, []],
        "precision": [5, "", "nope", []], "runs": [5, ["/nope"], [5], "/nope", [None], None],
        "missing_positives": ["nope", 5], "allow_unknown": ["x", 5],
    }  # fmt: skip
    refused(workspace.evaluations, usual, wrong)
    refused(workspace.evaluate, usual, wrong)
    refused(workspace.scores, {"corpus": "tiny"}, {
        "corpus": [5, "", "nope", []], "field": [5, "", "Nope", [], {}], "size": ["x", -1, 2.5, NAN, [], True],
        "systems": [5, "", [], "nope", {}, [5]], "colour": ["red"], "year": ["x", 2.5, []], "samples": ["x", 0],
    })  # fmt: skip
    no_name: list[Any] = [None, 5, "", "nope", []]
    refused(workspace.most_different, {"pool": pool, "first": "bm25", "second": "lsa"}, {
        "pool": [*no_pool, [pool]], "first": [*no_name, "lsa"], "second": no_name,
        "measure": [5, "", None, "nope", [], ["map"]], "most": ["x", 0, -1, 2.5, None, NAN, True, []],
    })  # fmt: skip
    refused(workspace.ranking, {"pool": pool, "system": "bm25"}, {
        "pool": [*no_pool, [pool, pool]], "system": [*no_name, ["bm25", "lsa"], "bm25,lsa", {}],
        "depth": ["x", 7], "colour": ["red"],
    })  # fmt: skip
    wrong = {"pool": no_pool, "system": [*no_name, "bm25", ["lsa"]], "precision": [5, "", "nope", [], True]}
    refused(workspace.vectors, {"pool": pool, "system": "lsa"}, wrong)
    path = tmp_path / "v.npy"
    no_path: list[Any] = [None, 5, "", [], True, tmp_path / "v.csv", tmp_path, "x.txt"]
    refused(workspace.write_vectors, {"pool": pool, "system": "lsa", "path": path}, wrong | {"path": no_path})


def test_of_scores() -> None:
    no_baseline: list[Any] = [5, "", [], "nope", True]
    refused(mdcr.summarise, {"scores": SCORES}, {
        "scores": NO_FRAME, "baseline": [*no_baseline, {}], "sort": no_baseline, "draws": NO_DRAWS
    })  # fmt: skip
    no_row: list[Any] = [None, 5, "", "nope", []]
    refused(mdcr.compare, {"scores": SCORES, "first": "bm25", "second": "lsa"}, {
        "scores": NO_FRAME, "first": [*no_row, "lsa"], "second": [*no_row, "bm25"],
        "measures": [*NO_MEASURES, "map"], "draws": NO_DRAWS,
    })  # fmt: skip
    refused(mdcr.tables, {"scores": SCORES}, {
        "scores": NO_FRAME, "measures": [None, *NO_MEASURES], "baseline": no_baseline, "draws": NO_DRAWS
    })  # fmt: skip
    for plot in (mdcr.plot.by_size, mdcr.plot.by_field):
        wrong = {"frame": NO_FRAME, "measure": [5, "", None, "nope", [], ["map"]], "seed": ["x", 2.5, [], True]}
        refused(plot, {"frame": SCORES}, wrong)
    refused(mdcr.Draws, {}, {
        "seed": ["x", 2.5, True, [], "\ud800"], "resamples": ["x", -1, 2.5, True, None, NAN], "level": NO_NUMBER,
        "permutations": ["x", 0, -1, 2.5, None, True], "alpha": NO_NUMBER, "margin": ["x", 0, 100, -1, NAN, True],
        "resample": [5, "", "nope", None, []],
    })  # fmt: skip


def test_of_runs_and_qrels() -> None:
    refused(mdcr.evaluate, {"runs": RUN, "qrels": QRELS}, {
        "runs": [None, 5, "", [], {}, [5], "/nope", [None], True, {"q": 5}, {"q": {"d": "x"}}, {"q": {"d": NAN}},
                 {"q": [("d", 1.0)]}, {"q": None}],
        "qrels": [None, 5, "", [], {}, "/nope", {"q": 5}, {"q": {"d": "x"}}, {"q": {"d": 0.5}}, {"q": {"d": NAN}},
                  {"q": {}}, {"z": {"d": 1}}, [QRELS], {"q": {"d": None}}],
        "measures": [5, "", [], "nope", {}, True, b"map", [5]],
    })  # fmt: skip


def test_of_registrations() -> None:
    wrong: dict[str, list[Any]] = {"name": [None, 5, "", "a b", [], "lsa"], "like": [5, "nope", []]}
    refused(mdcr.register_encoder, {"name": "of-the-door", "like": "lsa"}, wrong)
    refused(mdcr.register_measure, {"name": "of-the-door", "label": "Z"}, {
        "name": [None, 5, "", "map(2)", "a b"], "label": [None, 5], "aliases": ["x", 5, None, [5]],
        "cuts": ["x", 5, None], "higher_is_better": ["x", None],
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
        ({"depth": 1, "names": "ab"}, "names must be a list of text, got 'ab'"),
        ({"depth": 1, "share": NAN}, "share must be a number or None, got nan"),
        ({"deph": 1}, "Did you mean 'depth'?"),
        ({}, "missing a required argument: 'depth'"),
    ):
        with pytest.raises(InputError) as error:
            door(**arguments)
        assert said in str(error.value)
