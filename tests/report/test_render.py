"""Golden text of small tables in every format, and how they are laid out."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.report.aggregate import summarise
from pipeline.report.latex import escape
from pipeline.report.model import Report, ReportSettings, Scored
from pipeline.report.render import FORMATS, render
from pipeline.report.tables import Column, Figure, Line, Table, blocks, build_tables
from tests.report.cases import made_up, scored

GOLDEN = Path(__file__).with_name("golden")


def flat(system: str, value: float, *, field: str | None = None, size: int = 200_000, sample: int = 1) -> Scored:
    """Equal values of all queries: the interval is the value itself, so golden text can be checked by eye."""
    values = {"map": [value] * 20, "recall@30": [value + 0.125] * 20}
    return scored(system, values, field=field, size=size, sample=sample, tied_share=0.015)


@pytest.fixture
def by_size() -> Report:
    """BM25 and SciNCL at 200k, two samples; BM25 alone at 2M, one sample."""
    scores = [flat("BM25", 0.25 * sample, sample=sample) for sample in (1, 2)]
    scores += [flat("SciNCL_v1", 0.25 + 0.25 * sample, sample=sample) for sample in (1, 2)]
    return summarise([*scores, flat("BM25", 0.125, size=2_000_000)], ReportSettings(baseline="BM25", resamples=10))


@pytest.fixture
def by_field() -> Report:
    scores = [flat("BM25", 0.5, field="Art", size=78_081), flat("SciNCL", 0.375, field="Art", size=78_081)]
    scores += [flat("BM25", 0.25, field="Physics", size=100_000), flat("SciNCL", 0.625, field="Physics", size=100_000)]
    return summarise(scores, ReportSettings(resamples=10, permutations=99, baseline="BM25"), ["map"])


@pytest.mark.parametrize(("case", "width"), [("by_size", 80), ("by_field", 100)])
@pytest.mark.parametrize(
    ("suffix", "output"), [("txt", "terminal"), ("md", "markdown"), ("tex", "latex"), ("csv", "csv")]
)
def test_golden(request: pytest.FixtureRequest, case: str, width: int, suffix: str, output: str) -> None:
    expected = (GOLDEN / f"{case}.{suffix}").read_text(encoding="utf-8")
    assert render(request.getfixturevalue(case), output, width=width) == expected


def test_csv_is_the_report_in_full_precision() -> None:
    report = summarise(made_up(["a", "b"], [("Art", 10), ("Physics", 20)]), ReportSettings(baseline="a"))
    lines = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert len(report.summaries) == 2 * 2 * 3
    assert len(lines) == 2 * 2 * (3 + 2 * 3)
    assert [line["sample"] for line in lines] == [""] * 12 + [n for n in "123" for _ in range(8)]
    for line, summary in zip(lines[:12], report.summaries, strict=True):
        assert line["size"] == ("" if summary.size is None else str(summary.size))
        for name in ("value", "deviation", "low", "high", "p_value", "p_adjusted"):
            expected = getattr(summary, name)
            assert (float(line[name]) if line[name] else None) == expected
        assert line["pools"].split(";") == list(summary.pools)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 400])
@pytest.mark.parametrize("ansi", [True, False])
def test_terminal_keeps_to_the_width(width: int, ansi: bool) -> None:
    setups = [(None, 200_000), (None, 500_000), ("Art", 10), ("Computer Science", 20)]
    report = summarise(made_up(["BM25", "SciNCL", "SPECTER"], setups), ReportSettings(baseline="BM25"))
    text = render(report, width=width, ansi=ansi)
    assert max(len(re.sub(r"\x1b\[[01]m", "", line)) for line in text.splitlines()) <= width
    tables = build_tables(report)
    for table in tables:
        for column in table.columns:
            assert column.label in text


def test_bold_does_not_shift_columns(by_size: Report) -> None:
    text = render(by_size, ansi=True)
    assert "\x1b[1m62.5\x1b[0m†" in text
    plain = re.sub(r"\x1b\[[01]m", "", text).splitlines()
    assert len({line.rindex("]") for line in plain[5:7]}) == 1


def test_best_and_marks() -> None:
    scores = [
        scored("a", {"map": [0.1, 0.2, 0.3]}),
        scored("b", {"map": [0.3, 0.2, 0.1]}),
        scored("c", {"map": [0.0, 0.1, 0.0]}),
    ]
    (table,) = build_tables(summarise(scores, ReportSettings(baseline="a", alpha=1.0)))
    values = [line.values[0] for line in table.lines]
    assert [value.best for value in values if isinstance(value, Figure)] == [True, True, False]
    assert [value.marked for value in values if isinstance(value, Figure)] == [False, False, True]


def test_notes_name_parameters_and_the_fields_they_are_of() -> None:
    values = {"map": [0.5, 0.25]}
    tuned = [
        scored("bm25:tuned", values, field=field, parameters=f"k1={k1}, b=0.75")
        for field, k1 in (("Art", 0.9), ("Physics", 1.3), ("Medicine", 0.9))
    ]
    fixed = [scored("bm25", values, field=each.pool.setup.field, parameters="k1=0.9, b=0.4") for each in tuned]
    dense = [scored("lsa", values, field=each.pool.setup.field) for each in tuned]
    notes = " ".join(build_tables(summarise([*tuned, *fixed, *dense], ReportSettings()))[0].notes)
    assert (
        "Parameters: bm25:tuned k1=0.9, b=0.75 (Art, Medicine), k1=1.3, b=0.75 (Physics); bm25 k1=0.9, b=0.4." in notes
    )
    assert "Parameters" not in " ".join(build_tables(summarise(dense, ReportSettings()))[0].notes)


def test_notes_give_the_published_figures_of_pools_of_their_kind() -> None:
    values = {"map": [0.5, 0.25], "ndcg": [0.5, 0.25]}
    systems = ("bm25", "scincl:compute=bfloat16", "scincl:pooling=mean", "aspire-cs")

    def notes(*setups: tuple[str | None, int]) -> str:
        scores = [scored(system, values, field=field, size=size) for field, size in setups for system in systems]
        tables = build_tables(summarise(scores, ReportSettings()))
        return " ".join(note for note in tables[0].notes if note.startswith("Published"))

    assert notes((None, 200_000), (None, 2_000_000), (None, 40_000)) == (
        "Published, on the papers' own releases: scincl:compute=bfloat16 dataset-200k.map 42.5, "
        "dataset-200k.ndcg 75.2, dataset-2M.map 21.6, dataset-2M.ndcg 60.0."
    )
    assert notes(*((field, 100_000) for field in MAG_FIELDS)) == (
        "Published, on the papers' own releases: scincl:compute=bfloat16 fields.map 28.7, fields.ndcg 63.1; "
        "aspire-cs fields.map 26.7, fields.ndcg 61.8."
    )
    assert notes((None, 40_000)) == notes(("Art", 200_000)) == notes(*((field, 9_000) for field in MAG_FIELDS)) == ""


def test_blocks_keep_groups_together() -> None:
    columns = tuple(Column(group, label) for group in ("x", "y") for label in "abc")
    table = Table("t", "", columns, (Line("l", tuple("123456")),), ())

    def cut(room: int) -> list[str]:
        parts = list(blocks(table, [1] * 6, room))
        assert "".join(str(value) for part in parts for value in part.lines[0].values) == "123456"
        return ["".join(column.group + column.label for column in part.columns) for part in parts]

    assert cut(9) == ["xaxbxcyaybyc"]
    assert cut(5) == ["xaxbxc", "yaybyc"]
    assert cut(2) == ["xaxb", "xc", "yayb", "yc"]
    assert cut(0) == ["xa", "xb", "xc", "ya", "yb", "yc"]


def test_markup_in_names_is_escaped() -> None:
    report = summarise([scored("a|b_c%", {"map": [0.5]})], ReportSettings())
    assert "| a\\|b\\_c% |" in render(report, "markdown")
    assert r"a|b\_c\% & " in render(report, "latex")
    hostile = "<img src=x> [a](javascript:b) ![c](d) `e` **f** ~g~ &lt; $h$\n# i | j"
    shown = render(summarise([scored(hostile, {"map": [0.5]})], ReportSettings()), "markdown")
    assert re.sub(r"\\[^\w\s]", "", shown).count("\n") == shown.count("\n")
    assert not re.search(r"<img|\[a|\[c|`|\*\*f|~g|&lt|\$h|\n# i", re.sub(r"\\[^\w\s]", "", shown))
    assert escape(r"\{&") == r"\textbackslash{}\{\&"


def test_an_unknown_format_is_refused(by_size: Report) -> None:
    with pytest.raises(InputError, match="no format 'latx'.*'latex'"):
        render(by_size, "latx")
    assert all(render(by_size, each).endswith("\n") for each in FORMATS)


HOSTILE = "=1+1\n\x1b[31m\u202e\0x"
SHOWN = r"=1+1\n\x1b[31m\u202e\x00x"


@pytest.mark.parametrize("output", FORMATS)
def test_a_name_of_hostile_characters_stays_in_its_row(output: str) -> None:
    """Rows are neither split nor changed: names have no line end, no escape code and no mark of direction."""
    plain, named = (
        render(summarise([flat("BM25", 0.5), flat(name, 0.25)], ReportSettings(resamples=10, baseline="BM25")), output)
        for name in ("other", HOSTILE)
    )
    assert len(named.splitlines()) == len(plain.splitlines())
    assert all(line.isprintable() for line in named.splitlines())
    if output == "csv":
        systems = [line["system"] for line in csv.DictReader(io.StringIO(named))]
        assert set(systems) == {"BM25", f"'{SHOWN}"}
    elif output == "terminal":
        assert SHOWN in named
