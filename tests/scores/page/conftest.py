"""Pages with everything a page can show, and Chromium that opens them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.measure.design import Draws
from pipeline.scores.compare import compare, most_different
from pipeline.scores.comparison import page_of as page_of_comparison
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.page.write import write_index, write_page
from pipeline.scores.tables import Cell, Column, Table, TableRow
from tests.scores.page.workspace import EVIL, RUNS, report_page, scored

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: apt-get install chromium"),
]


FIGURES = [("MIT", "7", 0.1), ("MIT", "1,100", 0.2), ("Apache-2.0", "22.7", 0.3), (None, None, 0.4)] * 2
CHOSEN = Table(
    "Chosen",
    "system",
    (Column("", "licence", choose="="), Column("", "million", choose="≤"), Column("", "value")),
    tuple(
        TableRow(f"s{n}", (licence, million, Cell(value, 0, 1, best=n == 7)))
        for n, (licence, million, value) in enumerate(FIGURES)
    ),
    name="chosen",
    records=[
        {"label": f"s{n}", "field": EVIL, "measure": "map", "value": value} for n, (_, _, value) in enumerate(FIGURES)
    ],
)


WIDE = Table(
    "Wide",
    "system",
    tuple(Column("", f"measure {n}") for n in range(30)),
    (TableRow("a", (Cell(0.5),) * 30),),
    name="wide",
)
APART = Chart(
    "Three systems on one size", "candidates", "%",
    {"MAP": [Series(name, [1_000.0], [0.5], [0.4], [0.6]) for name in "abc"]}, log=True, ticks={1_000: "1k"},
)  # fmt: skip
FURTHER = [dataclasses.replace(WIDE, name=f"t{n}", title=f"Further {n}") for n in range(4)]
"""With the two others of its page, more tables than a page shows at once."""


def open_page(page: Any, path: Path) -> None:
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    runs, scores = scored(root)
    (root / "reports/one").mkdir(parents=True)
    page = report_page(runs, scores)
    write_page(dataclasses.replace(page, parts=[*page.parts, CHOSEN]), root / "reports/one")
    draws = Draws(resamples=50)
    differences = compare(scores, "bm25", "lsa", draws=draws)
    queries = most_different(scores, runs, ("bm25", "lsa"), "map", 10)
    (root / "reports/two").mkdir()
    write_page(page_of_comparison(differences, queries, runs, scores, draws), root / "reports/two")
    write_index(root / "reports")
    third = {**RUNS, "third": [{3: 2.0, 5: 1.0}, {3: 1.0}, {6: 1.0, 7: 0.5}]}
    page = report_page(*scored(root / "alone", [{}], third))
    (root / "alone/three").mkdir()
    write_page(dataclasses.replace(page, parts=[*page.parts, APART, WIDE, *FURTHER]), root / "alone/three")
    return root / "reports"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of a report, or of another folder; afterwards, what it fetched and what it said."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page, said, fetched = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda sent: fetched.append(sent.url))
    open_page(page, folder / getattr(request, "param", "one") / "index.html")
    yield page
    assert said == []
    assert [url for url in fetched if not url.startswith(("file:", "blob:"))] == []
    assert len([url for url in fetched if url.startswith("file:")]) == 1
    assert page.evaluate("window.broken") is None
    context.close()
