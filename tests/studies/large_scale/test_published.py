"""The papers' tables: which figures stand beside which, and how they look."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import polars as pl
import pytest

from pipeline.core.fields import MAG_FIELDS
from pipeline.measure.design import Draws
from pipeline.scores.average import AVERAGE
from pipeline.scores.render import render_table
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Cell, Column, Table, TableRow
from pipeline.studies.large_scale import MEASURES, paper_tables, published
from tests.scores.cases import figure, made_up
from tests.shared import SHARED

MARKS = ("papers", "without_abstract", "without_year", "few_references")
GAPS = {"field": None} | {f"positives_{mark}": n for mark, n in zip(MARKS, (4, 2, 0, 0), strict=True)}
GAPS |= {f"negatives_{mark}": n for mark, n in zip(MARKS, (4, 1, 0, 0), strict=True)}
POOLS = pl.DataFrame([GAPS], {"field": pl.String} | {name: pl.Int64 for name in GAPS if name != "field"})
QUICK = Draws(resamples=20, permutations=20)


def summary(setups: Sequence[tuple[str | None, int]], samples: int = 3) -> pl.DataFrame:
    return summarise(made_up(["bm25:tuned", "scincl"], setups, measures=list(MEASURES), samples=samples), draws=QUICK)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("bm25:tuned", None, 200_000, "map"), 0.404),
        (("scincl", None, 3_000_000, "map"), None),
        (("aspire-cs", "Medicine", 100_000, "map"), 0.465),
        (("bm25:tuned", "Art", 31_234, "map"), 0.361),
        (("bm25:tuned", "Medicine", 99_999, "map"), None),
        (("bm25:tuned", AVERAGE, 100_000, "map"), 0.321),
        (("bm25", None, 200_000, "map"), None),
    ],
)
def test_a_figure_stands_beside_that_of_its_pool(place: tuple[str, str | None, int, str], expected: float) -> None:
    assert published(*place) == (None if expected is None else pytest.approx(expected))


@pytest.mark.realdata
def test_the_figures_are_those_of_the_papers() -> None:
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip(f"no tables at {folder}: set MDCR_SHARED")
    compared = 0
    parts = ("table2_field_level_map", "table7_field_level_ndcg", "table8_field_level_recall30")
    for part, measure in zip(parts, MEASURES, strict=True):
        for field, model, percent in list(csv.reader((folder / f"mdcr_{part}.csv").open()))[1:]:
            system = "bm25:tuned" if model == "BM25" else model.lower()
            assert published(system, field, 100_000, measure) == pytest.approx(float(percent) / 100), (field, model)
            compared += 1
    for size, model, *percents in list(csv.reader((folder / "mdcr_table1_dataset_level.csv").open()))[1:]:
        system = "bm25:tuned" if model == "BM25" else model.lower()
        count = {"200k": 200_000, "500k": 500_000, "1M": 1_000_000, "2M": 2_000_000}[size]
        for measure, percent in zip(MEASURES, percents, strict=True):
            assert published(system, None, count, measure) == pytest.approx(float(percent) / 100)
            compared += 1
    assert compared == 20 * 6 * 3 + 4 * 5 * 3


def test_tables_have_the_layout_of_the_paper() -> None:
    systems = ["bm25:tuned", "scincl"]
    dataset = summary([(None, 200_000), (None, 2_000_000)])
    (first,) = paper_tables(dataset, POOLS)
    assert first.name == "table-1"
    assert [(c.group, c.label) for c in first.columns] == [
        (size, label) for size in ("200k", "2M") for label in ("MAP", "NDCG", "R@30")
    ]
    assert [line.label for line in first.lines] == systems
    cell = first.lines[1].values[3]
    assert isinstance(cell, Cell)
    assert cell.published == pytest.approx(0.216)
    row = figure(dataset, "scincl", None, 2_000_000, "map")
    assert (cell.value, cell.low, cell.high) == (row["value"], row["low"], row["high"])
    assert "without abstract 50.0% and 25.0%" in first.notes[-1]
    setups = [(field, 100_000) for field in MAG_FIELDS]
    found = list(paper_tables(summary(setups, samples=1), POOLS))
    assert [each.name for each in found] == ["table-2-100k", "table-7-100k", "table-8-100k"]
    assert [line.label for line in found[0].lines] == [*MAG_FIELDS, AVERAGE]
    assert found[0].lines[-1].summary
    assert all(value.low < value.value < value.high for each in found for line in each.lines
               for value in line.values)  # type: ignore[union-attr, operator]  # fmt: skip
    assert found[0].frame["published"].null_count() == 0
    assert "(" in str(found[0].lines[-1].values[0])
    two = summary([("Art", 50), ("Physics", 50)])
    assert "(" not in str(next(paper_tables(two, POOLS)).lines[-1].values[0])
    (alone,) = paper_tables(dataset, POOLS.clear(), compared=False)
    assert alone.frame["published"].null_count() == len(alone.frame)
    assert {str(value) for line in alone.lines for value in line.values if "(" in str(value)} == set()
    assert alone.notes == ("Percent [95% interval over queries].",)


@pytest.mark.parametrize(
    ("cell", "plain", "latex"),
    [
        (Cell(0.25, published=0.2), "25.0 (+5.0)", r"\textcolor{teal}{25.0 (+5.0)}"),
        (Cell(0.2004, published=0.2), "20.0 (+0.0)", "& 20.0 (+0.0)"),
        (
            Cell(0.25, 0.21, 0.29, published=0.2),
            "25.0 [21.0, 29.0] (+5.0)",
            r"\textcolor{teal}{25.0 {\scriptsize [21.0, 29.0]} (+5.0)}",
        ),
    ],
)
def test_a_difference_has_a_sign_and_a_colour(cell: Cell, plain: str, latex: str) -> None:
    table = Table("t", "system", (Column("", "MAP"),), (TableRow("a", (cell,)),), ())
    assert plain in " ".join(render_table(table).split())
    assert f"| {plain} |" in render_table(table, "markdown")
    assert latex in render_table(table, "latex")
