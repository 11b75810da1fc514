"""What a change costs (CONTRIBUTING): each is made in a copy of the code, in as few files as promised, and works."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cli.run import elsewhere

ROOT = Path(__file__).parents[1]
F2 = '''@measure("f2", "F2")
def f2(hits: Hits) -> Values:
    """Harmonic mean of precision and recall that weighs recall four times."""
    p, r = precision(hits), recall(hits)
    return 5 * p * r / np.where(p + r > 0, 4 * p + r, 1)


'''
MAX_CITATIONS = '    max_citations: int = setting(1_000_000, "citations a paper may have", rule=True)\n\n'

MEDIANS = """    medians = scores.group_by(keys).agg(median=pl.col("value").drop_nans().median())
    facts = facts.join(medians, on=keys, nulls_equal=True, maintain_order="left")
"""
TOO_MANY = '    failures["many_citations"] = citations > config.max_citations\n'

CHANGES = [
    ("a measure", "measure/measures.py", '@measure("f1"', F2),
    ("an encoder", "encode/models.toml", "[lsa] #", '[lsa-small]\nkind = "lsa"\ndimension = 16\n\n'),
    ("a rule of pools", "corpus/poolconfig.py", "    def __post_init__", MAX_CITATIONS),
    ("a rule of pools", "corpus/prefilter.py", "    is_kept = np.ones(", TOO_MANY),
    ("a column of every table", "scores/summary.py", '    **columns(pl.Float64, "value', '    "median": pl.Float64,\n'),
    ("a column of every table", "scores/summary.py", "    found = estimated(", MEDIANS),
]
"""Change, file, text in it, and what is put before that text. The rule's line of help and the place where tables show
the column, one file more each, are left out."""

EVAL = "eval --corpus tiny --size 900 --queries 20 --samples 1 --min-citations 1 --model lsa-small --max-citations 40"
COMMANDS = (
    "corpus --source synthetic --papers 3k --corpus tiny",
    f"{EVAL} --measures f2@10,map",
    "show measures",
    "models",
    "show --format csv --max-citations 40",
    "--from-make pool",
)
VARIABLES = "CORPUS=tiny SIZE=900 QUERIES=20 MIN_CITATIONS=1 MAX_CITATIONS=30 DRY_RUN=1"
"""Of the last command."""


def test_changes_are_as_small_as_contributing_says_and_work(tmp_path: Path) -> None:
    files: dict[str, set[str]] = {}
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    for change, name, text, added in CHANGES:
        path = tmp_path / "pipeline" / name
        code = path.read_text()
        assert text in code
        path.write_text(code.replace(text, added + text, 1))
        files.setdefault(change, set()).add(name)
    costs = {change: len(names) for change, names in files.items()}
    assert costs == {"a measure": 1, "an encoder": 1, "a rule of pools": 2, "a column of every table": 1}

    made = dict(variable.split("=") for variable in VARIABLES.split())
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "MDCR_MAKE": " ".join(made)}
    env |= {f"MDCR_MAKE_{name}": value for name, value in made.items()}
    env["NUMBA_DISABLE_JIT"] = "1"  # the copy has no compiled kernels
    (tmp_path / "work").mkdir()
    ended = elsewhere([command.split() for command in COMMANDS], tmp_path / "work", env)
    assert [result.returncode for result in ended] == [0] * len(COMMANDS), [result.stderr for result in ended]
    _, table, measures, models, scores, plan = (result.stdout for result in ended)
    assert all(expected in table for expected in ("lsa-small", "F2@10", "max citations 40"))
    assert ("f2" in measures, "lsa-small" in models, "make pool" in plan) == (True, True, True)
    head, *rows = scores.splitlines()
    assert "median,value,deviation" in head
    assert {row.split(",")[0] for row in rows} == {"lsa-small"}
