"""What stands below every table: training data of encoders, sources of queries, MAP among candidates with text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.api import Workspace
from pipeline.core.runner import Runner
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.measure.design import Draws
from pipeline.scores.compare import compare
from pipeline.scores.comparison import difference_table
from pipeline.scores.facts import artifact_of
from pipeline.scores.layout import build_tables, select_measures, tables
from pipeline.scores.notes import notes_on_systems
from pipeline.scores.sources import as_training, cut_note, trained_on
from pipeline.scores.store import open_pool, scores_of
from pipeline.scores.summary import USUAL, summarise
from pipeline.stages.pool import pool_task
from tests.builders import make_corpus
from tests.scores.cases import scored
from tests.stages.making import HERE


def encoders(model: str) -> list[dict[str, Any]]:
    return [] if model == "bm25" else [{"model": model, "role": "paper"}]


def test_the_column_and_the_note_say_what_encoders_were_trained_on() -> None:
    of = {"bm25": "bm25", "rrf(bm25,minilm)": "minilm", "aspire-bm": "aspire-bm"}
    table, *_ = tables(
        pl.concat([scored(name, {"map": [0.1, 0.2]}, encoders=encoders(model)) for name, model in of.items()])
    )
    assert table.columns[-1].label == "trained on"
    assert [line.values[-1] for line in table.lines] == ["", "citations to 2021", "co-citations to 2019"]
    assert any(note.startswith("Trained on: minilm: citations: pairs of S2ORC") for note in table.notes)
    (without,) = tables(pl.concat([scored(name, {"map": [0.1, 0.2]}) for name in ("bm25", "lsa")]))
    assert "trained on" not in [column.label for column in without.columns]
    assert not any("Trained on" in note for note in without.notes)
    assert trained_on({"system": "minilm", "encoders": None}) == "", "a file that is named like a model"


def test_an_encoder_of_unknown_training_and_what_it_cut_is_said_under_the_table() -> None:
    """``encoders`` are those of rankings in a workspace."""
    papers = {"model": "m", "role": "paper", "training": None, "length": 64, "texts": 60, "cut": 12}
    queries = papers | {"role": "query", "texts": 14, "cut": 1}
    training = as_training({"b": ["", None], "t": ["citations: triplets x, from b", 2016]})
    trained = papers | {"training": training, "cut": 0}
    encoders_of = {"bm25": [], "mine": [papers, queries], "t": [trained], "rrf(mine,t)": [papers, trained]}
    scores = pl.concat([scored(name, {"map": [0.1, 0.2]}, encoders=encoders) for name, encoders in encoders_of.items()])
    table, *_ = tables(scores)
    column = ["", "unknown", "unknown; citations to 2016", "unknown; citations to 2016"]
    assert [line.values[-1] for line in table.lines] == column
    said = next(note for note in table.notes if note.startswith("Trained on"))
    assert said == "Trained on: mine: unknown. b: unknown. t: citations: triplets x, from b (to 2016)."
    assert cut_note(scores) in table.notes
    assert "mine 20.0% of 60 papers at 64 tokens, 7.1% of 14 queries at 64 tokens; t 0.0% of 60" in cut_note(scores)
    many = {f"system-{number}": [papers | {"cut": number}] for number in range(9)}
    scores = pl.concat([scored(name, {"map": [0.1, 0.2]}, encoders=encoders) for name, encoders in many.items()])
    assert cut_note(scores).endswith(": 0.0% to 13.3% of the papers at 64 tokens.")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Two fields; papers that are cited often have no abstract."""
    root, random = tmp_path_factory.mktemp("defaults"), np.random.default_rng(2)
    names = [f"W{n}" if n % 3 else f"{n}" for n in range(300)]
    papers = [
        {
            "paper_id": name,
            "title": f"Title {n}",
            "abstract": "" if n < 40 else "x" * 40,
            "year": 2019 if n >= 200 else 2015 + n % 4,
            "fields": ["Art"] if n % 3 else ["Physics"],
        }
        for n, name in enumerate(names)
    ]
    cited = (200 * random.random((300, 6)) ** 2).astype(int)
    corpus = make_corpus(root, papers, {(names[n], names[m]) for n, of in enumerate(cited) for m in of})
    workspace = Workspace(Runner(root, HERE))
    pools = [pool_task(corpus, PoolConfig(field=field, size="all", queries=20)) for field in ("Art", "Physics")]
    evaluations = workspace.evaluations(pools, "most-cited,newest", measures="map")
    return workspace.evaluated(evaluations)


def test_a_frame_of_scores_has_the_tables_of_the_command(runs: pl.DataFrame) -> None:
    """The notes open pools and rankings, so scores say where these are."""
    scores = scores_of(runs)
    by_command = build_tables(select_measures(summarise(scores, baseline=USUAL), ["map"]), runs)
    assert tables(scores, ["map"]) == by_command
    notes = " ".join(note for table in tables(scores) for note in table.notes)
    assert "Of the positives, and of the negatives: without abstract" in notes


def test_values_among_the_candidates_with_an_abstract(runs: pl.DataFrame) -> None:
    """Average precision after the papers without an abstract are taken out of rankings and positives."""
    scores = scores_of(runs).filter(measure="map")
    for run in runs.iter_rows(named=True):
        pool = open_pool(run)
        assert pool is not None
        text = pool.corpus.attributes["abstract_chars"] > 0
        ranking, qrels = artifact_of(run, "ranking").arrow("ranking.arrow").to_pylist(), pool.qrels.to_pylist()
        expected = dict[int, float | None]()
        for query in range(len(pool.query_rows)):
            relevant = {e["row"] for e in qrels if e["query"] == query and text[e["row"]]}
            ranked = [e["row"] for e in ranking if e["query"] == query and text[e["row"]]]
            hits = [rank for rank, row in enumerate(ranked, 1) if row in relevant]
            precision = sum(nth / rank for nth, rank in enumerate(hits, 1)) / max(len(relevant), 1)
            expected[query] = precision if relevant else None
        of_run = scores.filter(pool=run["pool"], label=run["label"])
        found = dict(of_run.select("query", "among_abstracts").iter_rows())
        assert found == {query: pytest.approx(expected[query]) for query in found}


def test_a_comparison_has_the_difference_among_abstracts_beside_it(runs: pl.DataFrame) -> None:
    scores = scores_of(runs)
    differences = compare(scores, "most-cited", "newest", ["map"], Draws(seed=1, resamples=300))
    (row,) = differences.filter(field="Art").rows(named=True)
    values = (
        scores.filter(field="Art", measure="map").pivot("label", index="query", values="among_abstracts").drop_nulls()
    )
    assert row["among_difference"] == pytest.approx((values["newest"] - values["most-cited"]).mean())
    assert row["among_low"] < row["among_difference"] < row["among_high"]
    assert row["finding"] == "worse"
    assert row["among_finding"] != "worse"
    (note,) = (note for note in notes_on_systems(runs, differences) if "among the candidates" in note)
    assert re.search(r"of the positives and [\d.]+% of the negatives have no abstract", note)
    assert "of all" in note
    assert "worse: the two disagree" in note
    assert "with abstracts" in [column.label for column in difference_table(differences, runs).columns]
    assert any(
        "among the candidates with an abstract" in note
        for table in tables(scores, ["map"], baseline="most-cited")
        for note in table.notes
    )
    alike = compare(scores.with_columns(among_abstracts=pl.lit(None, pl.Float64)), "most-cited", "newest", ["map"])
    assert alike["among_difference"].null_count() == len(alike)
    assert "with abstracts" not in [column.label for column in difference_table(alike, runs).columns]
