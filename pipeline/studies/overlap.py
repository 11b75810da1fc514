"""The study ``overlap``: how much of an encoder's advantage over BM25 is overlap with its training data?

It compares the advantage between queries that the encoder could have seen and later ones (difference in differences).
The baseline removes what makes a stratum of queries harder for every system, but not what makes it harder for encoders
alone: an untrained system with a cutoff, a placebo, shows the difference without overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study."""

    field: str
    years: tuple[int, ...] = kit.required("publication years of the queries, a pool for each")
    size: str
    baseline: str = kit.required("the system without training data")
    cutoffs: Mapping[str, int] = kit.required("last year of training data, where models.toml has none, by system")


@kit.study("overlap", "how much of an encoder's advantage is overlap with its training data", Recipe)
def overlap(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the differences between strata, and the scores of each pool."""
    if len(set(recipe.years)) < 2:
        raise kit.InputError(f"years must be two or more, got {list(recipe.years)}", "Write --set=years=2019,2023")
    pools = [kit.selection(**kit.pools_of(recipe) | {"samples": 1, "year": year}) for year in recipe.years]
    found = yield from kit.scored(workspace, recipe, pools)
    baseline = found.label(recipe.baseline)
    if unknown := {*recipe.cutoffs} - {*found.labels}:
        problem = f"cutoffs must be of systems, got {', '.join(sorted(unknown))}"
        raise kit.InputError(problem, f"Name some of {', '.join(found.labels)}")
    encoders = [label for label in found.labels if label != baseline]
    known = {label: recipe.cutoffs.get(label, found.trained_until(label)) for label in encoders}
    cutoffs = {label: cutoff for label, cutoff in known.items() if cutoff is not None}
    gains = found.gains(baseline).sort("field", "year", "query", maintain_order=True)
    rows = list[Comparison]()
    for label, cutoff in cutoffs.items():
        rows += compared(label, gains.filter(label=label).with_columns(seen=pl.col("year") <= cutoff))
    for label, cutoff in cutoffs.items():
        rows += of_positives(label, found.positives.filter(pl.col("year") > cutoff), baseline, cutoff)
    return found.report("map", baseline=baseline, tables=[strata_table(rows, cutoffs, baseline, recipe.seed)])


Comparison = tuple[str, str, float, float, int, int, Any]
"""System, strata, mean advantage in each stratum and its number of queries, and the contrast of the strata."""


def compared(system: str, values: pl.DataFrame) -> list[Comparison]:
    """Compare queries that could have been ``seen`` with others, in fields that have both."""
    both = values.filter((pl.col("seen").n_unique() == 2).over("field"))
    sides = (both.filter(seen=side).partition_by("field", "year", maintain_order=True) for side in (True, False))
    seen, unseen = ([group["value"].to_numpy() for group in groups] for groups in sides)
    if not seen:
        return []
    weights = [1 / len(seen)] * len(seen) + [-1 / len(unseen)] * len(unseen)
    first, second = (float(np.mean([group.mean() for group in side])) for side in (seen, unseen))
    numbers = sum(map(len, seen)), sum(map(len, unseen))
    return [(system, "queries by year", first, second, *numbers, ([*seen, *unseen], weights))]


def of_positives(system: str, positives: pl.DataFrame, baseline: str, cutoff: int) -> list[Comparison]:
    """Compare, within queries after the cutoff, the advantage at positives up to it with that at later ones."""
    both = positives.filter(pl.col("label").is_in([system, baseline])).drop("rank")
    index = ["pool", "query", "paper", "published"]
    wide = both.pivot("label", index=index, values="precision").drop_nulls("published")
    sides = wide.group_by("pool", "query", early=pl.col("published") <= cutoff, maintain_order=True).agg(
        value=(pl.col(system) - pl.col(baseline)).mean()
    )
    values = sides.pivot("early", index=["pool", "query"], values="value")
    if not {"true", "false"} <= {*values.columns} or (values := values.drop_nulls()).is_empty():
        return []
    early, late = (values[name].to_numpy() for name in ("true", "false"))
    strata = "positives by year, later queries"
    return [(system, strata, early.mean(), late.mean(), len(early), len(late), ([early - late], [1.0]))]


def strata_table(strata: Sequence[Comparison], cutoffs: Mapping[str, int], baseline: str, seed: int) -> kit.Table:
    """Return the comparisons of strata, with Holm's correction over all of them."""
    schema = dict.fromkeys(("system", "strata"), pl.String) | dict.fromkeys(("seen", "unseen"), pl.Float64)
    schema |= dict.fromkeys(("n_seen", "n_unseen"), pl.Int64)
    frame = pl.DataFrame([row[:-1] for row in strata], schema, orient="row")
    frame = frame.hstack(kit.contrasts([row[-1] for row in strata], seed).rename({"value": "difference"})).select(
        "system", "strata", "seen", "unseen", "difference", "low", "high", "p", "n_seen", "n_unseen", "p_adjusted"
    )
    notes = (
        f"Points of MAP over {baseline} (queries), and their difference between strata [95% interval]; Welch's "
        "t-test, Holm's correction over all rows. The year in brackets is the last of the training data.",
        "Queries by year: published up to that year, or later; years and fields weigh equally. Positives by year: "
        "within queries that are later, positives up to that year or later ones, by the precision at their rank.",
        "Years may also differ for reasons other than training data: compare with an untrained system (placebo).",
    )

    def side(name: str) -> Callable[[kit.Row], str]:
        return lambda row: f"{100 * row[name]:+.1f} ({row[f'n_{name}']:,})"

    years = {name: f"{name} ({year})" for name, year in cutoffs.items()}
    shown: kit.Columns = {
        "strata": "{strata}", "seen": side("seen"), "unseen": side("unseen"), "difference": kit.points(),
        "p": "{p:.4f}", "p, Holm": "{p_adjusted:.4f}",
    }  # fmt: skip
    rows = frame.with_columns(pl.col("system").replace(years))
    return kit.table("strata", "Advantage on what could have been seen", frame, "{system}", shown, notes, rows=rows)
