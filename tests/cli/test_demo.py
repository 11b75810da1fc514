"""The demo's corpus, tuning and table without its encoder; ``test_first_hour.py`` runs the whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import figures
from pipeline.cli import demo
from tests.cli.run import mdcr

PAGES = (figures.ROOT / "README.md", figures.ROOT / "docs/index.md")


@pytest.mark.java
def test_bm25_and_lsa_have_the_figures_of_the_pages(tmp_path: Path) -> None:
    corpus, tune, evaluate, _ = demo.STEPS
    for words in (corpus, tune, ["bm25,lsa" if "minilm" in word else word for word in evaluate]):
        done = mdcr(tmp_path, *words, env={"COLUMNS": "100"})
        assert done.returncode == 0, done.stderr
        assert "say little" not in done.stderr
    made = [*figures.titled(done.stdout)]
    for page in PAGES:
        blocks = [block for block in figures.blocks(page) if "mdcr show --corpus demo" in block.commands[-1]]
        rows = [row for block in blocks for row in block.rows if row.strip("| ").startswith(("bm25", "lsa"))]
        assert len(rows) == 3
        assert [row for row in rows if not any(figures.is_in(row, line) for line in made)] == []
