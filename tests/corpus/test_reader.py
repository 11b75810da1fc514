"""A corpus refuses what is no row, id or column of it in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipeline as interface
from pipeline.core.errors import InputError
from tests.cli.run import mdcr_json


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("ids", ([5_000],), "rows must be whole numbers from 0 to 199"),
        ("characters", ([1.5],), "rows must be whole numbers"),
        ("take", ([1], ["nope"]), "columns must be of paper_id"),
        ("take", ([1], "title"), "columns must be a list of names"),
        ("rows_of", ([1],), "ids must be a list of texts"),
    ],
)
def test_what_is_no_part_of_a_corpus_is_refused(
    method: str, arguments: Any, said: str, small: interface.Workspace
) -> None:
    with pytest.raises(InputError, match=said):
        list(getattr(small.corpus("small"), method)(*arguments))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> interface.Workspace:
    root = tmp_path_factory.mktemp("small")
    mdcr_json(root, "corpus", "--source", "synthetic", "--papers", "200", "--corpus", "small")
    return interface.open(root)


def test_names_that_no_file_can_have_are_refused(small: interface.Workspace) -> None:
    with pytest.raises(InputError, match="must be a folder"):
        interface.open(Path("*" * 5_000))
    with pytest.raises(InputError, match="cannot be the name of a file"):
        small.pool("small", exclude="\0")
