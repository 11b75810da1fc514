"""Plausible wrong values in the Python interface end in one line of words; other types are errors of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pipeline as mdcr
from pipeline.core.errors import MdcrError
from tests.cli.conftest import root, tiny
from tests.scores.cases import made_up

__all__ = ["root", "tiny"]

NAN = float("nan")
SETTINGS = {"corpus": "tiny", "field": "Medicine", "size": 300, "year": 2019, "queries": 10}
NO_NAME: list[Any] = ["nope"]
NO_COUNT: list[Any] = ["x", 2.5, 0, NAN, True]
NO_NUMBER: list[Any] = ["x", -1, 2, NAN]
SCORES = made_up(["bm25", "lsa"], [(None, 300)], samples=1)
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
    refused(mdcr.open, {"root": root}, {"root": ["/nope"], "memory": ["x", "0"], "workers": [0], "device": ["gpu"]})
    refused(workspace.build, {"source": "synthetic", "corpus": "t2", "papers": 500}, {
        "source": NO_NAME, "corpus": ["../x"], "duplicates": NO_NAME, "papers": ["x", 0], "colour": ["red"],
    })  # fmt: skip
    refused(workspace.corpus, {"name": "tiny"}, {"name": NO_NAME})


def test_of_pools(workspace: mdcr.Workspace) -> None:
    refused(workspace.tune, SETTINGS, {
        "corpus": NO_NAME, "field": NO_NAME, "size": NO_COUNT, "year": ["x", 2.5, []], "queries": [*NO_COUNT, ""],
        "seed": ["x", 2.5], "colour": ["red"],
    })  # fmt: skip
    refused(workspace.pools, SETTINGS, {
        "samples": NO_COUNT, "nested": ["x", 5], "min_citations": ["x", 2.5], "split": NO_NAME,
        "exclude": [5, "/nope", [5]],
    })  # fmt: skip
    refused(workspace.pool, SETTINGS, {"sample": [*NO_COUNT, None, 99_999], "size": ["300,400"]})


def test_of_systems(workspace: mdcr.Workspace, tmp_path: Path) -> None:
    pool = workspace.pool(**SETTINGS)
    refused(workspace.evaluate, {"pools": pool, "systems": "bm25"}, {
        "pools": [[5], pool.name], "systems": [*NO_NAME, "", []], "depth": NO_COUNT, "colour": ["red"],
        "measures": [["nope"]], "engine": NO_NAME, "bm25_engine": NO_NAME, "precision": NO_NAME, "runs": [["/nope"]],
        "missing_positives": ["nope", 5], "allow_unknown": ["x", 5],
    })  # fmt: skip
    refused(workspace.scores, {"corpus": "tiny"}, {
        "corpus": NO_NAME, "field": NO_NAME, "size": ["x", 2.5, NAN, True], "systems": NO_NAME, "colour": ["red"],
    })  # fmt: skip
    refused(workspace.most_different, {"pool": pool, "first": "bm25", "second": "lsa"}, {
        "first": [*NO_NAME, "lsa"], "second": NO_NAME, "measure": NO_NAME, "most": NO_COUNT,
    })  # fmt: skip
    refused(workspace.ranking, {"pool": pool, "system": "bm25"}, {"system": [*NO_NAME, "bm25,lsa"], "depth": ["x", 7]})
    refused(workspace.vectors, {"pool": pool, "system": "lsa"}, {"system": [*NO_NAME, "bm25"], "precision": NO_NAME})
    no_path: list[Any] = [tmp_path / "v.csv", tmp_path]
    refused(workspace.write_vectors, {"pool": pool, "system": "lsa", "path": tmp_path / "v.npy"}, {"path": no_path})


def test_of_scores() -> None:
    empty = pl.concat([SCORES, SCORES])
    refused(mdcr.summarise, {"scores": SCORES}, {"scores": [empty, SCORES.head(0)], "baseline": NO_NAME})
    refused(mdcr.compare, {"scores": SCORES, "first": "bm25", "second": "lsa"}, {
        "scores": [empty], "first": [*NO_NAME, "lsa"], "second": NO_NAME, "measures": [["nope"]],
    })  # fmt: skip
    refused(mdcr.tables, {"scores": SCORES}, {"measures": [["nope"]], "baseline": NO_NAME})
    refused(mdcr.Draws, {}, {
        "seed": ["x", 2.5, "\ud800"], "resamples": ["x", -1, 2.5], "level": NO_NUMBER, "permutations": NO_COUNT,
        "alpha": NO_NUMBER, "resample": NO_NAME,
    })  # fmt: skip


def test_of_runs_and_qrels() -> None:
    refused(mdcr.evaluate, {"runs": RUN, "qrels": QRELS}, {
        "runs": [None, "", [], {}, [5], "/nope", {"q": 5}, {"q": {"d": "x"}}, {"q": {"d": NAN}}],
        "qrels": [None, "", {}, "/nope", {"q": 5}, {"q": {"d": 0.5}}, {"q": {}}, {"z": {"d": 1}}, [QRELS]],
        "measures": [["nope"]],
    })  # fmt: skip


def test_of_registrations() -> None:
    refused(mdcr.register_encoder, {"name": "of-the-door", "like": "lsa"}, {
        "name": ["", "a b", "lsa"], "like": NO_NAME
    })  # fmt: skip
    refused(mdcr.register_measure, {"name": "of-the-door", "label": "Z"}, {"name": ["", "a b", "map(2)"]})


def test_values_of_other_libraries_are_taken(workspace: mdcr.Workspace) -> None:
    pool = workspace.pool(**{**SETTINGS, "size": np.int64(300), "year": np.int32(2019)})
    names = np.array(["bm25", "lsa"]).tolist()
    assert len(workspace.evaluate((each for each in [pool]), tuple(names), depth=np.int64(500))) > 0
    differences = mdcr.compare(SCORES.with_columns(more=pl.lit(1), query=pl.col("query").cast(pl.Int64)), "bm25", "lsa")
    assert len(differences) > 0
