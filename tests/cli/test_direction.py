"""Best, first and better follow the direction of a measure: the miss rate says what recall says, turned round."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.measure.hits import Hits
from pipeline.measure.measures import MEASURES, Definition, Values, recall
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
