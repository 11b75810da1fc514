"""Figures: what they draw, and that they are the same bytes each time."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib as mpl
import polars as pl
import pytest
from matplotlib.figure import Figure

from pipeline.core.errors import InputError
from pipeline.measure.design import Draws
from pipeline.scores.average import AVERAGE
from pipeline.scores.charts import chart_of, figures
from pipeline.scores.frames import load_runs
from pipeline.scores.plot import FORMATS, draw, drawing, save
from pipeline.scores.summary import summarise
from tests.scores.cases import figure, made_up


@pytest.fixture(scope="module")
def scores() -> pl.DataFrame:
    setups = [(None, 200_000), (None, 2_000_000), ("Art", 78_081), ("Physics", 100_000)]
    return made_up(["BM25", "SciNCL"], setups, measures=["map", "recall@30"])


@pytest.fixture(scope="module")
def summary(scores: pl.DataFrame) -> pl.DataFrame:
    return summarise(scores, draws=Draws(resamples=50))


def save_plots(summary: pl.DataFrame, scores: pl.DataFrame, folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    written = []
    for name, chart, view in figures(summary, load_runs(scores)):
        with drawing() as figure_class:
            written += save(draw(figure_class, chart, view), folder / name, FORMATS, chart.provenance)
    return written


@pytest.fixture(scope="module")
def written(summary: pl.DataFrame, scores: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return save_plots(summary.filter(table=1, measure="map"), scores, tmp_path_factory.mktemp("plots"))


def test_every_table_and_measure_has_a_figure_in_every_format(
    summary: pl.DataFrame, scores: pl.DataFrame, written: list[Path]
) -> None:
    names = [f"{family}-{m}" for family in ("sizes-dataset", "fields") for m in ("map", "recall-at-30")]
    assert [name for name, _, _ in figures(summary, load_runs(scores))] == names
    assert [path.name for path in written] == [f"{names[0]}.{suffix}" for suffix in ("svg", "pdf", "png")]
    starts = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for path in written:
        content = path.read_bytes()
        assert content.startswith(starts[path.suffix[1:]])
        assert b"corpus tiny-0123456789ab; pools " in content.replace(b"\\", b"")
    assert sorted(path.name for path in written[0].parent.iterdir()) == sorted(path.name for path in written)


def test_the_same_bytes_whatever_the_users_style(
    summary: pl.DataFrame, scores: pl.DataFrame, written: list[Path], tmp_path: Path
) -> None:
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        again = save_plots(summary.filter(table=1, measure="map"), scores, tmp_path)
        assert mpl.rcParams["font.size"] == 20
    for path in again:
        assert path.read_bytes() == (written[0].parent / path.name).read_bytes()
        assert not re.search(rb"<dc:date>|CreationDate", path.read_bytes())


def test_lines_and_bands_are_the_figures(summary: pl.DataFrame, scores: pl.DataFrame) -> None:
    drawn = draw(Figure, chart_of(summary.filter(table=1), load_runs(scores)), "MAP")
    (axes,) = drawn.axes
    assert [line.get_label() for line in axes.lines] == ["BM25", "SciNCL"]
    expected = [figure(summary, "SciNCL", None, size, "map") for size in (200_000, 2_000_000)]
    assert axes.lines[1].get_xydata().tolist() == [[row["size"], 100 * row["value"]] for row in expected]
    band = axes.collections[1].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(min(100 * row["low"] for row in expected))
    assert band.max() == pytest.approx(max(100 * row["high"] for row in expected))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["200k", "2M"]
    assert axes.get_ylabel() == "MAP (%)"


def test_dots_are_the_figures(summary: pl.DataFrame, scores: pl.DataFrame) -> None:
    drawn = draw(Figure, chart_of(summary.filter(table=2), load_runs(scores)), "R@30")
    (axes,) = drawn.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["Art", "Physics", "mean"]
    places = (("Art", 78_081), ("Physics", 100_000), (AVERAGE, None))
    for container, label in zip(axes.containers, ("BM25", "SciNCL"), strict=True):
        rows = [figure(summary, label, *place, "recall@30") for place in places]
        dots, _, (bars,) = container
        assert dots.get_xdata() == pytest.approx([100 * row["value"] for row in rows])
        for bar, row in zip(bars.get_segments(), rows, strict=True):
            assert bar[:, 0] == pytest.approx([100 * row["low"], 100 * row["high"]])


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"matplotlib, which is not installed. .*\[plot\]"), drawing():
        pass
