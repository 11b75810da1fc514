"""Scientific retrieval tasks of MTEB: a table of all data sets, ranks, and a comparison with published figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.files import resolved
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.encode.names import parse
from pipeline.measure.design import Draws
from pipeline.measure.measures import sign_of
from pipeline.measure.ranks import all_pairs, ranks_with_ends
from pipeline.scores.average import AVERAGE
from pipeline.scores.layout import select_measures
from pipeline.scores.published import made_with, with_published
from pipeline.scores.store import runs_of, values
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Form, Table, cell, grid, label_of
from pipeline.sources.mteb import corpus_name, task_names
from pipeline.stages.chain import Evaluation
from pipeline.stages.corpus import task_of
from pipeline.studies.base import StudyResult, old_study
from pipeline.studies.common import BRACKETS, cells_of, pool_result


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with a folder for each task, as mdcr fetch mteb writes them")
    tasks: str = required("names of tasks of MTEB, or scientific: all that mdcr fetch mteb has")
    systems: str = required("what ranks, with commas")
    baseline: str = required("the system that the others are tested against")
    depth: int = required("ranks kept of each query; mteb keeps 1,000")
    measures: tuple[str, ...] = required("what is shown; systems are ranked by the first")
    seed: int = required("seed of resamples and tests")


def _corpora(recipe: Recipe) -> dict[str, Task]:
    """Return the task of each corpus, by MTEB task."""
    shared = {"source": "mteb", "input": str(resolved(Path(recipe.input).expanduser())), "duplicates": None}
    return {
        task: task_of({**shared, "name": corpus_name(task), "options": {"task": task}})
        for task in task_names(recipe.tasks)
    }


def _evaluated(workspace: Workspace, recipe: Recipe) -> Iterator[tuple[str, str, str, Evaluation]]:
    """Yield data set, row label, system without label, and evaluation."""
    for task, corpus in _corpora(recipe).items():
        (pool,) = selection(seed=recipe.seed).pools(workspace.runner.make(corpus))
        for system in parse(recipe.systems):
            (evaluation,) = workspace.evaluations(pool, str(system), depth=recipe.depth, measures=list(recipe.measures))
            yield corpus_name(task), system.title, str(replace(system, label="")), evaluation


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpora, then the scores of all sets."""
    yield list(_corpora(recipe).values())
    yield [score for *_, evaluation in _evaluated(workspace, recipe) for score in evaluation.scores]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the table of sets with their macro average, ranks by the first measure, and published figures."""
    *names, evaluations = zip(*_evaluated(workspace, recipe), strict=True)
    columns = dict(zip(("field", "label", "system"), map(pl.Series, names), strict=True))
    runs = runs_of(workspace.runner, evaluations).with_columns(**columns, kind=pl.lit("sets"))
    scores, draws = values(runs), Draws(seed=recipe.seed)
    summary = summarise(scores, runs, baseline=recipe.baseline, draws=draws)
    result = pool_result(runs, scores, [summary], recipe.measures, draws)
    first, *other_tables = result.tables
    if first.corner == "field":
        first = replace(first, corner="set", title=f"Retrieval by set (top {recipe.depth:,})")
    tables = [first, *other_tables, rank_table(scores, recipe.measures[0], draws)]
    if (comparison := _published(select_measures(summary, recipe.measures))) is not None:
        tables.append(comparison)
    return replace(result, tables=tables)


def rank_table(scores: pl.DataFrame, measure: str, draws: Draws) -> Table:
    """Return the rank of each system on each set, and its mean over sets (:func:`pipeline.measure.ranks.ranks`).

    The interval of a rank leaves out the places of significantly better and worse systems on the set. That of the mean
    averages the ends.
    """
    of_measure, ranked = scores.filter(measure=measure), {}
    labels = of_measure["label"].unique(maintain_order=True).to_list()
    for field, of_set in of_measure.group_by("field", maintain_order=True):
        wide = of_set.sort("query").pivot("query", index="label", values="value", aggregate_function="mean")
        wide = pl.DataFrame({"label": labels}).join(wide, on="label", maintain_order="left").drop("label")
        queries = np.ascontiguousarray(wide.to_numpy())
        worth = sign_of(measure) * queries.mean(axis=1)
        apart = all_pairs(queries, seed=draws.seed_of(scores), item=field[0]) < draws.alpha
        ranked[str(field[0])] = ranks_with_ends(worth, apart)
    ranked[AVERAGE] = np.mean(list(ranked.values()), axis=0)
    cells = {
        (label, column): cell(*figures, form=Form(1, ".2f"))
        for column, set_ranks in ranked.items()
        for label, figures in zip(labels, set_ranks.T, strict=True)
    }
    notes = [
        f"Ranks by {label_of(measure)}; 1 is best. Intervals leave out the places of significantly better and worse "
        f"systems: paired permutation tests of all pairs, Holm's correction, p < {draws.alpha:g}.",
        BRACKETS,
    ]
    return grid("ranks", "Ranks of systems", "system", cells, notes)


def _published(summary: pl.DataFrame) -> Table | None:
    """Return each figure that has a published one, with the difference to it; None if there are none."""
    figures = summary.select("field", "label", "system", "measure", "value", "low", "high")
    frame = with_published(figures, pl.col("field")).filter(pl.col("published").is_not_null())
    if frame.is_empty():
        return None
    cells = cells_of(
        frame.drop("difference").sort("measure", maintain_order=True), "field", "label",
        pl.col("measure").map_elements(label_of, pl.String),
    )  # fmt: skip
    published_rows = frame.select("label", "system", "field").unique(maintain_order=True).iter_rows()
    texts = dict.fromkeys(f"{label}: {text}" for label, *keys in published_rows if (text := made_with(*keys)))
    notes = ["In parentheses: the difference to the published figure, in points.", f"Published of {'; '.join(texts)}."]
    return grid("published", "Beside published figures", "set", cells, notes, frame)


STUDY = old_study(
    "scientific",
    "retrieval on scientific sets of MTEB, in one table",
    Recipe,
    batches,
    results,
    needs="The sets come by mdcr fetch mteb --task scientific, or from a copy with a folder for each",
)
