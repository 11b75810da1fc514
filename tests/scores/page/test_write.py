"""Pages as text: escaped, whole, and with the chart library that was chosen."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import polars as pl
import pytest

from pipeline.scores.page.parts import Chart, Page, Part, Series
from pipeline.scores.page.write import LIBRARY, LIBRARY_VERSION, as_html, write_index, write_page
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Cell, Column, Table, TableRow, Value
from tests.scores.page.workspace import EVIL, report_page, scored

SHA256 = "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2"
"""Of ``dist/chart.umd.min.js`` in the npm package chart.js 4.6.1."""

TABLE = Table(
    EVIL, EVIL, (Column(EVIL, EVIL),), (TableRow(EVIL, (EVIL,)), TableRow("mean", (None,), summary=True)), (EVIL,)
)
PARTS: list[Part] = [
    replace(TABLE, frame=pl.DataFrame({"a": [EVIL]})),
    Chart(EVIL, EVIL, "%", {EVIL: [Series(EVIL, [1.0], [0.5])], "b": []}, provenance=EVIL),
]


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def test_the_library_is_the_one_that_was_chosen() -> None:
    folder = resources.files("pipeline.scores.page")
    data = folder.joinpath(LIBRARY).read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256
    assert LIBRARY_VERSION.replace("js ", "js v").encode() in data[:100]
    assert "MIT License" in folder.joinpath("vendor/LICENSE-chart.js.md").read_text()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_text_is_escaped_wherever_it_stands(part: Part) -> None:
    text = as_html(Page(EVIL, EVIL, [part], {EVIL: EVIL}))
    assert len(scripts(text)) == 1 + isinstance(part, Chart)
    assert "<img src=x" not in text
    assert "onerror='" not in text
    assert text.count("</script>") == text.count("<script")


def test_a_page_of_a_report_holds_no_markup_of_titles(tmp_path: Path) -> None:
    own = scored(tmp_path)
    text = as_html(report_page(*own))
    assert text == as_html(report_page(*own))
    assert EVIL not in text
    assert "window.broken" not in text
    policy = re.search(r"script-src (.*?);", text)
    assert policy is not None
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts(text)]
    assert policy[1].split() == hashes
    stated = re.search(r"Size of this file: (\d+) kB", text)
    assert stated is not None
    assert abs(int(stated[1]) - len(text.encode()) / 1e3) < 1
    assert "Permission is hereby granted" in text


def test_every_figure_of_a_report_has_a_place(tmp_path: Path) -> None:
    runs, scores = scored(tmp_path)
    page = report_page(runs, scores)
    kinds = [type(part).__name__ for part in page.parts]
    assert kinds == ["Table", "Table", "Chart", "Chart", "Browser"]
    curve, by_field = (part for part in page.parts if isinstance(part, Chart))
    assert [series.x for series in curve.views["MAP"]] == [[7, 8], [7, 8]]
    assert by_field.categories == ["Art", "Physics", "mean"]
    text = as_html(page)
    figures = summarise(scores)["value"]
    assert all(f'data-v="{value!r}"' in text for value in figures)
    (tmp_path / "corpora" / runs["corpus"][0]).rename(tmp_path / "gone")
    assert "Browser" not in [type(part).__name__ for part in report_page(runs, scores).parts]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (Cell(0.25, published=0.3), '<td data-v="0.25">25.0 <span class="loss">(-5.0)</span></td>'),
        (Cell(0.25, published=0.2), '<td data-v="0.25">25.0 <span class="gain">(+5.0)</span></td>'),
        (Cell(0.25, 0.21, 0.29, published=0.2),
         '<td data-v="0.25">25.0 <span class="interval">[21.0, 29.0]</span> <span class="gain">(+5.0)</span></td>'),
        (Cell(0.25, 0.2, 0.3, 0.01, best=True),
         '<td data-v="0.25"><b>25.0</b> <span class="interval">± 1.0 [20.0, 30.0]</span></td>'),
        ("1,234", "<td>1,234</td>"),
        (None, "<td>–</td>"),
    ],
)  # fmt: skip
def test_cells(value: Value, cell: str) -> None:
    table = Table("t", "c", (Column("", "x"),), (TableRow("row", (value,)),), ("note", "provenance"))
    assert f'<th scope="row">row</th>{cell}' in as_html(Page("p", "", [table]))


def test_an_index_lists_the_pages_of_a_folder(tmp_path: Path) -> None:
    for name in ("one", "two & three"):
        (tmp_path / name).mkdir()
        write_page(Page(f"{name} {EVIL}", "about", []), tmp_path / name)
    (tmp_path / "none").mkdir()
    text = write_index(tmp_path).read_text()
    assert re.findall('href="(.*?/index.html)"', text) == ["one/index.html", "two%20%26%20three/index.html"]
    assert "2 reports." in text
    assert "<img src=x" not in text
    assert "one &lt;/script&gt;" in text
