"""Pools of a new collection: the turns by hand, and the whole way from papers to scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.studies.facets.build import round_robin
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.studies.facets.collection import TEXTLESS, write
from tests.studies.facets.test_study import study


@pytest.mark.parametrize(
    ("ranked", "size", "start", "pool"),
    [
        ([[1, 2, 3], [4, 5, 6]], 4, 0, [1, 4, 2, 5]),
        ([[1, 2, 3], [4, 5, 6]], 3, 1, [4, 1, 5]),
        ([[1, 2, 3], [1, 2, 9]], 4, 0, [1, 2, 3, 9]),
        ([[1], [1, 2, 3, 4]], 4, 1, [1, 2, 3, 4]),
        ([[1], [1, 2]], 9, 0, [1, 2]),
        ([[], []], 9, 0, []),
    ],
)
def test_turns(ranked: list[list[int]], size: int, start: int, pool: list[int]) -> None:
    assert round_robin(ranked, size, start) == pool


def test_from_papers_to_scores(tmp_path: Path) -> None:
    folder, root = write(tmp_path / "in"), tmp_path / "workspace"
    root.mkdir()
    for path in [*folder.glob("*anns*"), folder / "evaluation_splits.json"]:
        path.unlink()
    (folder / "queries.tsv").write_text("100\tmethod\n101\tmethod\n101\tresult\n")
    build = ["study", "facet_pools", "--input", str(folder), "--model", "bm25,tfidf"]
    build += ["--set", 'whole="lsa:dimension=8"', "--set", "size=6", "--set", "depth=20"]
    out = Path(mdcr_json(root, *build)["folder"])
    pools = json.loads((out / "test-pid2pool-mine.json").read_text())
    cited = [line.split("\t") for line in (folder / "cited_pairs.tsv").read_text().splitlines()]
    assert set(pools) == {"100", "101"}
    for paper, pool in pools.items():
        own = {candidate for query, candidate in cited if query == paper}
        assert len(set(pool["cands"])) == len(pool["cands"]) >= 6
        assert own - {TEXTLESS} <= set(pool["cands"])
        assert not {paper, TEXTLESS} & set(pool["cands"])
        for candidate, sources in zip(pool["cands"], pool["cand_source"], strict=True):
            assert ("cited" in sources) == (candidate in own)
            assert sources
        assert all(set(sources) - {"cited"} for sources in pool["cand_source"][:6])
        named = {source for sources in pool["cand_source"] for source in sources}
        assert named == {"cited", "bm25", "tfidf", "lsa:dimension=8, whole"}

    for path in out.glob("test-pid2anns-*.json"):
        blank = json.loads(path.read_text())
        for paper, lists in blank.items():
            assert sorted(lists["cands"]) == sorted(pools[paper]["cands"])
            assert set(lists["relevance_ann2"]) == {-1}
            for name in ("relevance_ann1", "relevance_ann2", "relevance_adju"):
                lists[name] = [number % 4 for number in range(len(lists["cands"]))]
        path.write_text(json.dumps(blank))
        shutil.copy(path, folder)
    found = mdcr_json(root, *study(folder, "tfidf", "", 'facets=["method","result"]'))
    assert {row["average"] for row in found["tables"]["scores"]} == {"queries"}
    assert {row["queries"] for row in found["tables"]["scores"]} == {1, 2, 3}
    assert found["tables"]["agreement"][0]["kappa"] == 1


def test_bad_settings_are_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    arguments = ["study", "facet_pools", "--input", str(folder), "--set"]
    assert "at least 1" in one_line_error(mdcr(tmp_path, *arguments, "size=0"))
    assert "must name a system" in one_line_error(mdcr(tmp_path, *arguments, 'systems=""', "--set", 'whole=""'))
