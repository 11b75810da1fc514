"""docs/python.md beside the Python interface: every name, every argument, every column, and its example."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline as mdcr
from pipeline.exchange.views import PoolView, RankingView
from pipeline.scores import plot

PAGE = (Path(__file__).parents[1] / "docs/python.md").read_text()
PLOTS = ("by_size", "by_field")
OWNERS: dict[str, Any] = {
    "mdcr": mdcr, "mdcr.plot": plot, "ws": mdcr.Workspace, "pool": PoolView, "ranking": RankingView
}  # fmt: skip
PRIVATE = {"pool": {"pool", "task"}, "ranking": {"artifact", "pool", "system"}}
"""Attributes of stored artifacts, for the stages."""


def documented() -> Iterator[tuple[str, str, str | None]]:
    """Yield owner, name and arguments of each call in the tables."""
    for path, arguments in re.findall(r"^\| `([\w.]+)(?:\(([^`]*)\))?` \|", PAGE, re.MULTILINE):
        if "." in path:
            owner, _, name = path.rpartition(".")
            yield owner, name, arguments


def test_every_public_name_is_there_and_no_other() -> None:
    found: dict[str, set[str]] = {owner: set() for owner in OWNERS}
    for owner, name, _ in documented():
        found[owner].add(name)
    public = {name for name in mdcr.__all__ if not name.startswith("_")} - {"plot", "study"}
    assert found["mdcr"] == public
    assert found["mdcr.plot"] == set(PLOTS)
    assert found["ws"] == {name for name in vars(mdcr.Workspace) if not name.startswith("_")} | {"runner"}
    for owner in ("pool", "ranking"):
        names = {name for name in {*vars(OWNERS[owner]), *OWNERS[owner].__annotations__} if not name.startswith("_")}
        assert found[owner] == names - PRIVATE[owner]


@pytest.mark.parametrize(("owner", "name", "arguments"), documented())
def test_arguments_are_those_of_the_signature(owner: str, name: str, arguments: str | None) -> None:
    value = getattr(OWNERS[owner], name, None)
    if value is None or not callable(value):
        assert not arguments
        return
    parameters = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
    keyword = {p.name: "=" * (p.kind is p.KEYWORD_ONLY) for p in parameters}
    spelled = [f"{'**' * (p.kind is p.VAR_KEYWORD)}{p.name}{keyword[p.name]}" for p in parameters]
    assert [word.strip() for word in (arguments or "").split(",") if word.strip()] == spelled


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the example of the page defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    with contextlib.chdir(tmp_path_factory.mktemp("work")):
        exec(code.replace("import mdcr\n", ""), {"mdcr": mdcr}, found)  # noqa: S102 – the page's own code
    return found


def frames(names: dict[str, Any]) -> dict[str, pl.DataFrame]:
    pool, ranking = names["pool"], names["ranking"]
    return {
        "queries": pool.queries, "candidates": pool.candidates, "qrels": pool.qrels, "ranking": ranking.frame,
        "tunings": names["ws"].tune("tiny", **names["settings"]), "scores": names["scores"],
        "summary": names["summary"], "differences": names["differences"], "differing queries": names["differing"],
    }  # fmt: skip


def test_the_example_runs_and_every_column_of_its_frames_is_described(names: dict[str, Any]) -> None:
    found = {}
    for title, text in re.findall(r"^### ([\w ]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE):
        rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
        found[title] = [column for row in rows for column in re.findall(r"`(\w+)`", row)]
    returned = frames(names)
    assert found.keys() == returned.keys()
    for title, frame in returned.items():
        assert len(frame) > 0, title
        assert sorted(found[title]) == sorted(frame.columns), title
    assert re.findall(r"`(\w+)`", re.findall(r"^\| `positives` \|(.*)", PAGE, re.MULTILINE)[-1]) == [
        field.name for field in returned["differing queries"].schema["positives"].inner.fields
    ]
    assert names["vectors"].shape == (len(names["ids"]), names["vectors"].shape[1])
    assert names["figure"]._repr_png_().startswith(b"\x89PNG")
