"""The study ``crossover``: intervals where the truth is known, kinds of negatives, and the study as users run it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.core.artifact import published
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.estimates import crossed_mean
from pipeline.studies.crossover import by_kind, fitted, turning
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

SIZES = (1_000, 2_000, 4_000, 8_000)


def differences(seed: int, turn: float, queries: int = 60, samples: int = 3) -> np.ndarray:
    """Return differences ``[samples, queries, sizes]`` whose expected line is 0 at a size, and falls."""
    random = np.random.default_rng(seed)
    doublings = np.log2(np.array(SIZES) / turn)
    slope = random.normal(-0.02, 0.01, queries)[:, None]
    level = random.normal(0, 0.05, queries)[:, None]
    drawn = random.normal(0, 0.005, (samples, 1, 1))
    return slope * doublings + level + drawn + random.normal(0, 0.02, (samples, queries, len(SIZES)))


def turn(values: np.ndarray) -> tuple[float, float, float]:
    design = np.stack([np.ones(len(SIZES)), np.log2(SIZES) - np.log2(SIZES).mean()])
    middle, sizes = float(np.exp(np.mean(np.log(SIZES)))), np.geomspace(SIZES[0], SIZES[-1], 400)
    return turning(values @ np.linalg.pinv(design), middle, sizes)


def test_the_size_at_which_the_order_turns_is_held() -> None:
    held, runs = 0, 100
    for seed in range(runs):
        value, low, high = turn(differences(seed, turn=3_000))
        held += low <= 3_000 <= high
        assert np.isnan(value) or low <= value <= high
    assert held / runs >= 0.89


def test_no_turn_is_claimed_where_one_system_is_always_better() -> None:
    assert np.isnan(turn(differences(1, turn=3_000) + 1.0)).all()


@pytest.mark.parametrize("samples", [1, 3, 10])
def test_a_crossed_mean_is_held(samples: int) -> None:
    held, runs = 0, 400
    for seed in range(runs):
        random = np.random.default_rng(seed)
        between = random.normal(0, 0.3, (samples, 1)) if samples > 1 else 0.0
        values = 1 + random.normal(0, 1, (1, 50)) + between + random.normal(0, 0.5, (samples, 50))
        _, low, high = crossed_mean(values)
        held += low <= 1 <= high
    assert 0.91 <= held / runs <= 0.99


def test_lines_are_fitted_on_pools_that_are_whole() -> None:
    values = differences(3, turn=3_000, queries=5)
    rows = [
        ("random", sample, size, size if size < 8_000 else 9_000, query, system, value)
        for sample, of_sample in enumerate(values, 1)
        for query, of_query in enumerate(of_sample)
        for size, difference in zip(SIZES, of_query, strict=True)
        for system, value in (("bm25", 0.5), ("dense", 0.5 + difference))
    ]
    columns = ["kind", "sample", "size", "asked", "query", "system", "value"]
    ((kind, of),) = by_kind(pl.DataFrame(rows, columns, orient="row"), "bm25")
    whole = fitted(kind, *of)
    assert whole["sizes"] == SIZES[:3]
    assert whole["values"] == pytest.approx(values[:, :, :3])
    doublings = np.log2(SIZES[:3]) - np.log2(whole["middle"])
    expected = np.polyfit(doublings, values[1, 2, :3], 1)
    assert whole["coefficients"][1, 2] == pytest.approx(expected[::-1])


def test_the_study_crosses_kinds_sizes_and_samples(root: Path) -> None:
    command = [*flags("study crossover --corpus tiny --model lsa --set sparse=bm25"), "--set", "sizes=300,600"]
    command += ["--set", "queries=10", "--set", "samples=2"]
    found = mdcr_json(root, *command)
    turns = found["tables"]["turns"]
    assert {row["negatives"] for row in turns} == {"random", "graph", "matched", "model"}
    corpus = Corpus(next(iter(published(root / "corpora"))))
    pools: dict[tuple[str, int, int], Pool] = {}
    for artifact in published(root / POOLS):
        config = artifact.manifest.config
        if config["size"] in (300, 600) and config["nested"]:
            pools[config.get("negatives", "random"), config["size"], config["sample"]] = Pool(artifact, corpus)
    assert len(pools) == 4 * 2 * 2
    for (kind, size, sample), pool in pools.items():
        base = pools["random", size, sample]
        assert pool.qrels.equals(base.qrels)
        assert set(pools[kind, 300, sample].candidates) <= set(pools[kind, 600, sample].candidates)
        assert len(pool.candidates) == size or kind in ("graph", "model")
        negatives = np.setdiff1d(pool.candidates, pool.qrels.column("row").to_numpy())
        if kind == "graph":
            cited = {paper for row in pool.query_rows for paper in corpus.outgoing.of(row)}
            near = {paper for row in cited for paper in (*corpus.outgoing.of(row), *corpus.incoming.of(row))}
            assert set(negatives) <= near
        if kind == "matched":
            lacking = [
                (corpus.attributes["abstract_chars"][rows] == 0).mean()
                for rows in (np.unique(pool.qrels.column("row").to_numpy()), negatives)
            ]
            assert lacking[1] <= lacking[0] + 0.1


def test_a_plan_says_that_bm25_is_tuned_first(root: Path) -> None:
    command = [*flags("study crossover --corpus tiny --model lsa --dry-run"), "--set", "sizes=300,600"]
    planned = mdcr(root, *command, "--set", "queries=20", "--set", "seed=77")
    assert planned.returncode == 0, planned.stderr
    said = "^the rest, if any, is planned once these are made: bm25-tiny-[a-z0-9.-]* must be made first$"
    assert re.search(said, planned.stderr, re.MULTILINE), planned.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('kinds=["rendom"]', "a kind of negatives must be one of random, graph, matched, model, got 'rendom'"),
        ("sizes=300", "sizes must be two or more, got 300"),
    ],
)
def test_bad_settings_are_one_line(root: Path, setting: str, message: str) -> None:
    assert message in one_line_error(mdcr(root, *flags("study crossover --corpus tiny"), "--set", setting))
