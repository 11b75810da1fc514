"""The analyses against plain references, on rankings drawn at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import count_marks, describe_gaps
from pipeline.corpus.reader import Corpus
from pipeline.measure.estimates import Components, components
from pipeline.measure.inputs import Qrels, RankedRun, query_of
from pipeline.measure.statistics import interval
from pipeline.scores.store import Rankings
from pipeline.studies.kit import in_lists
from pipeline.studies.large_scale import by_query, leakage
from tests.builders import made_up_paper, make_corpus, make_pool

QUERIES, PAPERS, DEPTH = 12, 60, 25


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Rankings:
    """Return a pool of 12 queries and 60 papers, of which every fourth lacks its abstract, with two random rankings."""
    root = tmp_path_factory.mktemp("analyses")
    random = np.random.default_rng(3)
    papers = [
        made_up_paper(number) | {"year": 2019 if number < QUERIES else 2010 + number % 12} for number in range(PAPERS)
    ]
    for paper in papers[QUERIES::4]:
        paper["abstract"] = ""
    papers[20]["title"] = papers[0]["title"] + "!"
    papers[21]["year"] = None
    ids = [paper["paper_id"] for paper in papers]
    cited = [
        (ids[q], ids[p]) for q in range(QUERIES) for p in random.choice(np.arange(QUERIES, PAPERS), 7, replace=False)
    ]
    corpus = make_corpus(root, papers, [*cited, (ids[0], ids[20])])
    pool = Pool(make_pool(root, corpus, queries=ids[:QUERIES]), Corpus(corpus))
    runs = {name: made_up_run(random) for name in ("a", "b")}
    runs["empty"] = RankedRun(np.zeros(QUERIES + 1, np.int64), np.empty(0, np.uint32))
    return Rankings(pool, Qrels.from_table(pool.qrels, QUERIES), runs)


def made_up_run(random: np.random.Generator) -> RankedRun:
    rows = [random.permutation(np.arange(QUERIES, PAPERS))[:DEPTH] for _ in range(QUERIES)]
    return RankedRun(np.arange(QUERIES + 1) * DEPTH, np.concatenate(rows).astype(np.uint32))


def plain_precision(ranking: list[int], relevant: list[int]) -> float:
    hits = [rank for rank, row in enumerate(ranking, 1) if row in relevant]
    return sum(number / rank for number, rank in enumerate(hits, 1)) / len(relevant)


def test_a_random_ranking_has_the_precision_of_chance() -> None:
    random, size, relevant = np.random.default_rng(1), 40, 5
    found = [plain_precision(random.permutation(size).tolist(), list(range(relevant))) for _ in range(20_000)]
    assert by_query.random_precision(size, relevant) == pytest.approx(np.mean(found), rel=0.02)
    assert by_query.random_precision(1, 1) == 1
    mean = np.mean([by_query.random_precision(size, positives) for positives in (1, 6)])
    assert by_query.random_precision(size, 3.5) == pytest.approx(mean)


def test_the_least_of_several_gains_is_covered() -> None:
    """Two parts of equal quality: which is better is chance, and the interval allows for it."""
    random, held = np.random.default_rng(2), []
    for _ in range(400):
        fused, *parts = random.beta(0.5, 3.0, (3, 120))
        held.append(by_query.least([interval(fused - part, 1) for part in parts]))
    assert np.mean([low <= 0 <= high for _, low, high in held]) > 0.92
    assert by_query.least([(0.1, 0.0, 0.2), (0.05, -0.2, 0.3)]) == (0.05, -0.2, 0.2)


def test_marks_are_counted_once_a_paper(ranked: Rankings) -> None:
    corpus = ranked.pool.corpus
    own = np.unique(ranked.qrels.rows)
    found = count_marks(corpus.attributes, own, ranked.pool.candidates)
    abstracts = corpus.take(np.arange(PAPERS), ["abstract"]).column(0).to_pylist()
    assert found["positives"]["papers"] + found["negatives"]["papers"] == PAPERS
    assert found["positives"]["without_abstract"] == sum(not abstracts[row] for row in own)
    assert found["positives"]["few_references"] == sum(int(row) >= QUERIES for row in own)
    assert found["positives"]["without_year"] == 1
    lacking = found["positives"]["without_abstract"] / len(own)
    assert f"without abstract {lacking:.1%} and " in describe_gaps([found, found])
    assert describe_gaps([]) == ""


@pytest.mark.parametrize("seed", [1, 2])
def test_components_are_recovered_and_tell_how_many_samples_are_needed(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, 2, (1, 4000)) + random.normal(0, 0.5, (60, 1)) + random.normal(0, 1, (60, 4000))
    found = components(values)
    assert found.queries == pytest.approx(4, rel=0.1)
    assert found.samples == pytest.approx(0.25, rel=0.5)
    assert found.rest == pytest.approx(1, rel=0.05)
    same = np.tile(np.arange(50.0), (3, 1))
    assert components(same) == pytest.approx((np.var(same[0], ddof=1), 0, 0))


@pytest.mark.parametrize(
    ("found", "queries"),
    [(Components(0.04, 1e-5, 0.02), 200), (Components(0.1, 1e-4, 0.0), 3800), (Components(1, 0, 0), 9)],
)
def test_the_samples_needed_are_the_fewest_that_do(found: Components, queries: int) -> None:
    needed = found.needed(queries)
    assert found.share(needed, queries) <= 0.1 + 1e-9
    assert needed == 1 or found.share(needed - 1, queries) > 0.1


@pytest.mark.parametrize("form", by_query.FORMS)
def test_a_curve_of_the_form_is_recovered(form: str) -> None:
    sizes, at = [1_000, 10_000, 50_000], [200_000, 16_000_000]
    line = 1.5 - 0.4 * np.log(np.array([*sizes, *at], np.float64))
    scores = 1 / (1 + np.exp(-line)) if form == "logit" else np.exp(line)
    np.testing.assert_allclose(by_query.predict(sizes, scores[:3], at, form), scores[3:])
    values = np.repeat(scores[:3, None], 150, axis=1)
    predicted = by_query.predict_largest([*sizes, at[0]], np.vstack([values, np.zeros(150)]), form, seed=1)
    assert predicted == pytest.approx((scores[3],) * 3)


def test_the_audit_finds_what_was_planted(ranked: Rankings, tmp_path: Path) -> None:
    corpus = ranked.pool.corpus
    file = tmp_path / "training.txt"
    file.write_text("\n".join([*corpus.ids(np.array([3, 20])), "unknown"]), encoding="utf-8-sig")
    found = leakage.audit(ranked, in_lists([str(file)], corpus), 2018)
    rows = ranked.qrels.rows
    years = corpus.attributes["year"][rows]
    assert np.flatnonzero(found["queries trained on"]).tolist() == [3]
    assert (found["positives trained on"] == (rows == 20)).all()
    assert (found["positives younger"] == (years > 2019)).all()
    assert found["positives younger"].any()
    assert (found["positives up to 2018"] == ((years >= 2010) & (years <= 2018))).all()
    assert (years < 2010).any()  # positives without a year
    assert not found["queries up to 2018"].any()
    assert (found["positives alike"] == ((rows == 20) & (query_of(ranked.qrels.offsets) == 0))).all()
    assert found["positives alike"].sum() == 1
    with pytest.raises(InputError, match="training list"):
        in_lists([str(tmp_path / "absent")], corpus)
