"""Pages in headless Chromium: they work, fetch nothing and say nothing on the console."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.scores.page.conftest import pytestmark
from tests.scores.page.workspace import CITED, EVIL, ranked, title

__all__ = ["pytestmark"]

SIZES = [(1280, 900), (390, 844)]
ALONE = ["../alone/three"]
"""A page of one pool, with a chart of one size and a wide table."""


def column(page: Any, number: int, table: str = "[data-table=table-1]") -> list[str]:
    cells = page.locator(f"{table} tbody tr:visible > *:nth-child({number})")
    return [text.strip() for text in cells.all_inner_texts()]


def figures(texts: list[str]) -> list[float]:
    return [float(re.match(r"[-+−]?[\d.]+", text)[0].replace("−", "-")) for text in texts]  # type: ignore[index]


def ap(system: str, query: int) -> float:
    hits = [rank for rank, row in enumerate(ranked(system, query), 1) if row in CITED[query]]
    return sum(number / rank for number, rank in enumerate(hits, 1)) / len(CITED[query])


def test_sorting_by_mouse_and_keyboard(page: Any) -> None:
    head = page.locator("[data-table=table-1] th", has_text="MAP").first
    unsorted = figures(column(page, 2))
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert figures(column(page, 2)) == sorted(unsorted, reverse=True)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert figures(column(page, 2)) == sorted(unsorted)
    summary = page.locator("#s1 tbody.summary")
    page.locator("#s1 th button", has_text="lsa").first.click()
    assert summary.inner_text().startswith("AVG")


def test_tables_are_downloaded(page: Any) -> None:
    texts = {}
    for name in ("table-1.csv", "table-2.csv", "table-2.tex"):
        with page.expect_download() as download:
            page.locator(f"[data-file='{name}']").click()
        assert download.value.suggested_filename == name
        texts[name] = Path(download.value.path()).read_text()
    whole, part = (list(csv.DictReader(texts[f"{name}.csv"].splitlines())) for name in ("table-1", "table-2"))
    assert {row["field"] for row in whole} == {""}
    assert {row["field"] for row in part} == {"Art", "Physics", "AVG"}
    shown = {f"{100 * float(row['value']):.1f}" for row in part if row["measure"] == "map"}
    assert shown == {f"{value:.1f}" for value in figures(column(page, 2, "#s1") + column(page, 3, "#s1"))}
    assert r"\toprule" in texts["table-2.tex"]


def test_a_query_with_its_positives_and_rankings(page: Any) -> None:
    page.locator("select[name=pool]").select_option(label="Physics, 8")
    page.locator("input[name=filter]").fill("WINDOW.broken")
    rows = page.locator(".queries tbody tr")
    assert rows.count() == 1
    rows.locator("button").click()
    article = page.locator(".browser article")
    assert article.locator("h3").inner_text() == f"1 {EVIL}"
    assert article.locator(".note").first.inner_text() == "Query 00001, 2001, Physics, 8 candidates"
    (positive,) = article.locator(".positives tbody tr").all()
    assert positive.locator("th, td").all_inner_texts() == [f"3 {EVIL}", "2003", "2", "2"]
    for number, system in enumerate(("bm25", "lsa")):
        side = article.locator(".sides section").nth(number)
        assert side.locator("h4").inner_text() == f"{system}: first 10"
        expected = [title(row) for row in ranked(system, 1)]
        assert side.locator("li span:first-child").all_inner_texts() == expected
        assert side.locator("li.relevant span:first-child").all_inner_texts() == [title(row) for row in CITED[1]]


def test_two_systems_are_compared(page: Any) -> None:
    def shown() -> list[list[str]]:
        return [row.locator("td").all_inner_texts() for row in page.locator(".queries tbody tr").all()]

    rows = shown()
    assert len(rows) == len(CITED)
    assert [float(cells[4].replace("−", "-")) for cells in rows] == pytest.approx(
        [float(cells[3]) - float(cells[2]) for cells in rows], abs=0.11
    )
    assert "lsa is better on 1, the same on 1, worse on 1" in page.locator(".comparison").inner_text()
    page.locator("select[name=a]").select_option(label="lsa")
    page.locator("select[name=b]").select_option(label="bm25")
    assert [[a, b] for _, _, b, a, _ in shown()] == [cells[2:4] for cells in reversed(rows)]
    page.locator(".queries th button", has_text="positives").click()
    assert [int(cells[1]) for cells in shown()] == sorted(map(len, CITED.values()), reverse=True)
    page.locator("select[name=b]").select_option(label="lsa")
    assert {cells[4] for cells in shown()} == {"0.0"}


def test_charts_follow_their_measure(page: Any) -> None:
    chart = page.locator("#s2 canvas")
    before = chart.screenshot()
    page.locator("#s2 select").select_option(label="NDCG")
    assert chart.screenshot() != before
    before = chart.screenshot()
    chart.hover()
    page.wait_for_timeout(100)
    assert chart.screenshot() != before, "hovering shows nothing"


def test_light_and_dark(page: Any) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, button, chart = background(), page.locator("#theme"), page.locator("#s2 canvas")
    drawn = chart.screenshot()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert dark != light
    assert chart.screenshot() != drawn
    for name, expected in (("light", light), ("dark", dark), ("system", dark)):
        button.click()
        assert button.inner_text() == f"Theme: {name}"
        assert background() == expected
    page.emulate_media(media="print")
    assert background() == light


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_fits_and_can_be_named(page: Any, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.locator(".queries tbody button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    nameless = """() => [...document.querySelectorAll('button, input, select, canvas, img, table')].filter(each =>
        !(each.labels?.length || each.ariaLabel || each.textContent.trim() || each.alt || each.caption))"""
    assert page.evaluate(f"({nameless})().map(each => each.outerHTML)") == []
    assert page.locator("th:not([scope])").count() == 0


def test_it_begins_with_what_it_shows(page: Any) -> None:
    sentences = page.get_by_role("list", name="What it shows").get_by_role("listitem").all_inner_texts()
    best = max(sum(ap(system, query) for query in CITED) / len(CITED) for system in ("bm25", "lsa"))
    assert sentences[0].startswith(f"lsa has MAP {100 * best:.1f} [")
    places = [page.locator(name).first.bounding_box()["y"] for name in (".findings", "main table", "main canvas")]
    assert places == [min(places), *places[1:]]


@pytest.mark.parametrize("page", ALONE, indirect=True)
def test_one_pool_has_one_table_whose_figures_open_their_provenance(page: Any) -> None:
    assert page.locator("#s0 tbody tr").count() == 3
    figures = page.locator("#s0 button.figure")
    assert figures.count() == 9
    page.locator("#s0 tbody tr", has_text="third").locator("button").nth(1).click()
    assert page.locator("#record-title").inner_text().startswith("third, dataset level, ndcg: ")


@pytest.mark.parametrize("page", ALONE, indirect=True)
def test_a_table_wider_than_a_desk_shows_that_it_scrolls(page: Any) -> None:
    section = page.locator("section", has=page.get_by_role("heading", name="Wide"))
    button, box = section.get_by_role("button", name="More columns"), section.locator(".scroll.faded")
    box.wait_for()
    assert (button.is_visible(), button.is_enabled()) == (True, True)
    assert box.get_attribute("tabindex") == "0"
    assert not page.locator("#s0").get_by_role("button", name="More columns").is_visible()
    button.click()
    page.wait_for_function("box => box.scrollLeft > 500", arg=box.element_handle())
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    section.locator("button.onward:disabled").wait_for()
    last = section.get_by_role("button", name="measure 29").bounding_box()
    assert last["x"] + last["width"] <= 1280
    assert section.locator("tbody th").bounding_box()["x"] >= 0, "the name of the row stays in sight"


@pytest.mark.parametrize("page", ALONE, indirect=True)
def test_systems_on_one_size_stand_side_by_side(page: Any) -> None:
    places = """() => Chart.getChart(document.querySelector("[data-chart] canvas")).getSortedVisibleDatasetMetas()
        .map(set => set.data[0].x)"""
    xs = page.evaluate(places)
    assert len(xs) == 3
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(xs))


def test_titles_and_contexts_have_the_width_of_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("select[name=pool]").select_option(label="Art, 8")
    buttons = page.locator(".queries tbody button")
    assert buttons.count() == len(CITED)
    assert max(button.bounding_box()["height"] for button in buttons.all()) < 80, "long queries are cut"
    assert min(cell.bounding_box()["width"] for cell in page.locator(".queries tbody th").all()) > 320
    buttons.filter(has_text="citation context").click()
    article = page.locator(".browser article.query")
    assert article.locator("h3").inner_text().endswith(" …")
    article.get_by_text("Whole query").click()
    assert article.locator("details p").first.inner_text() == title(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_reader_chooses_rows_by_value_and_by_limit(page: Any) -> None:
    section = page.locator("section", has=page.get_by_role("heading", name="Chosen"))
    shown = section.locator("tbody tr:visible")

    def systems() -> list[str]:
        return list(shown.locator("th").all_inner_texts())

    licence, million = section.get_by_label("licence"), section.get_by_label("million")
    assert million.locator("option").all_inner_texts() == ["any", "≤ 7", "≤ 22.7", "≤ 1100"]
    licence.select_option(label="MIT")
    assert systems() == ["s0", "s1", "s4", "s5"]
    million.select_option(label="≤ 22.7")
    assert systems() == ["s0", "s4"]
    licence.select_option(label="any")
    assert systems() == ["s0", "s2", "s4", "s6"]  # what is unknown is not within a limit
    million.select_option(label="any")
    section.get_by_role("searchbox").fill("s7")
    assert systems() == ["s7"]
    section.get_by_role("button", name=re.compile("40.0, s[37], value: provenance")).locator("visible=true").click()
    assert page.locator("#record-title").inner_text() == f"s7, {EVIL}, map: 40.0"
