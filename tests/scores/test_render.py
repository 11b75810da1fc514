"""Golden text of small tables in every format, and how they are laid out."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.exchange.export import as_csv
from pipeline.measure.design import Draws
from pipeline.scores.frames import load_runs
from pipeline.scores.render import escape_latex, render_table
from pipeline.scores.summary import exported, summarise, summarise_samples
from pipeline.scores.tables import Column
from tests.scores.cases import made_up, scored, tables_of

GOLDEN = Path(__file__).with_name("golden")


def flat(system: str, value: float, *, field: str | None = None, size: int = 200_000, sample: int = 1) -> pl.DataFrame:
    """Equal values of all queries: the interval is the value itself, so golden text can be checked by eye."""
    values = {"map": [value] * 20, "recall@30": [value + 0.125] * 20}
    return scored(system, values, field=field, size=size, sample=sample)


def render(scores: pl.DataFrame, output: str = "terminal", baseline: str | None = None, **look: Any) -> str:
    """Scores in one of the formats, with MAP alone where fields are shown."""
    by_field = scores["field"].drop_nulls().len() > 0
    draws = Draws(resamples=10, permutations=99 if by_field else 10_000)
    summary = summarise(scores, baseline=baseline, draws=draws)
    if output == "csv":
        return as_csv(exported(pl.concat([summary, summarise_samples(scores, load_runs(scores), draws)])))
    shown = ["map"] if by_field else None
    return "\n".join(render_table(table, output, **look) for table in tables_of(scores, summary, shown))


@pytest.fixture
def by_size() -> pl.DataFrame:
    """BM25 and SciNCL at 200k, two samples; BM25 alone at 2M, one sample."""
    scores = [flat("BM25", 0.25 * sample, sample=sample) for sample in (1, 2)]
    scores += [flat("SciNCL_v1", 0.25 + 0.25 * sample, sample=sample) for sample in (1, 2)]
    return pl.concat([*scores, flat("BM25", 0.125, size=2_000_000)])


@pytest.fixture
def by_field() -> pl.DataFrame:
    scores = [flat("BM25", 0.5, field="Art", size=78_081), flat("SciNCL", 0.375, field="Art", size=78_081)]
    scores += [flat("BM25", 0.25, field="Physics", size=100_000), flat("SciNCL", 0.625, field="Physics", size=100_000)]
    return pl.concat(scores)


@pytest.mark.parametrize(("case", "width"), [("by_size", 80), ("by_field", 100)])
@pytest.mark.parametrize(
    ("suffix", "output"), [("txt", "terminal"), ("md", "markdown"), ("tex", "latex"), ("csv", "csv")]
)
def test_golden(request: pytest.FixtureRequest, case: str, width: int, suffix: str, output: str) -> None:
    expected = (GOLDEN / f"{case}.{suffix}").read_text(encoding="utf-8")
    assert render(request.getfixturevalue(case), output, "BM25", width=width) == expected


def test_csv_is_the_summary_in_full_precision() -> None:
    scores = made_up(["a", "b"], [("Art", 10), ("Physics", 20)])
    summary = summarise(scores, baseline="a")
    lines = list(
        csv.DictReader(
            io.StringIO(as_csv(exported(pl.concat([summary, summarise_samples(scores, load_runs(scores))]))))
        )
    )
    assert len(summary) == 2 * 2 * 3
    assert len(lines) == 2 * 2 * (3 + 2 * 3)
    assert [line["sample"] for line in lines] == [""] * 12 + [n for n in "123" for _ in range(8)]
    for line, row in zip(lines, summary.rows(named=True), strict=False):
        assert line["size"] == ("" if row["size"] is None else str(row["size"]))
        for name in ("value", "deviation", "low", "high", "p_value", "p_adjusted"):
            assert (float(line[name]) if line[name] else None) == row[name]
        assert line["pools"].split(";") == row["pools"]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 400])
def test_terminal_keeps_to_the_width(width: int) -> None:
    setups = [(None, 200_000), (None, 500_000), ("Art", 10), ("Computer Science", 20)]
    scores = made_up(["BM25", "SciNCL", "SPECTER"], setups)
    text = render(scores, baseline="BM25", width=width)
    assert max(map(len, text.splitlines())) <= width
    tables = tables_of(scores, summarise(scores), ["map"])
    for table in tables:
        for column in table.columns:
            assert column.label in text


def test_notes_name_parameters_and_the_fields_they_are_of() -> None:
    values = {"map": [0.5, 0.25]}
    tuned = [
        scored("bm25", values, field=field, k1=k1, b=0.75, aliases=["bm25:tuned"])
        for field, k1 in (("Art", 0.9), ("Physics", 1.3), ("Medicine", 0.9))
    ]
    fields = ("Art", "Physics", "Medicine")
    fixed = [scored("bm25:k1=0.9,b=0.4", values, field=field, k1=0.9, b=0.4) for field in fields]
    dense = pl.concat([scored("lsa", values, field=field) for field in fields])
    many = pl.concat([*tuned, *fixed, dense])
    notes = " ".join(tables_of(many, summarise(many))[0].notes)
    assert "Parameters: bm25 tuned to k1=0.9, b=0.75 (Art, Medicine), tuned to k1=1.3, b=0.75 (Physics)." in notes
    assert "Parameters" not in " ".join(tables_of(dense, summarise(dense))[0].notes)


def test_markup_in_names_is_escaped() -> None:
    scores = scored("a|b_c%", {"map": [0.5]})
    assert "| a\\|b\\_c% |" in render(scores, "markdown")
    assert r"a|b\_c\% & " in render(scores, "latex")
    hostile = "<img src=x> [a](javascript:b) ![c](d) `e` **f** ~g~ &lt; $h$\n# i | j"
    shown = render(scored(hostile, {"map": [0.5]}), "markdown")
    assert re.sub(r"\\[^\w\s]", "", shown).count("\n") == shown.count("\n")
    assert not re.search(r"<img|\[a|\[c|`|\*\*f|~g|&lt|\$h|\n# i", re.sub(r"\\[^\w\s]", "", shown))
    assert escape_latex(r"\{&") == r"\textbackslash{}\{\&"


def test_latex_for_a_paper(by_size: pl.DataFrame) -> None:
    """A label, one line of notes, short sizes; all else is a comment above."""
    (table,) = tables_of(by_size, summarise(by_size, baseline="BM25"), ["map"])
    comments, _, body = render_table(table, "latex", brief=True).partition(r"\begin{table}")
    assert all(line.startswith("% ") for line in comments.splitlines())
    assert "Provenance" in comments
    assert r"\label{tab:retrieval-by-pool-size-dataset-level}" in body
    (notes,) = re.findall(r"raggedright\n(.*)\n", body)
    assert notes.startswith("Percent: mean over samples")
    assert "differs from BM25" in notes
    assert "Provenance" not in body
    assert "Bold or" not in body
    large = dataclasses.replace(table, title="Among 8,200 (1,234,567 in all)", columns=(Column("3956", "2019"),) * 3)
    text = render_table(dataclasses.replace(large, lines=()), "latex", brief=True)
    assert r"\caption{Among 8.2k (1.2M in all)}" in text
    assert r"{c}{4k}" in text
    assert "2019 & 2019" in text
    assert r"\begin{table*}" in text


HOSTILE = "=1+1\n\x1b[31m\u202e\0x"
SHOWN = r"=1+1\n\x1b[31m\u202e\x00x"


@pytest.mark.parametrize("output", ["terminal", "markdown", "csv", "latex"])
def test_a_name_of_hostile_characters_stays_in_its_row(output: str) -> None:
    """Rows are neither split nor changed: names have no line end, no escape code and no mark of direction."""
    plain, named = (
        render(pl.concat([flat("BM25", 0.5), flat(name, 0.25)]), output, "BM25") for name in ("other", HOSTILE)
    )
    assert len(named.splitlines()) == len(plain.splitlines())
    assert all(line.isprintable() for line in named.splitlines())
    if output == "csv":
        systems = [line["system"] for line in csv.DictReader(io.StringIO(named))]
        assert set(systems) == {"BM25", f"'{SHOWN}"}
    elif output == "terminal":
        assert SHOWN in named
