"""Scores by number of candidates (Medić & Šnajder 2022, section 3.1, table 1); the simplest example of a study."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.studies import kit


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study. What ``field``, ``year`` and ``samples`` mean is declared by the settings of pools."""

    field: str
    year: int
    sizes: tuple[str, ...] = kit.required(
        "numbers of candidates, such as 200k; smaller pools are subsets of larger ones"
    )
    samples: int
    measures: tuple[str, ...] = kit.required("what the table and the figures show")


@kit.study("pool_size", "score against the number of candidates", Recipe)
def pool_size(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return a table of all measures (of several fields, one per size), and a figure of each measure."""
    found = yield from kit.scored(workspace, recipe, [kit.selection(**{"nested": True} | kit.pools_of(recipe))])
    return found.report(*map(str, kit.parse_measures(recipe.measures)))
