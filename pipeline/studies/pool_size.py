"""Scores by number of candidates (Medić & Šnajder 2022, section 3.1, table 1); the simplest example of a study."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.api import Workspace, selection
from pipeline.core.settings import required
from pipeline.measure.measures import parse_measures
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.common import pool_result, scored_runs, scoring_batches
from pipeline.studies.recipe import PoolsRecipe, pools_of


@dataclass(frozen=True, kw_only=True)
class Recipe(PoolsRecipe):
    """Settings of the study. What ``field``, ``year`` and ``samples`` mean is declared by the settings of pools."""

    field: str
    year: int
    sizes: tuple[str, ...] = required("numbers of candidates, such as 200k; smaller pools are subsets of larger ones")
    samples: int
    measures: tuple[str, ...] = required("what the table and the figures show")

    @property
    def selections(self) -> list[Selection]:
        """The nested pools of all sizes and samples."""
        return [selection(**{"nested": True, **pools_of(self)})]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return a table of all measures (of several fields, one per size), and a figure of each measure."""
    runs = scored_runs(workspace, recipe)
    scores = values(runs)
    return pool_result(
        runs, scores, [summarise(scores, runs)], [str(measure) for measure in parse_measures(recipe.measures)]
    )


STUDY = Study("pool_size", "score against the number of candidates", Recipe, scoring_batches, results)
