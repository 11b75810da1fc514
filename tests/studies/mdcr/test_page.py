"""The page of a benchmark in headless Chromium: candidates with their types, and the interval of a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.measure.design import Draws
from pipeline.scores.compare import compare
from pipeline.scores.labels import labelled
from pipeline.scores.store import scores_of
from pipeline.studies.kit import stored_runs
from pipeline.studies.mdcr.lists import MEASURES, TRUE, candidates_of
from tests.builders import made_up_paper
from tests.scores.page.conftest import chromium, open_page, pytestmark
from tests.scores.page.workspace import EVIL
from tests.studies.mdcr.conftest import TYPES, random_lists, study_lists

__all__ = ["chromium", "pytestmark"]

LISTS = random_lists(1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a workspace, the benchmark and the folder of the report."""
    root, folder = tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("evil")
    (folder / "mdcr_test.json").write_text(json.dumps(LISTS))
    papers = [{**made_up_paper(number), "title": f"{number} {EVIL}"} for number in range(60)]
    rows = ({name: paper[name] for name in ("paper_id", "title", "abstract")} for paper in papers)
    (folder / "mdcr_test_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root, folder, Path(study_lists(root, folder, "bm25,lsa")["folder"])


@pytest.fixture
def page(chromium: Any, made: tuple[Path, Path, Path]) -> Iterator[Any]:
    page, said = chromium.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    open_page(page, made[2] / "index.html")
    page.locator("select[name=pool]").select_option(label="Art")
    yield page
    assert said == []
    assert page.evaluate("window.broken") is None
    page.close()


def types_of(query: str, only: str = "") -> dict[str, list[str]]:
    """Return the types of each candidate of a query (of one type), those of positives first."""
    by_type = LISTS["Art"][query]
    names = {"positive": TRUE, **{name: name for name in TYPES}}
    papers = by_type[only] if only else candidates_of(by_type)
    return {paper: [shown for shown, name in names.items() if paper in by_type[name]] for paper in papers}


def rows(page: Any) -> dict[str, list[str]]:
    """Return the candidates shown, and their types."""
    lines = page.locator(".positives tbody tr").all()
    cells = [line.locator("th, td").all_text_contents() for line in lines]
    return {f"{int(title.split()[0]):05d}": kinds.split(", ") for title, kinds, *_ in cells}


def open_query(page: Any, query: str) -> None:
    page.locator("input[name=filter]").fill(query)
    page.locator(".queries tbody button").click()


def test_each_candidate_has_its_types(page: Any) -> None:
    both = 0
    for query in LISTS["Art"]:
        open_query(page, query)
        expected = types_of(query)
        assert rows(page) == expected
        counts = [f"{name} {sum(name in kinds for kinds in expected.values())}" for name in ("positive", *TYPES)]
        assert page.locator(".kinds button").all_inner_texts() == counts
        assert page.locator(".kinds li").first.inner_text() == f"{counts[0]} cited by the query"
        positives = sum("positive" in kinds for kinds in expected.values())
        assert page.locator(".queries tbody td").nth(1).inner_text() == str(positives)
        assert page.locator(".positives tr.relevant").count() == positives
        both += any(len(kinds) > 1 for kinds in expected.values())
        assert set(page.locator(".sides .kind").all_inner_texts()) == set().union(*expected.values())
    assert both, "no candidate has two types"


def test_a_type_restricts_what_is_shown(page: Any) -> None:
    first, second = list(LISTS["Art"])[:2]
    open_query(page, first)
    ranks = page.locator(".sides section").nth(1).locator("li").evaluate_all("all => all.map(one => one.value)")
    assert ranks == list(range(1, len(ranks) + 1))
    page.locator(".kinds button", has_text="graph").press("Enter")
    pressed = page.locator(".kinds [aria-pressed=true]")
    assert pressed.all_inner_texts() == ["graph 6"]
    assert pressed.evaluate("button => button === document.activeElement")
    assert rows(page) == types_of(first, "graph")
    own = [line.locator("td").last.inner_text() for line in page.locator(".positives tbody tr").all()]
    ranks = page.locator(".sides section").nth(1).locator("li").evaluate_all("all => all.map(one => String(one.value))")
    assert ranks == sorted(own, key=int)
    open_query(page, second)
    assert rows(page) == types_of(second, "graph")
    page.locator(".kinds button", has_text="graph").click()
    assert rows(page) == types_of(second)


def test_a_difference_has_the_interval_of_compare(page: Any, made: tuple[Path, Path, Path]) -> None:
    runs = labelled(stored_runs([made[0]])).filter(field="Art")
    differences = compare(scores_of(runs), "bm25", "lsa", MEASURES, Draws(seed=13))
    for row in differences.iter_rows(named=True):
        name = {"map": "MAP", "ndcg": "NDCG", "recall@5": "R@5"}[row["measure"]]
        page.locator("select[name=measure]").select_option(label=name)
        expected = f"[{100 * row['low']:+.1f}, {100 * row['high']:+.1f}] (95% interval)".replace("-", "−")
        assert expected in page.locator(".comparison").inner_text()
    page.locator("select[name=a]").select_option(label="lsa")
    page.locator("select[name=b]").select_option(label="bm25")
    expected = f"[{-100 * row['high']:+.1f}, {-100 * row['low']:+.1f}]".replace("-", "−")
    assert expected in page.locator(".comparison").inner_text()
    page.locator("input[name=filter]").fill(next(iter(LISTS["Art"])))
    assert "interval" not in page.locator(".comparison").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.locator(".queries tbody button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".positives tbody td.label").first.is_visible()
    assert page.locator("th:not([scope])").count() == 0
