"""Which scores a report takes, where a system was scored more than once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.builders import make_corpus, make_pool
from tests.report.test_collect import BAD, GOOD, score


@pytest.mark.parametrize("tunings", [(GOOD, BAD), (BAD, GOOD)])
def test_the_last_tuning_is_the_one_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tunings: tuple[object, object]
) -> None:
    """Each tuning has a ranking and scores of its own, all by the name ``bm25:tuned``."""
    corpus = make_corpus(tmp_path, 8, [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")])
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1)
    _, last = (score(tmp_path, corpus, pool, "bm25:tuned", run) for run in tunings)  # type: ignore[arg-type]
    values = last.arrow("scores.arrow").to_pydict()
    expected = sum(v for v, m in zip(values["value"], values["measure"], strict=True) if m == "map") / 3
    assert main(["show", "table", "--json", "--root", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["value"] for row in rows if row["measure"] == "map"] == [pytest.approx(expected)]
    assert main(["report", "--root", str(tmp_path)]) == 0
    (table,) = (tmp_path / "runs/reports").glob("*/table.csv")
    written = [float(row["value"]) for row in csv.DictReader(table.open()) if row["measure"] == "map"]
    assert written == [pytest.approx(expected)] * len(written)
    assert written
