"""``docs/figures.py`` finds a row that its command does not print; ``test_first_hour.py`` checks the demo's pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import figures

TABLE = """Retrieval, Art (2019, 600 queries)

system  MAP
bm25    24.3   [20.8, 28.3]
rrf(bm25,lsa)  27.0*\u2020 [23.3, 31.1]  citations to 2021

Retrieval, Physics (2019, 600 queries)

bm25    30.1   [27.0, 33.0]
"""
CSV = "system,measure,value\nbm25,ndcg@10,0.67894\n"
FIGURE = re.compile(r"\d \[[-+]?\d|\| [*]*[-+]?\d*\.\d+[^|a-zA-Z]*\|")
"""An interval, or a cell of decimal numbers."""


@pytest.mark.parametrize(
    ("row", "made", "found"),
    [
        ("| bm25 | 24.3 [20.8, 28.3] |", TABLE, True),
        ("| bm25 | 24.3 [28.3, 20.8] |", TABLE, False),  # in another order
        ("| Physics | 600 | bm25 | 24.3 [20.8, 28.3] |", TABLE, False),
        ("| Art | bm25 | 24.3 [20.8, 28.3] |", TABLE, True),
        ("| Art | bm25 | 30.1 [27.0, 33.0] |", TABLE, False),  # of the table below
        ("| lsa | 24.3 [20.8, 28.3] |", TABLE, False),
        ("| `rrf(bm25,lsa)` | **27.0**\u2020 [23.3, 31.1] | citations to 2021 |", TABLE, True),
        ("| bm25 | 67.9 |", CSV, True),
        ("| bm25 | 0.6788 |", CSV, False),
    ],
)
def test_a_row_is_found_by_its_words_and_digits(row: str, made: str, found: bool) -> None:
    assert any(figures.is_in(row, line) for line in figures.titled(made)) == found


def test_a_page_whose_digits_differ_is_said_with_line_and_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    table = "| system | MAP |\n|---|---|\n| bm25 | 1.5 |\n| lsa | 2.0 |\n| minilm | 9.9 |\n"
    comment = "<!-- figures, but minilm: above && printf 'bm25 1.5\\nlsa 2.1\\n' -->"
    page.write_text(f"# Page\n\n```\ntrue  # first\n```\n\n{comment}\n{table}")
    (line,) = figures.check(page, tmp_path)
    assert line.startswith("page.md:8: printf")
    assert line.endswith("| lsa | 2.0 |")


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_a_table_of_figures_has_its_command_or_its_date(page: Path) -> None:
    intro, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    commands = [block.rows for block in figures.blocks(page)]
    for section in (intro, *sections):
        for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            rows = [row for row in table.splitlines() if FIGURE.search(row)]
            dated = re.search(r"Measured in [A-Z][a-z]+ \d{4} on ", intro + section)
            assert not rows or dated or any(rows[0] in of_block for of_block in commands), rows[0]
