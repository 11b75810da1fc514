"""The best system, brittleness and its rank correlation with quality."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.core.errors import InputError
from pipeline.studies.neighbours.plan import read_quality
from pipeline.studies.neighbours.study import best_of_titles, category_means, correlation, means_of, with_means


@pytest.mark.parametrize(("corpora", "over"), [("x", ""), ("xy", ", mean over 2 corpora")])
def test_the_best_system_is_that_of_task_i(corpora: str, over: str) -> None:
    of_systems = {"a": (50.0, 70.0), "b": (60.0, 60.0), "c": (40.0, 90.0)}
    rows = [
        (corpus, system, task, measure, value)
        for system, values in of_systems.items()
        for corpus, value in zip(corpora, values, strict=False)
        for task, measure, value in (("I", "MRR", value), ("I", "T100", 100 - value), ("II", "MRR", 100 - value))
    ]
    titles = pl.DataFrame(rows, ["corpus", "system", "task", "measure", "value"], orient="row")
    best = "c: MRR 65.0" if over else "b: MRR 60.0"
    assert best_of_titles(titles) == f"{best} (titles as queries, task I{over})"


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


def test_draws_of_few_and_of_many_papers_stand_in_one_frame() -> None:
    """Intervals of fewer than 100 papers take more resamples."""
    facts = {"corpus": "one", "system": "bm25", "task": "I", "category": "", "measure": "MRR"}
    values = pl.concat(
        pl.DataFrame({"original": range(papers), "value": np.linspace(0, 1, papers)}).with_columns(
            name=pl.lit(name), **{key: pl.lit(fact) for key, fact in facts.items()}
        )
        for name, papers in (("few", 50), ("many", 120))
    )
    assert means_of(values, 13)["draws"].list.len().drop_nulls().to_list() == [10_000, 1_000]


def test_brittleness_of_similar_neighbours_is_correlated_with_quality() -> None:
    names = "abcdefghijk"
    rows = [(system, "LL-HS", "AOP-10", 90.0 - place) for place, system in enumerate(names)]
    rows += [(system, "LO-PS", "NN1_Ret", 100.0) for system in names]
    rows += [("a", "LO-DS", measure, 0.0) for measure in ("AOP-10", "NN1_Ret")]  # dissimilar: does not count
    classes = pl.DataFrame(rows, ["system", "category", "measure", "value"], orient="row")
    quality = {system: 0.4 - place / 50 for place, system in enumerate(names) if system != "c"}
    table = correlation(classes, quality, seed=13)
    expected = [(system, 100 * quality[system], 0.0, 10.0 + names.index(system)) for system in quality]
    assert table.frame.rows() == [pytest.approx(row) for row in expected]
    refused = "not given: it takes 10 systems that are not all equal."
    assert table.notes[0].endswith(f"by NN1_Ret with MAP: {refused}")
    assert table.notes[1].endswith("by AOP-10 with MAP: -1.00 [-1.00, -1.00], p = 0.00.")
    few = correlation(classes, {"a": 0.4, "b": 0.3, "d": 0.1}, seed=13).notes
    assert few[1].endswith(f"by AOP-10 with MAP: {refused}")


def test_quality_is_the_mean_map_of_each_system(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("system,measure,value\na,map,0.2\na,map,0.4\na,ndcg,0.9\nb,map,0.1\nc,map,0\nother,map,1\n")
    assert read_quality(str(file), ["a", "b", "c", "d"]) == pytest.approx({"a": 0.3, "b": 0.1, "c": 0})
    with pytest.raises(InputError, match=r"must have the MAP of 3 or more .* got 2 \(it has a, b, c, other\)"):
        read_quality(str(file), ["a", "b", "d"])
    for text in ("system,value\na,x\n", "name,value\na,1\n", "", "\x00\xff"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"scores\.csv cannot be read"):
            read_quality(str(file), ["a"])
    with pytest.raises(InputError, match="cannot be read"):
        read_quality(str(tmp_path), ["a"])
