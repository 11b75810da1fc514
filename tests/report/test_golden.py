"""``mdcr show table --check``: figures against a golden table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.builders import make_corpus, make_pool
from tests.report.test_collect import BAD, GOOD, score

HEADER = "system,field,size,measure,value\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Scores of two systems on one pool; the MAP of BM25 is 4/9."""
    corpus = make_corpus(tmp_path, 8, [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")])
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1)
    for system, run in (("BM25", GOOD), ("SciNCL", BAD)):
        score(tmp_path, corpus, pool, system, run)
    return tmp_path


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ("# a comment\nBM25,,,MAP,0.445\nSPECTER,,8,map,0.9\n", 0, "1 figures are within 0.01"),
        ("BM25,,8,map,0.4444\nBM25,,8,map,0.45\nBM25,,8,map,0.46\n", 3, "1 of 3 .*BM25 8 map 0.46: found 0.444"),
        ("BM25,Art,,map,0.44\nBM25,,9,map,0.44\nBM25,,,mrr,0.44\n", 3, "3 of 3 .*BM25 Art map 0.44: found nothing"),
        ("SPECTER,,8,map,0.9\n", 2, "no row of BM25, SciNCL"),
        ("BM25,,,map,high\n", 2, "'high' in the column value is not a number"),
        ("", 2, "does not have the columns system, field"),
    ],
)
def test_figures_are_compared(root: Path, capsys: pytest.CaptureFixture[str], rows: str, code: int, said: str) -> None:
    (root / "golden.csv").write_text(HEADER + rows)
    assert main(["show", "table", "--check", str(root / "golden.csv"), "--root", str(root)]) == code
    printed = capsys.readouterr()
    text = " ".join((printed.out + printed.err).split())
    assert re.search(said, text), text


def test_a_table_that_was_written_is_a_golden_table(root: Path) -> None:
    assert main(["report", "--output", str(root / "out"), "--root", str(root)]) == 0
    (table,) = (root / "out").glob("*/table.csv")
    check = ["show", "table", "--check", str(table), "--tolerance", "1e-12", "--root", str(root)]
    assert main(check) == 0
    table.write_text(table.read_text().replace("SciNCL,,8,map,0.", "SciNCL,,8,map,0.9"))
    assert main(check) == 3
