"""The example of docs/python.md runs, and its frames have the columns that the reference describes."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from pipeline.scores.compare import DIFFERENCES, QUERIES
from pipeline.scores.frames import SCORES_SCHEMA
from pipeline.scores.summary import SUMMARY

PAGE = (Path(__file__).parents[1] / "docs/python.md").read_text()


def test_the_example_runs_and_its_frames_have_the_columns_of_the_reference(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        exec(code, names)  # noqa: S102 – the page's own code
    columns = {"scores": SCORES_SCHEMA, "summary": SUMMARY, "differences": DIFFERENCES, "differing": QUERIES}
    for name, schema in columns.items():
        assert len(names[name]) > 0, name
        assert sorted(names[name].columns) == sorted(schema), name
    assert names["vectors"].shape == (len(names["ids"]), names["vectors"].shape[1])
    assert names["figure"]._repr_png_().startswith(b"\x89PNG")
