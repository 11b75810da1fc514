"""Pages in headless Chromium: they work, fetch nothing and say nothing on the console."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.scores.page.conftest import open_page, pytestmark
from tests.scores.page.workspace import CITED, EVIL, ranked, title

__all__ = ["pytestmark"]

SIZES = [(1280, 900), (390, 844)]
ALONE = ["../alone/three"]
"""A page of one pool, with a chart of one size, a wide table, and many tables."""


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
    page.locator("[data-table=table-1] th button", has_text="system").click()
    assert column(page, 1) == sorted(column(page, 1))
    assert page.locator("[data-table=table-1] th[aria-sort]").count() == 1
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


@pytest.mark.parametrize("page", ["two"], indirect=True)
def test_the_page_of_a_comparison(page: Any) -> None:
    assert page.locator("h1").inner_text() == "lsa against bm25"
    pools = ["dataset level 7", "dataset level 8", "Art 8", "Physics 8", "mean over fields 8"]
    assert column(page, 1, "#s0") == [f"{pool}, {name}" for pool in pools for name in ("MAP", "NDCG", "R@30")]
    page.locator("#s0 input[type=search]").fill("art map")
    ((_, one, other, change, _, _, *counts, finding, _),) = [row.locator("th, td").all_inner_texts() for row in
                                                 page.locator("#s0 tbody tr:visible").all()]  # fmt: skip
    gains = [ap("lsa", query) - ap("bm25", query) for query in CITED]
    assert figures([change]) == [pytest.approx(100 * sum(gains) / 3, abs=0.06)]
    assert figures([change]) == [pytest.approx(float(other) - float(one), abs=0.11)]
    assert list(map(int, counts)) == [sum(map(test, gains)) for test in ((0.0).__lt__, (0.0).__eq__, (0.0).__gt__)]
    assert finding == "no difference shown"
    assert "Queries that differ most in MAP" in page.locator("#s1 h2").inner_text()
    row = page.locator("#s1 tbody tr", has_text="window.broken").first
    assert row.locator("th").inner_text().startswith("00001 1 </script><script>window.broken")
    assert row.locator("td").nth(3).inner_text() == "2 → 2"
    assert page.locator(".queries tbody tr").count() == len(CITED)
    with page.expect_download() as download:
        page.locator("[data-file='queries.csv']").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert {row["positives"] for row in rows if row["query_id"] == "00000"} == {"00005 1 → –;00003 3 → –"}


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
    assert not page.locator(".bar").is_visible()
    assert page.locator("[data-table=table-1]").is_visible()


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
    assert 2 <= len(sentences) <= 3
    best = max(sum(ap(system, query) for query in CITED) / len(CITED) for system in ("bm25", "lsa"))
    assert sentences[0].startswith(f"lsa has MAP {100 * best:.1f} [")
    assert "6 queries are few" in sentences[-1]
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
def test_further_tables_are_folded_until_a_link_leads_to_one(page: Any) -> None:
    sections = page.locator("section", has=page.locator("table.sortable"))
    shown = [table.is_visible() for table in page.locator("table.sortable").all()]
    assert shown == [True, *[False] * 5]
    assert sections.get_by_role("heading").all_inner_texts()[1:] == ["Wide", *(f"Further {n}" for n in range(4))]
    page.get_by_role("navigation").get_by_role("link", name="Further 2").click()
    section = page.locator("section", has=page.get_by_role("heading", name="Further 2"))
    section.locator("table").wait_for()
    page.get_by_role("heading", name="Wide").click()
    page.locator("section", has=page.get_by_role("heading", name="Wide")).locator("table").wait_for()
    assert not page.get_by_role("table", name="Further 1").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert all(table.is_visible() for table in page.locator("table.sortable").all())


@pytest.mark.parametrize("page", ALONE, indirect=True)
def test_the_browser_opens_with_the_two_best(page: Any) -> None:
    names, maps = column(page, 1, "#s0 table"), figures(column(page, 2, "#s0 table"))
    values = dict(zip(names, maps, strict=True))
    chosen = [page.locator(f"select[name={name}] option:checked").inner_text() for name in "ab"]
    assert chosen == sorted(values, key=values.__getitem__)[1:]


@pytest.mark.parametrize("page", ALONE, indirect=True)
def test_a_table_wider_than_a_desk_shows_that_it_scrolls(page: Any) -> None:
    page.get_by_role("heading", name="Wide").click()
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


def test_an_index_leads_to_its_pages(page: Any, folder: Path) -> None:
    other = page.context.new_page()
    open_page(other, folder / "index.html")
    assert column(other, 1, "main table") == ["Retrieval on tiny", "lsa against bm25"]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", text) for text in column(other, 2, "main table"))
    assert column(other, 3, "main table") == [
        "2 systems, 2 fields, 9 queries, pools of 7 to 8 candidates.",
        "4 pools; 9 queries.",
    ]
    other.locator("main a", has_text="Retrieval on tiny").click()
    other.wait_for_url("**/one/index.html")


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
