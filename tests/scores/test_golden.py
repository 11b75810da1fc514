"""``mdcr show table --check``: figures against a golden table."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.scores import published as made

HEADER = "system,field,size,measure,value\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Scores of two systems on one pool, and of one on two samples; the MAP of BM25 is 4/9."""
    corpus = made.corpus(tmp_path)
    for system, run, samples in (("BM25", made.GOOD, (1,)), ("SciNCL", made.BAD, (1, 2))):
        for sample in samples:
            made.score(tmp_path, corpus, made.pool(tmp_path, corpus, sample=sample), system, run)
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
    assert main(["report", "--format=csv", "--output", str(root / "out"), "--root", str(root)]) == 0
    (table,) = (root / "out").glob("*/table.csv")
    check = ["show", "table", "--check", str(table), "--tolerance", "1e-12", "--root", str(root)]
    assert main(check) == 0
    lines = list(csv.DictReader(table.open()))
    for changed in lines[:: len(lines) // 4]:
        rows = [{**line, "value": "0.999"} if line is changed else line for line in lines]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(changed))
        writer.writeheader()
        writer.writerows(rows)
        table.write_text(text.getvalue())
        assert main(check) == 3
