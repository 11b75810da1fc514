"""Comparison of two systems, beside the same in plain Python."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.cli import main
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.measure.design import Draws
from pipeline.measure.statistics import bootstrap_means, confidence_interval, holm
from pipeline.scores.average import AVERAGE, PROTOCOL
from pipeline.scores.choose import choose
from pipeline.scores.compare import compare, compare_pairs, most_different, paired
from pipeline.scores.comparison import difference_table, queries_table
from pipeline.scores.frames import load_runs
from pipeline.scores.render import render_table
from pipeline.scores.store import scores_of, stored
from tests.builders import made_up_paper
from tests.measure.cases import Run
from tests.scores import published as made
from tests.scores.cases import scored

CITED = {0: (3, 5), 1: (3,), 2: (7,)}
RUNS: dict[str, list[Run]] = {
    "bm25": [[{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}], [{4: 2.0, 3: 1.0}, {3: 1.0}, {6: 1.0, 7: 0.5}]],
    "lsa": [[{4: 2.0}, {6: 1.0, 3: 0.5}, {7: 1.0}], [{3: 2.0, 5: 1.0}, {6: 1.0, 5: 0.5, 3: 0.1}, {7: 1.0}]],
}


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    monkeypatch.setenv("COLUMNS", "100")
    corpus = made.corpus(tmp_path)
    pools = [made.pool(tmp_path, corpus, sample=number) for number in (1, 2)]
    for system, runs in RUNS.items():
        for pool, run in zip(pools, runs, strict=True):
            made.score(tmp_path, corpus, pool, system, run, "map,recall@1", name=system)
    return pools


def ranked(run: Run, query: int) -> list[int]:
    return [row for row, _ in sorted(run[query].items(), key=lambda item: (item[1], item[0]), reverse=True)]


def precision(run: Run, query: int) -> float:
    order, relevant = ranked(run, query), CITED[query]
    found = [rank for rank, row in enumerate(order, 1) if row in relevant]
    return sum(number / rank for number, rank in enumerate(found, 1)) / len(relevant)


DRAWS = Draws(seed=3, resamples=200)


def compared(root: Path, *names: str, draws: Draws = DRAWS, **options: Any) -> pl.DataFrame:
    scores = scores_of(choose(stored(root), root))
    return compare(scores, *(names or ("bm25", "lsa")), draws=draws, **options)


def differing(root: Path, most: int) -> pl.DataFrame:
    runs = choose(stored(root), root)
    both, labels = paired(scores_of(runs), runs, "bm25", "lsa")
    return most_different(both, runs, labels, "map", most)


def test_differences_are_those_of_plain_python(tmp_path: Path, pools: list[Artifact]) -> None:
    found = compared(tmp_path)
    means = {s: [np.mean([precision(run, q) for run in runs]) for q in CITED] for s, runs in RUNS.items()}
    change = np.subtract(means["lsa"], means["bm25"])
    first = found.row(0, named=True)
    assert found["measure"].to_list() == ["map", "recall@1"]
    both = (first["first_value"], first["second_value"])
    assert both == pytest.approx([np.mean(means["bm25"]), np.mean(means["lsa"])])
    assert first["difference"] == pytest.approx(change.mean())
    signs = ((change > 0).sum(), (change == 0).sum(), (change < 0).sum())
    assert (first["wins"], first["ties"], first["losses"]) == signs
    low, high = confidence_interval(bootstrap_means(change[None], seed=3, resamples=200), change[None])
    assert (first["low"], first["high"]) == (pytest.approx(low[0]), pytest.approx(high[0]))
    flips = [abs(sum(change * signs)) for signs in itertools.product((1, -1), repeat=3)]
    assert first["p_value"] == np.mean([flip >= abs(change.sum()) - 1e-12 for flip in flips])
    assert (first["pools"], first["queries"], first["interval"]) == ([pool.name for pool in pools], 3, "BCa")
    turned = compared(tmp_path, "lsa", "bm25").row(0, named=True)
    expected = (-first["difference"], first["losses"], first["p_value"])
    assert (turned["difference"], turned["wins"], turned["p_value"]) == expected


def test_findings_are_tested() -> None:
    random = np.random.default_rng(2)
    base = random.random(100)
    systems = {
        "a": base,
        "better": base + 0.1,
        "same": base + random.normal(0, 0.001, 100),
        "noisy": base + random.normal(0, 0.5, 100),
    }
    fields = ("Art", "Physics")
    scores = pl.concat(scored(name, {"map": v.tolist()}, field=f) for f in fields for name, v in systems.items())
    draws = Draws(seed=3, resamples=200, permutations=999)
    findings = {}
    for name in ("better", "same", "noisy"):
        found = compare(scores, "a", name, draws=draws)
        assert found.select("field", "tests").rows() == [("Art", 2), ("Physics", 2), (AVERAGE, 1)]
        assert found["p_adjusted"].to_list()[:2] == holm(found["p_value"].to_numpy()[:2]).tolist()
        average = found.filter(field=AVERAGE).row(0, named=True)
        assert average["difference"] == pytest.approx(found["difference"][:2].mean())
        assert (average["scope"], average["queries"], len(average["pools"])) == ("mean over fields", 200, 2)
        findings[name] = set(found["finding"])
    assert findings == {"better": {"better"}, "same": {"no difference shown"}, "noisy": {"no difference shown"}}
    turned = compare(scores, "better", "a", draws=draws)
    assert set(turned["finding"]) == {"worse"}


def text_of(root: Path, differences: pl.DataFrame) -> str:
    queries = queries_table(differences, differing(root, 10))
    return "\n".join(map(render_table, (difference_table(differences, choose(stored(root), root)), queries)))


def test_all_pairs_are_one_family() -> None:
    random = np.random.default_rng(2)
    scores = pl.concat(scored(name, {"map": random.random(30).tolist()}) for name in "abc")
    found = compare_pairs(scores, load_runs(scores), ["a", "b", "c"], draws=DRAWS)
    assert found.select("first", "second").rows() == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found["p_adjusted"].to_list() == holm(found["p_value"].to_numpy()).tolist()
    alone = compare(scores, "b", "c", draws=DRAWS).row(0, named=True)
    same = [name for name in alone if name not in ("p_adjusted", "tests", "finding", "detectable")]
    assert {name: found.row(2, named=True)[name] for name in same} == {name: alone[name] for name in same}
    table = difference_table(found, load_runs(scores))
    assert [line.label for line in table.lines] == ["b minus a", "c minus a", "c minus b"]
    assert "Holm's correction over 3 pairs and pools" in table.notes[0]


def test_tests_that_cannot_be_significant_are_said() -> None:
    scores = pl.concat(scored(name, {"map": v}) for name, v in {"a": [0.1, 0.2, 0.3], "b": [0.4, 0.6, 0.7]}.items())
    table = difference_table(compare(scores, "a", "b"), load_runs(scores))
    assert "3 queries cannot show a difference: their smallest p-value is 0.25" in table.notes[1]


def test_queries_that_differ_most_with_their_positives_and_ranks(tmp_path: Path, pools: list[Artifact]) -> None:
    cases = [(sample, query) for sample in (0, 1) for query in CITED]
    gaps = {
        case: precision(RUNS["lsa"][case[0]], case[1]) - precision(RUNS["bm25"][case[0]], case[1]) for case in cases
    }
    largest = [max(((s, query) for s in (0, 1)), key=lambda case: abs(gaps[case])) for query in CITED]
    expected = sorted(largest, key=lambda case: -abs(gaps[case]))[:2]
    found = differing(tmp_path, 2)
    assert found.select("pool", "query_id").rows() == [(pools[s].name, f"{q:05d}") for s, q in expected]
    for row, (sample, query) in zip(found.iter_rows(named=True), expected, strict=True):
        assert row["second"] - row["first"] == pytest.approx(gaps[sample, query])
        assert (row["title"], row["year"]) == (made_up_paper(query)["title"], 2000 + query)
        orders = [ranked(RUNS[system][sample], query) for system in ("bm25", "lsa")]
        assert {(p["paper_id"], p["year"], p["first_rank"], p["second_rank"]) for p in row["positives"]} == {
            (f"{paper:05d}", 2000 + paper, *(order.index(paper) + 1 if paper in order else None for order in orders))
            for paper in CITED[query]
        }
    assert len(differing(tmp_path, 0)) == 0
    assert len(differing(tmp_path, 99)) == 3


def test_pools_of_several_sizes_are_compared_apart_and_shared_ones_alone(tmp_path: Path, pools: list[Artifact]) -> None:
    corpus = made.corpus(tmp_path)
    other = made.pool(tmp_path, corpus, candidates=7)
    for system in RUNS:
        made.score(tmp_path, corpus, other, system, RUNS[system][0], "map,recall@1", name=system)
    made.score(
        tmp_path, corpus, made.pool(tmp_path, corpus, sample=3), "lsa", RUNS["lsa"][0], "map,recall@1", name="lsa"
    )
    found = compared(tmp_path).filter(measure="map")
    expected = {(7, (other.name,)), (8, tuple(pool.name for pool in pools))}
    assert {(size, tuple(names)) for size, names in found.select("size", "pools").rows()} == expected


def test_what_cannot_be_compared_is_refused(tmp_path: Path, pools: list[Artifact]) -> None:
    corpus = made.corpus(tmp_path)
    made.score(tmp_path, corpus, pools[0], "lsa", RUNS["lsa"][1], "map,recall@1", depth=10, name="lsa")
    made.score(tmp_path, corpus, made.pool(tmp_path, corpus, sample=3), "scincl", RUNS["lsa"][0])
    for names, options, fault in (
        (("bm25", "bm25"), {}, "two rows must be compared, got bm25 .* twice"),
        (("bm25", "lsaa"), {}, "'lsaa' must be a system that was scored on these pools"),
        (("bm25", "lsa"), {}, r"'lsa' must mean one row, got lsa \(depth .*; lsa \(depth"),
        (("bm25", "scincl"), {}, "same pools, got none in common"),
        (
            ("bm25", "lsa (depth 500)"),
            {"measures": ["mrr"]},
            "mrr must be scored for both rows. Choose one of: map, rec",
        ),
    ):
        with pytest.raises(InputError, match=fault):
            compared(tmp_path, *names, **options)


def test_the_command(tmp_path: Path, pools: list[Artifact], capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str, code: int = 0) -> str:
        assert main(["compare", *words, "--root", str(tmp_path)]) == code
        out, error = capsys.readouterr()
        return out if code == 0 else error

    usual = compared(tmp_path, draws=PROTOCOL, measures=["map"])  # recall@1 is no measure of tables
    out = printed("bm25", "lsa")
    text, folder = out.rstrip().rsplit("\n\n", 1)
    assert f"{text}\n" == text_of(tmp_path, usual)
    assert folder == str(tmp_path / "runs/reports/tiny_2019_queries-3_seed-13_lsa-against-bm25")
    assert "lsa against bm25" in (Path(folder) / "index.html").read_text()
    assert "lsa against bm25" in (tmp_path / "runs/reports/index.html").read_text()
    assert printed("--model", "bm25,lsa") == out
    assert "R@1 " in printed("bm25", "lsa", "--measures", "map,recall@1")
    own = tmp_path / "own"
    options = ["--json", "--most", "1", "--measures", "recall@1", "--output", str(own)]
    as_json = json.loads(printed("bm25", "lsa", *options))
    assert as_json["folder"] == str(own)
    assert [path.name for path in own.iterdir()] == ["index.html"]
    assert [each["measure"] for each in as_json["pairs"]] == ["recall@1"]
    (query,) = as_json["most_different"]
    assert [(each["first_rank"], each["second_rank"]) for each in query["positives"]] == [(None, 1)]
    assert "two systems or more must be compared, got 1" in printed("bm25", code=2)
    assert "--year must be 2019 here, got 2018" in printed("bm25", "lsa", "--year", "2018", code=2)
    made.score(tmp_path, made.corpus(tmp_path), made.pool(tmp_path, made.corpus(tmp_path), seed=7), "lsa")
    assert printed("bm25", "lsa") == out  # bm25 did not rank the other pool
    for system, settings in itertools.product(("bm25", "lsa"), ({"seed": 7}, {"nested": True})):
        made.score(tmp_path, made.corpus(tmp_path), made.pool(tmp_path, made.corpus(tmp_path), **settings), system)
    refused = printed("bm25", "lsa", code=2)
    assert "got 3 kinds that differ (nested: false -> true; seed: 13 -> 7)" in refused
    assert printed("bm25", "lsa", "--seed", "13", "--no-nested") == out
