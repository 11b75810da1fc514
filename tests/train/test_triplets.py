"""Triplets against a check in plain Python: who cites what, years, fields, and no test query."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Corpus
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.rankings import baseline_task
from pipeline.stages.systems import parse_systems
from pipeline.train import draws, triplets
from pipeline.train.queries import queries_task
from pipeline.train.recipe import DRAW, Draw
from pipeline.train.triplets import mix_of, triplets_task
from tests.builders import made_up_paper, make_corpus, make_pool

FIELDS = ("Physics", "Medicine", "Art")
UNTIL = 2012
RANDOM = parse_systems("random")[0].ranker
World = tuple[Runner, Artifact]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runner, Artifact]:
    """Return a workspace with 300 papers, a test pool, and a pool of another corpus with some of the ids."""
    root = tmp_path_factory.mktemp("triplets")
    random = generator(1, "graph")
    papers = [
        {**made_up_paper(number), "abstract": f"{made_up_paper(number)['abstract']} " * 9} for number in range(300)
    ]
    papers[7]["year"], papers[8]["abstract"], papers[9]["fields"] = None, "short", ["Physics", "Art"]
    pairs = {(int(a), int(b)) for a, b in random.integers(0, 300, (2400, 2))}
    cited = [(f"{a:05d}", f"{b:05d}") for a, b in sorted(pairs)]
    corpus = make_corpus(root, papers, cited)
    make_pool(root, corpus, ["00001", "00002", "00003"], slug="test")
    other = make_corpus(root, [{"paper_id": "00021"}, {"paper_id": "00999"}], name="other")
    make_pool(root, other, ["00021", "00999"], slug="elsewhere")
    return Runner(root, Resources(workers=1)), corpus


Drawn = tuple[list[dict], dict, Artifact]


def drawn(world: World, recipe: str = "specter", **options: object) -> Drawn:
    """Return the triplets, their counts and the artifact of the queries."""
    runner, corpus = world
    draw = Draw(**{"until": UNTIL, "seed": 3, **{name: options.pop(name) for name in [*options] if name in DRAW}})
    queries = queries_task(runner.root, corpus, draw)
    if recipe == "mined":
        options["ranking"] = baseline_task(corpus, queries, RANDOM, depth=40)
    task = triplets_task(corpus, queries, recipe, draw, **options)
    made = runner.make(task)
    rows = [row for output in made.outputs("triplets-*") for row in made.arrow(output.path).to_pylist()]
    return rows, dict(made.manifest.counts), runner.make(queries)


def checked(world: World, rows: list[dict], until: int | None = UNTIL) -> None:
    """Check triplets one by one against the lists of citations."""
    corpus = Corpus(world[1])
    years, chars = corpus.attributes["year"], corpus.attributes["abstract_chars"]
    held = set(corpus.rows_of(["00001", "00002", "00003", "00021"]).tolist())
    for row in rows:
        cited = set(corpus.outgoing.of(row["query"]).tolist())
        papers = [row[name] for name in ("query", "positive", "negative")]
        assert len(set(papers)) == len(papers)
        assert not held & set(papers)
        assert until is None or all(0 < years[paper] <= until for paper in papers)
        assert all(chars[paper] >= 30 for paper in papers)
        assert row["positive"] in cited
        assert row["negative"] not in cited
        if row["kind"] == "hard":
            middle = [paper for paper in cited if until is None or years[paper] <= until]
            assert any(row["negative"] in corpus.outgoing.of(paper) for paper in middle)
    assert len({(row["query"], row["negative"]) for row in rows}) == len(rows)


def test_triplets_of_specter_hold_what_the_graph_says(world: World) -> None:
    rows, counts, queries = drawn(world)
    checked(world, rows)
    by_query: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_query[row["query"]][row["kind"]] += 1
    assert all(kinds["easy"] == 3 and kinds["hard"] <= 2 for kinds in by_query.values())
    assert counts["missing_hard"] + counts["triplets_hard"] == 2 * counts["queries"]
    corpus = Corpus(world[1])
    kept = set(queries.arrow("candidates.arrow").column("row").to_pylist())
    able = [row for row in kept if kept & set(corpus.outgoing.of(row).tolist())]
    assert queries.arrow("queries.arrow").column("row").to_pylist() == sorted(able)
    read = queries.manifest.counts
    assert read["read"] == 300 == read["kept"] + sum(count for name, count in read.items() if name[:7] == "dropped")
    years = corpus.attributes["year"][corpus.rows_of(["00001", "00002", "00003", "00021"])]
    assert read["left_out_pools"] == read["dropped_left_out"] == np.count_nonzero(years <= UNTIL)
    assert read["pools"] == 2


def test_negatives_of_specter2_have_the_fields_that_are_asked_for(world: World) -> None:
    rows, counts, _ = drawn(world, "specter2")
    checked(world, rows)
    masks = Corpus(world[1]).attributes["fields"]
    for row in rows:
        shared = bool(masks[row["query"]] & masks[row["negative"]])
        assert row["kind"] == "hard" or shared == (row["kind"] == "same_field")
    assert counts["triplets_same_field"] == 2 * counts["triplets_other_field"] == 4 * counts["queries"]


def test_mined_negatives_are_at_the_ranks_that_are_asked_for(world: World) -> None:
    runner, corpus = world
    rows, _, _ = drawn(world, "mined", ranks=(3, 12))
    checked(world, rows)
    queries = queries_task(runner.root, corpus, Draw(until=UNTIL, seed=3))
    task = baseline_task(corpus, queries, RANDOM, depth=40)
    ranking = read_ranking(runner.make(task))
    names = runner.make(queries).arrow("queries.arrow").column("row").to_numpy()
    ranks = {(int(names[q]), int(r)): int(k) for q, r, k in zip(ranking.query, ranking.row, ranking.rank, strict=True)}
    assert rows
    assert all(3 <= ranks[row["query"], row["negative"]] <= 12 for row in rows)


def test_draws_depend_on_no_block_and_no_other_query(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, _ = drawn(world)
    fewer, _, _ = drawn(world, queries=40)
    assert [row for row in rows if row["query"] in {row["query"] for row in fewer}] == fewer
    monkeypatch.setattr(triplets, "_SHARD", 7)
    monkeypatch.setattr(triplets, "_CITATIONS", 50)
    (Runner(world[0].root, Resources(workers=1)).path(_task(world)) / "manifest.json").unlink()
    world[0]._made.clear()
    assert drawn(world)[0] == rows


def _task(world: World) -> object:
    draw = Draw(until=UNTIL, seed=3)
    return triplets_task(world[1], queries_task(world[0].root, world[1], draw), "specter", draw)


def test_queries_of_a_field_and_lists_of_excluded_papers(world: World, tmp_path: Path) -> None:
    listed = [f"{number:05d}" for number in range(40, 60)]
    (tmp_path / "ids.txt").write_text("\n".join([*listed, "unknown"]))
    rows, _, queries = drawn(world, exclude=(tmp_path / "ids.txt",), field="Art")
    masks, art = Corpus(world[1]).attributes["fields"], draws.FIELD_BIT["Art"]
    assert {int(masks[row["query"]]) >> art & 1 for row in rows} == {1}
    papers = {row[name] for row in rows for name in ("query", "positive", "negative")}
    excluded = Corpus(world[1]).rows_of(listed)
    assert papers
    assert not papers & set(excluded.tolist())
    years = Corpus(world[1]).attributes["year"][excluded]
    assert queries.manifest.counts["left_out_exclusion_lists"] == np.count_nonzero(years <= UNTIL)


def test_a_later_pool_whose_queries_are_after_the_year_changes_nothing(world: World) -> None:
    runner, corpus = world
    before = _task(world)
    make_pool(runner.root, corpus, ["00013"], slug="later")  # of 2013
    assert _task(world).id == before.id
    make_pool(runner.root, corpus, ["00005"], slug="earlier")
    assert _task(world).id != before.id


def test_wrong_settings_are_one_line(world: World) -> None:
    with pytest.raises(InputError):
        mix_of("specter", {"easy": 0, "hard": 0})
    assert mix_of("mined", {"hard": 3}) == dataclasses.replace(triplets.RECIPES["mined"], ranked=3)
    with pytest.raises(InsufficientDataError, match="may train"):
        drawn(world, until=1990)
