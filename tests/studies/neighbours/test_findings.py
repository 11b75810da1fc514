"""Means over categories and sets."""

import numpy as np
import polars as pl
import pytest

from pipeline.studies.neighbours.study import category_means, with_means


def test_means_over_categories_and_sets_draw_papers_and_sets_on_their_own() -> None:
    """A paper's classes agree, so they are one draw; two sets halve the variance of a mean."""
    random, frames = np.random.default_rng(4), []
    for number, corpus in enumerate(("one", "two")):
        shares = random.random(150)
        rows = [(paper, name, "AOP-10", share) for name in ("T_ARot", "T_AShuff") for paper, share in enumerate(shares)]
        values = pl.DataFrame(rows, ["original", "name", "measure", "value"], orient="row")
        facts = {"corpus": corpus, "system": "bm25", "category": "LL-PS"}
        values = values.with_columns(**{name: pl.lit(fact) for name, fact in facts.items()})
        frames.append(category_means(values, 13 + number))
        expected = 100 * np.array([shares.mean() + z * shares.std() / np.sqrt(150) for z in (0, -1.96, 1.96)])
        assert frames[-1].select("value", "low", "high").row(0) == pytest.approx(expected, abs=0.6)
    means = with_means(pl.concat(frames))
    assert means["corpus"].to_list() == ["one", "two", "mean over sets"]
    width = means["high"] - means["low"]
    assert width[2] == pytest.approx(np.sqrt(width[0] ** 2 + width[1] ** 2) / 2, rel=0.08)
    assert len(with_means(frames[0])) == 1
