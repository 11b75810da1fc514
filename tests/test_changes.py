"""What a change costs (CONTRIBUTING): each is made in a copy of the code, in as few files as promised, and works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
F2 = '''@measure("f2", "F2")
def f2(hits: Hits) -> Values:
    """Harmonic mean of precision and recall that weighs recall four times."""
    p, r = precision(hits), recall(hits)
    return 5 * p * r / np.where(p + r > 0, 4 * p + r, 1)


'''
MAX_CITATIONS = '    max_citations: int = setting(1_000_000, "citations a paper may have", rule=True)\n\n'

CHANGES = [
    ("a measure", "measure/measures.py", '@measure("f1"', F2),
    ("an encoder", "encode/models.toml", "[lsa] #", '[lsa-small]\nkind = "lsa"\ndimension = 16\n\n'),
    ("a rule of pools", "corpus/poolconfig.py", "    def __post_init__", MAX_CITATIONS),
    (
        "a rule of pools",
        "corpus/prefilter.py",
        "    kept = np.ones(",
        '    tests["many_citations"] = citations > config.max_citations\n',
    ),
    ("a column of every table", "scores/summary.py", '    "deviation": pl', '    "median": pl.Float64,\n'),
    (
        "a column of every table",
        "scores/summary.py",
        '        "deviation": float',
        '        "median": float(np.median(one.values)),\n',
    ),
]
"""Change, file, text in it, and what is put before that text. The rule's line of help and the place where tables show
the column, one file more each, are left out."""

EVAL = "eval --corpus tiny --size 900 --queries 20 --samples 1 --min-citations 1 --model lsa-small --max-citations 40"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with every change, and a small corpus in its folder ``work``."""
    copy = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "pipeline", copy / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    for _, name, text, added in CHANGES:
        path = copy / "pipeline" / name
        code = path.read_text()
        assert text in code
        path.write_text(code.replace(text, added + text, 1))
    (copy / "work").mkdir()
    mdcr(copy, "corpus --source synthetic --papers 3k --corpus tiny --root work")
    return copy


def mdcr(copy: Path, command: str, **variables: str) -> str:
    """Run a command of the copy; ``variables`` are those of make."""
    typed = {f"MDCR_MAKE_{name}": value for name, value in variables.items()}
    environment = {**os.environ, "PYTHONPATH": str(copy), "MDCR_MAKE": " ".join(variables), **typed}
    words = [sys.executable, "-m", "pipeline", *command.split()]
    return subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, check=True).stdout


def test_changes_are_as_small_as_contributing_says() -> None:
    files: dict[str, set[str]] = {}
    for change, name, _, _ in CHANGES:
        files.setdefault(change, set()).add(name)
    costs = {change: len(names) for change, names in files.items()}
    assert costs == {"a measure": 1, "an encoder": 1, "a rule of pools": 2, "a column of every table": 1}


def test_a_measure_an_encoder_a_rule_and_a_column_work(changed: Path) -> None:
    shown = mdcr(changed, f"{EVAL} --measures f2@10,map --root work")
    for expected in ("lsa-small", "F2@10", "max citations 40"):
        assert expected in shown
    assert "f2" in mdcr(changed, "show measures")
    assert "lsa-small" in mdcr(changed, "models")
    rows = mdcr(changed, "show --format csv --max-citations 40 --root work").splitlines()
    assert "value,median,deviation" in rows[0]
    assert {row.split(",")[0] for row in rows[1:]} == {"lsa-small"}


def test_make_takes_the_rule(changed: Path) -> None:
    variables = {"CORPUS": "tiny", "SIZE": "900", "QUERIES": "20", "MIN_CITATIONS": "1", "ROOT": "work"}
    assert "make pool" in mdcr(changed, "--from-make pool", **variables, MAX_CITATIONS="30", DRY_RUN="1")
