"""The study ``missing_relevance``: Rubin's rules where the truth is known, and the study as users run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.studies.missing_relevance import features, rubin
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.studies.facets.collection import QUERIES, annotations, write


def test_intervals_over_imputations_hold_the_mean() -> None:
    held, runs, queries, share = 0, 400, 100, 0.3
    for seed in range(runs):
        random = np.random.default_rng(seed)
        truth = random.normal(0.1, 1, queries)
        known = random.random(queries) >= share
        values = np.empty((40, queries))
        for number in range(40):
            drawn = random.choice(truth[known], known.sum())  # the parameters of an imputation are drawn too
            values[number] = np.where(known, truth, random.normal(drawn.mean(), drawn.std(), queries))
        _, low, high, _ = rubin(values)
        held += low <= 0.1 <= high
    assert 0.92 <= held / runs <= 0.98


def test_equal_imputations_give_a_t_interval_over_queries() -> None:
    from scipy.stats import t, ttest_1samp

    values = np.random.default_rng(2).normal(0.1, 1, 50_000)
    mean, low, high, tail = rubin(np.tile(values, (5, 1)))
    expected = ttest_1samp(values, 0)
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-3)
    assert 2 * tail == pytest.approx(expected.pvalue, rel=1e-3)
    assert mean == pytest.approx(values.mean())
    assert t.cdf(0, 1) == 0.5


def test_features_are_logarithms_of_ranks() -> None:
    assert features(np.array([[1, 4], [8, 2]])).tolist() == [[1.0, 0.0], [2.0, 1.0]]


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("facets") / "mine")


def command(folder: Path, *settings: str) -> list[str]:
    words = flags("study missing_relevance --model bm25,lsa:dimension=8")
    common = ["corpus=mine", "large=tiny", "size=400", "queries=10", "imputations=4", "draws=3", "judged=[5,20]"]
    settings_of_both = (*common, *settings)
    return [*words, "--input", str(folder), *(word for setting in settings_of_both for word in ("--set", setting))]


def test_relevance_is_imputed_from_judged_pools(root: Path, collection: Path) -> None:
    tables = mdcr_json(root, *command(collection))["tables"]
    judged = {facet: annotations(collection, facet) for facet in QUERIES}
    relevant: dict[tuple[str, str], bool] = {}
    for lists in judged.values():
        for query, of_query in lists.items():
            for paper, grade in zip(of_query["cands"], of_query["relevance_adju"], strict=True):
                relevant[query, paper] = relevant.get((query, paper), False) or grade >= 2
    cited = {tuple(line.split("\t")) for line in (collection / "cited_pairs.tsv").read_text().splitlines()}
    shares = {row["system"]: row["value"] for row in tables["relevance"] if row["column"] == "all"}
    uncited = [flag for pair, flag in relevant.items() if pair not in cited]
    assert shares["all uncited"] == pytest.approx(np.mean(uncited))
    assert shares["all cited"] == pytest.approx(np.mean([relevant[pair] for pair in relevant if pair in cited]))
    figures = {(row["system"], row["column"]): row["value"] for row in tables["imputed"]}
    assert figures["bm25", "citations"] != figures["bm25", "imputed"]
    (pair,) = tables["pairs"]
    difference = figures["bm25", "imputed"] - figures["lsa:dimension=8", "imputed"]
    assert pair["imputed"] == pytest.approx(difference)
    assert 0 <= pair["other_order"] <= 1
    (settled,) = tables["settled"]
    assert settled["20 judged"] == 100  # all candidates of a query are judged


def test_bad_settings_are_one_line(root: Path, collection: Path) -> None:
    line = one_line_error(mdcr(root, *command(collection, "imputations=1")))
    assert "imputations must be 2 or more and imputed 1 to the depth, got 1 and 50" in line
