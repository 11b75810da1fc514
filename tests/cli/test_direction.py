"""Best, first and better follow the direction of a measure: the miss rate says what recall says, turned round."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from pipeline.measure.hits import Hits
from pipeline.measure.measures import MEASURES, Definition, Values, recall
from pipeline.studies.facets.scoring import differences
from tests.cli.run import flags, mdcr, mdcr_json

EVALUATED = flags("--size 500 --queries 20 --samples 1 --year 2019 --model bm25,lsa --measures recall@30,miss@30")


def miss_rate(hits: Hits) -> Values:
    """Fraction of the positives that was not retrieved."""
    return 1 - recall(hits)


@pytest.fixture(autouse=True)
def miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter the miss rate into the table of measures."""
    monkeypatch.setitem(MEASURES, "miss", Definition("miss", "Miss", miss_rate, "", higher_is_better=False))


@pytest.mark.slow
def test_tables_comparisons_and_pages(root: Path, tmp_path: Path) -> None:
    rows = mdcr_json(root, "eval", *EVALUATED)["rows"]
    value = {(row["system"], row["measure"]): row["value"] for row in rows}
    best, other = sorted(("bm25", "lsa"), key=lambda name: value[name, "miss@30"])
    assert value[best, "miss@30"] < value[other, "miss@30"]

    printed = mdcr(root, "show", "table", *EVALUATED).stdout.splitlines()
    lines = [line for line in printed if line.startswith((f"{best} ", f"{other} ")) and "[" in line]
    assert {line.split()[0]: line.count("*") for line in lines} == {best: 2, other: 0}

    assert mdcr(root, "report", *EVALUATED, "--output", str(tmp_path)).returncode == 0
    (page,) = tmp_path.glob("*/index.html")
    board = page.read_text().partition('class="sortable" ')[2].partition("</table>")[0]
    bold = {line.count("<b>"): best in line for line in re.findall("<tr>.*?</tr>", board) if "<button" in line}
    assert bold == {2: True, 0: False}

    by_recall, by_miss = mdcr_json(root, "compare", *EVALUATED)["pairs"]
    assert by_recall["difference"] == pytest.approx(-by_miss["difference"], abs=1e-12)
    assert by_recall["p_value"] == by_miss["p_value"]
    assert [by_recall[name] for name in ("wins", "losses")] == [by_miss[name] for name in ("wins", "losses")]
    assert by_miss["wins"] != by_miss["losses"]
    better = {
        row["measure"].partition("[")[0]: row["better"] for row in mdcr_json(root, "show", "measures")["measures"]
    }
    assert better["miss"] == "lower"


def test_wins_of_a_study() -> None:
    recalls = {"a": [0.5, 0.25, 1.0], "b": [0.75, 0.5, 0.5]}
    values = pl.DataFrame(
        [
            (system, "facet", f"q{number}_method", "method", measure, abs(least - value))
            for measure, least in (("recall@20", 0), ("miss@20", 1))
            for system, values_of_system in recalls.items()
            for number, value in enumerate(values_of_system)
        ],
        ["system", "form", "query", "facet", "measure", "value"],
        orient="row",
    )
    for name in ("recall@20", "miss@20"):
        wins = differences(values, name, "a", 13).filter(facet="all")
        assert wins.select("wins", "losses").row(0) == (2, 1)
