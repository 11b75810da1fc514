"""Stage ``tune``: the grid is that of separate rankings, and what it chose is used where it may be, and only there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.stages.bm25 import bm25_ranking_task, terms_tasks
from pipeline.stages.chain import Chain, Evaluation
from pipeline.stages.pool import pool_task
from pipeline.stages.score import score_task
from pipeline.stages.systems import parse_systems
from pipeline.stages.tune import GRID_B, GRID_K1, Grid, Tuning, find_tuning, tune_task
from tests.builders import make_corpus
from tests.retrieve.bm25 import random_texts
from tests.stages.making import make

pytestmark = [pytest.mark.java]
TEST = PoolConfig(size="all", queries=25)


def topical_corpus(root: Path, papers: int = 700) -> Artifact:
    """Papers that cite papers with their words more often than others."""
    rng = np.random.default_rng(6)
    texts = [text.abstract for text in random_texts(papers, 6)]
    bags = [set(text.split()) for text in texts]
    citations = set()
    for number in range(papers):
        near = sorted(range(papers), key=lambda n: -len(bags[n] & bags[number]) / (20 + len(bags[n])))[:60]
        citations |= {(f"{number:06d}", f"{n:06d}") for n in [*rng.choice(near, 5), *rng.integers(0, papers, 2)]}
    made = [
        {
            "paper_id": f"{n:06d}",
            "title": f"Paper {n}",
            "abstract": text + " and thirty characters at least",
            "year": 2018 + n % 2,
            "fields": [("Physics", "Art")[n % 3 == 0]],
        }
        for n, text in enumerate(texts)
    ]
    return make_corpus(root, made, citations)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tune")


@pytest.fixture(scope="module")
def corpus(root: Path) -> Artifact:
    return topical_corpus(root)


def validation_of(corpus: Artifact, **changes: Any) -> Task:
    test = PoolConfig(**{**vars(TEST), **changes})
    return pool_task(corpus, PoolConfig(**{**vars(test), "split": "validation"}))


@pytest.fixture(scope="module")
def tuned(root: Path, corpus: Artifact) -> Artifact:
    return make(root, tune_task(corpus, validation_of(corpus)))


def test_map_of_every_point_is_that_of_its_ranking(root: Path, corpus: Artifact, tuned: Artifact) -> None:
    """Ranked and scored by the stages that rank and score, here at 12 of the 90 points."""
    grid = Grid.of(tuned)
    pool = validation_of(corpus)
    assert set(GRID_K1) <= set(grid.k1.tolist())
    assert set(GRID_B) <= set(grid.b.tolist())
    points = list(itertools.product(range(len(grid.k1)), range(len(grid.b))))[::8]
    for i, j in points:
        ranking = bm25_ranking_task(corpus, pool, terms_tasks(corpus, pool), k1=grid.k1[i].item(), b=grid.b[j].item())
        scores = make(root, score_task(ranking, pool, corpus, system="x", measures=("map",)))
        expected = np.mean(scores.arrow("scores.arrow").column("value").to_numpy())
        assert grid.values[i, j] == pytest.approx(expected, rel=0, abs=1e-12)
    assert len({round(value, 9) for value in grid.values.ravel().tolist()}) > 45


def test_the_best_point_is_stored_with_what_it_gains(tuned: Artifact) -> None:
    grid, tuning, counts = Grid.of(tuned), Tuning.of(tuned), tuned.manifest.counts
    best = grid.values == grid.values.max()
    assert best[grid.k1.tolist().index(tuning.k1), grid.b.tolist().index(tuning.b)]
    assert counts["map"] == grid.values.max()
    assert counts["map_untuned"] == grid.values[grid.k1.tolist().index(0.9), grid.b.tolist().index(0.4)]
    assert (counts["points"], counts["queries"]) == (grid.values.size, 25)
    assert tuned.manifest.config["pool"]["split"] == "validation"
    assert set(tuned.manifest.inputs) == {"corpus", "pool"}


def test_of_equals_the_smallest_and_a_point_outside_the_grid_to_compare_with(root: Path, corpus: Artifact) -> None:
    task = tune_task(corpus, validation_of(corpus), k1=(0.0, 1.0), b=(0.0, 0.7))
    counts = make(root, task).manifest.counts
    assert counts["points"] == 4
    assert counts["map_untuned"] > 0
    flat = make(root, tune_task(corpus, validation_of(corpus), k1=(0.0,), b=(0.2, 0.9)))  # b does nothing at k1=0
    assert (flat.manifest.counts["k1"], flat.manifest.counts["b"]) == (0.0, 0.2)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_usual_grid_is_widened_where_its_best_point_is_at_the_edge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repeated: bool
) -> None:
    """Either kind of paper is cited: those that repeat a word of the query, or those with three or four of its words.

    The repeated word outranks three words from k1=2.1 on, and four from k1=4 on.
    """
    one, several = "apple " * 120, ["berry cherry date", "berry cherry date elder"]
    texts = {"q": f"apple {several[1]}"}
    texts |= {f"r{n}": one if repeated else several[n % 2] for n in range(5)}
    texts |= {f"x{n}": several[n % 2] if repeated else one for n in range(5)}
    papers = [
        {
            "paper_id": f"{name}{copy}",
            "title": name,
            "abstract": " ".join([text, *(f"w{name}{n}" for n in range(60 - len(text.split())))]),
            "year": 2019 if name == "q" else 2018,
        }
        for name, text in texts.items()
        for copy in range(60 if name == "q" else 1)
    ]
    citing = [*(f"q{copy}" for copy in range(60)), *(f"x{n}0" for n in range(5))]
    corpus = make_corpus(tmp_path, papers, {(name, f"r{n}0") for name in citing for n in range(5)})
    tuned = make(tmp_path, tune_task(corpus, validation_of(corpus)))
    grid, best = Grid.of(tuned), Tuning.of(tuned)
    assert (grid.k1[0], grid.k1[-1]) == ((0.5, 4.0) if repeated else (0.1, 2.1))
    assert best.k1 == (4.0 if repeated else 0.1)
    assert grid.is_at_edge(best.k1, best.b)
    assert "values outside it may be better" in capsys.readouterr().err
    assert not grid.is_at_edge(1.1, 0.0)


def test_a_test_pool_is_refused(corpus: Artifact) -> None:
    with pytest.raises(InputError, match=r"holds test queries. Tune on validation queries"):
        tune_task(corpus, pool_task(corpus, TEST))


def served(tunings: Iterable[Artifact], corpus: Artifact, **changes: Any) -> str:
    """Return the identity of the tuning that serves a pool; empty: none does."""
    tuning = find_tuning(tunings, corpus.id, canonical(PoolConfig(**{**vars(TEST), **changes})))
    return tuning.artifact.id if tuning else ""


@pytest.mark.parametrize("changes", [{}, {"size": 300}, {"sample": 2}, {"nested": True}, {"queries": 24}])
def test_a_tuning_serves_pools_of_other_sizes_and_samples(
    corpus: Artifact, tuned: Artifact, changes: dict[str, Any]
) -> None:
    assert served([tuned], corpus, **changes) == tuned.id


@pytest.mark.parametrize(
    "changes",
    [
        {"field": "Physics"},
        {"year": 2018},
        {"seed": 14},
        {"positives": "prefiltered"},
        {"drop_same_title": False},
        {"exclude": (("ids.txt", "0" * 64),)},
        {"queries": 26},
        {"queries": "all"},
        {"split": "validation"},
        {"queries_are": "texts"},
    ],
)
def test_a_tuning_serves_no_pool_of_other_rules_or_more_queries(
    tmp_path: Path, corpus: Artifact, tuned: Artifact, changes: dict[str, Any]
) -> None:
    assert not served([tuned], corpus, **changes)
    assert not served([tuned], make_corpus(tmp_path, 5))


def test_of_several_the_one_of_the_pools_size_else_of_the_largest_pool(
    root: Path, corpus: Artifact, tuned: Artifact
) -> None:
    smaller = make(root, tune_task(corpus, validation_of(corpus, size=400), k1=(2.1,), b=(1.0,)))
    more = make(root, tune_task(corpus, validation_of(corpus, queries=30), k1=(2.1,), b=(1.0,)))
    assert {served(order, corpus) for order in itertools.permutations([tuned, smaller])} == {tuned.id}
    assert served([smaller], corpus) == smaller.id
    assert served([tuned, smaller], corpus, size=300) == tuned.id
    assert served([tuned, smaller], corpus, size=400) == smaller.id
    assert (Tuning.of(smaller).k1, Tuning.of(smaller).b) == (2.1, 1.0)
    assert tuned.manifest.counts["candidates"] == more.manifest.counts["candidates"]
    assert served([tuned, more], corpus) == more.id  # it has more queries


def evaluation_of(corpus: Artifact, model: str, *tunings: Artifact, **options: Any) -> Evaluation:
    chain = Chain(corpus, measures=("map",), tunings=tunings, **options)
    (evaluation,) = chain.evaluations([pool_task(corpus, TEST)], parse_systems(model))
    return evaluation


def parameters(evaluation: Evaluation) -> tuple[float, float, str]:
    config = canonical(evaluation.ranking.config)
    return config["k1"], config["b"], canonical(evaluation.scores[0].config)["system"]


@pytest.mark.parametrize("engine", ["postings", "lucene"])
def test_what_each_name_means_with_a_tuning_and_without(corpus: Artifact, tuned: Artifact, engine: str) -> None:
    best = Tuning.of(tuned)

    def of(model: str, *tunings: Artifact) -> tuple[float, float, str]:
        return parameters(evaluation_of(corpus, model, *tunings, bm25_engine=engine))

    assert (best.k1, best.b) != (0.9, 0.4)
    assert of("bm25") == of("bm25:k1=0.9,b=0.4") == (0.9, 0.4, "bm25")
    assert of("bm25", tuned) == of("bm25:tuned", tuned) == (best.k1, best.b, "bm25:tuned")
    assert of("bm25:k1=0.9,b=0.4", tuned) == (0.9, 0.4, "bm25")
    assert of("bm25:k1=1.2,b=0.75", tuned) == (1.2, 0.75, "bm25:k1=1.2,b=0.75")
    assert evaluation_of(corpus, "bm25", tuned).ranking.inputs["tuning"].id == tuned.id
    assert "tuning" not in evaluation_of(corpus, "bm25:k1=0.9,b=0.4", tuned).ranking.inputs
    assert evaluation_of(corpus, "bm25:k1=0.9,b=0.4", tuned).tuning is None


def test_a_tuning_that_is_required_and_missing(corpus: Artifact, tuned: Artifact) -> None:
    with pytest.raises(InputError, match="BM25 was not tuned for tiny-dataset-2019-all-s1"):
        evaluation_of(corpus, "bm25:tuned")
    with pytest.raises(InputError, match="--bm25-engine must be postings or lucene, got 'lucen'"):
        evaluation_of(corpus, "bm25", tuned, bm25_engine="lucen")
