"""The study ``mdcr_checks``: what a benchmark's figures depend on, beyond the paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.measure.statistics import PERCENTILE_QUERIES, Floats, Means, bootstrap_means, mean_of_means, percentiles
from pipeline.scores.tables import Cell, Value, frame_table, grid
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, made
from pipeline.studies.mdcr import study
from pipeline.studies.mdcr.build import FieldRankings, benchmark_task
from pipeline.studies.mdcr.evaluation import RankedLists, opened, rank
from pipeline.studies.mdcr.redraws import MATCHED, Draw, draws, draws_pool_task
from pipeline.studies.tables import Measurement

OWN = "0"
"""The draw that is the benchmark itself."""

POWER, ALPHA = 0.8, 0.05

_OWN_COST = "own less others"


@dataclass(frozen=True)
class Recipe(study.Recipe):
    """Settings of the study: those of the benchmark, and these.

    Attributes:
        rebuilds: further draws of the negatives.
        baseline: system that the number of queries is computed against.
        differences: of mean average precision, fractions, that a benchmark is to detect.
    """

    rebuilds: int
    baseline: str
    differences: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """Average precision of every query.

    Attributes:
        systems: in order.
        chosen: those that the benchmark draws negatives from.
        fields: by draw (or draw and the type that is left out) and field: float64 ``[systems, queries]``.
        large: on the field-level pools, by field.
        seed: of the bootstrap; all figures share the queries that are drawn.
    """

    systems: tuple[str, ...]
    chosen: tuple[str, ...]
    fields: Mapping[str, Mapping[str, Floats]]
    large: Mapping[str, Floats]
    seed: int

    def few(self) -> list[str]:
        """Return a note where queries are too few for the percentile intervals of statistics that are not means."""
        queries = sum(values.shape[1] for values in self.fields[OWN].values())
        return (
            [f"Percentile intervals of {queries} queries, which are too short."] if queries < PERCENTILE_QUERIES else []
        )

    def macro(self, draw: str) -> Means:
        """Return the means over fields of one draw."""
        return mean_of_means(self.fields[draw], self.seed)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks of the benchmark, then its large pools' scores and the rankings of all draws."""
    check_baseline(recipe.baseline, recipe.systems)
    if recipe.rebuilds < 1:
        raise InputError(f"rebuilds must be at least 1, got {recipe.rebuilds}", "Write --set=rebuilds=20")
    yield from study.batches(workspace, recipe)
    _, parts, wanted = _plan(workspace, recipe)
    yield [each for part in parts for each in _large(workspace, recipe, part)]
    yield [each.ranking for each in _ranked(workspace, recipe, parts, wanted)]


def _plan(workspace: Workspace, recipe: Recipe) -> tuple[Artifact, list[FieldRankings], list[Draw]]:
    """Return the benchmark, which must have been made, its fields of split ``test``, and the draws."""
    found, left_out = study.field_rankings(workspace, recipe)
    config = recipe.config(left_out)
    artifact = made(workspace, benchmark_task(find_corpus(workspace.root, recipe.corpus or None), found, config))
    wanted = draws(artifact.manifest.counts["model_negatives"], config.systems, recipe.rebuilds)
    return artifact, [part for part in found if part.split == "test"], wanted


def _large(workspace: Workspace, recipe: Recipe, part: FieldRankings) -> list[Task]:
    return [each.scores[0] for each in workspace.evaluations(part.pool, recipe.systems, depth=recipe.depth)]


def _ranked(
    workspace: Workspace, recipe: Recipe, parts: Sequence[FieldRankings], wanted: Sequence[Draw]
) -> list[RankedLists]:
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    drawing = recipe.config({}).drawing
    pools = [draws_pool_task(corpus, part, drawing, wanted) for part in parts]
    return rank(workspace, corpus, pools, recipe.systems, "field")


def measured(workspace: Workspace, recipe: Recipe) -> tuple[Measured, list[str]]:
    """Return what the tables are made of, and the artifacts it comes from."""
    benchmark, parts, wanted = _plan(workspace, recipe)
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    ranked = _ranked(workspace, recipe, parts, wanted)
    systems, chosen = recipe.config({}).systems, wanted[0].systems
    choices = {each.name: each.types() for each in wanted}
    choices |= {f"without {name}": wanted[0].types(without=name) for name in chosen}
    values: dict[str, dict[str, list[Floats]]] = {name: {part.field: [] for part in parts} for name in choices}
    for each in ranked:
        lists, ranking = opened(workspace, corpus, each)
        for name, types in choices.items():
            values[name][each.field] += [lists.values(ranking, ["map"], types)]
    fields = {n: {field: np.concatenate(rows) for field, rows in each.items()} for n, each in values.items()}
    large = {
        part.field: np.stack([_precisions(each) for each in workspace.make(_large(workspace, recipe, part))])
        for part in parts
    }
    return Measured(systems, chosen, fields, large, recipe.seed), [benchmark.name]


def _precisions(scores: Artifact) -> Floats:
    frame: Any = pl.from_arrow(scores.arrow("scores.arrow"))
    values: Floats = frame.filter(pl.col("measure") == "map").sort("query")["value"].to_numpy()
    return values


def tau(one: Floats, other: Floats) -> Floats:
    """Return Kendall's tau of two orders of ``[systems, ...]``; a pair that is tied in one of them counts 0."""
    pairs = list(itertools.combinations(range(len(one)), 2))
    agreeing = [np.sign(one[a] - one[b]) * np.sign(other[a] - other[b]) for a, b in pairs]
    found: Floats = np.mean(agreeing, axis=0)
    return found


def _figure(row: Measurement) -> Value:
    return Cell(row.value, row.deviation, row.low, row.high, best=False, marked=False)


def shown(
    name: str,
    title: str,
    rows: Sequence[Measurement],
    notes: Sequence[str],
    show: Callable[[Measurement], Value] = _figure,
) -> StudyTable:
    """Return a table of systems by columns; ``show`` says how a figure is shown."""
    frame = pl.DataFrame(rows, schema=["system", *Measurement._fields[1:]], orient="row", infer_schema_length=None)
    return StudyTable(name, grid(title, "system", {row[:2]: show(row) for row in rows}, notes), frame)


def redraw_table(found: Measured, rebuilds: int) -> StudyTable:
    """Return each system's figure in the benchmark, over its rebuilds, with matched negatives and in large pools."""
    again = np.stack([found.macro(str(number)).value for number in range(1, rebuilds + 1)])
    others = {"benchmark": found.macro(OWN), "matched": found.macro(MATCHED)}
    others["large"] = mean_of_means(found.large, found.seed)
    rows = []
    for place, system in enumerate(found.systems):
        own = again[:, place]
        deviation = float(own.std(ddof=1)) if rebuilds > 1 else None
        for name, each in others.items():
            rows.append(Measurement(system, name, *each.at(place)))
        rows.append(Measurement(system, "rebuilds", float(own.mean()), float(own.min()), float(own.max()), deviation))
    notes = (
        "Percent: MAP, mean over fields [95% interval over queries].",
        "matched: negatives of every system. large: the field-level pools.",
        f"rebuilds: mean ± standard deviation over {rebuilds} other draws of the negatives [least, most].",
    )
    return shown("redraws", "Systems under other candidates", rows, notes)


def order_table(found: Measured, rebuilds: int) -> StudyTable:
    """Return Kendall's tau between the order of systems in the benchmark and in other candidates."""
    own = found.macro(OWN)
    others = {f"{rebuilds} rebuilds": [found.macro(str(number)) for number in range(1, rebuilds + 1)]}
    others |= {"matched": [found.macro(MATCHED)], "large pools": [mean_of_means(found.large, found.seed)]}
    rows = []
    for name, each in others.items():
        taus = [float(tau(own.value, other.value)) for other in each]
        low, high = percentiles(np.mean([tau(own.draws, other.draws) for other in each], axis=0))
        rows.append({"compared with": name, "tau": float(np.mean(taus)), "low": low, "high": high, "least": min(taus)})
    frame = pl.DataFrame(rows)
    note = f"Kendall's tau over {len(found.systems)} systems, mean over rebuilds [95% interval over queries]."
    return StudyTable("order", frame_table("Does the order of systems hold?", frame, [note, *found.few()], 2), frame)


def bias_table(found: Measured) -> StudyTable:
    """Return what each system gains when one system's negatives are left out."""
    gains = {
        name: {field: values - found.fields[OWN][field] for field, values in found.fields[f"without {name}"].items()}
        for name in found.chosen
    }
    rows = []
    for place, system in enumerate(found.systems):
        own = {name: {field: each[place] for field, each in gain.items()} for name, gain in gains.items()}
        others = [name for name in found.chosen if name != system]
        if len(others) < len(found.chosen):
            own[_OWN_COST] = {
                field: each - np.mean([own[name][field] for name in others], axis=0)
                for field, each in own[system].items()
            }
        for name, values in own.items():
            gain = mean_of_means({field: each[None] for field, each in values.items()}, found.seed)
            rows.append(Measurement(system, name, *gain.at(0)))
    notes = (
        "Points of MAP that a system gains without one system's negatives, mean over fields [95% interval].",
        f"{_OWN_COST}: what its own negatives cost a system more than those of the others do.",
    )
    return shown("bias", "Whose negatives are left out", rows, notes)


def power_table(found: Measured, baseline: str, differences: Sequence[float]) -> StudyTable:
    """Return how many queries a field needs so that a difference to the baseline is found.

    The formula is that of the paired test by normal approximation, with the mean variance of the fields.
    """
    normal = NormalDist()
    factor = (normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)) ** 2
    base = found.systems.index(baseline)
    rows = []
    for place, system in enumerate(found.systems):
        gaps = {field: values[place] - values[base] for field, values in found.fields[OWN].items()}
        drawn = [
            bootstrap_means(np.stack([each, each**2]), seed=found.seed, item=field) for field, each in gaps.items()
        ]
        variance = float(np.mean([each.var() for each in gaps.values()]))
        low, high = percentiles(np.mean([second - first**2 for first, second in drawn], axis=0))
        for difference in differences if system != baseline else ():
            needed = (factor * each / difference**2 for each in (variance, low, high))
            rows.append(Measurement(system, f"{100 * difference:g} points", *needed))
    notes = [f"Queries a field [95% interval]: power {POWER:.0%}, p < {ALPHA:g}, against {baseline}.", *found.few()]

    def show(row: Measurement) -> str:
        return f"{row.value:,.0f} [{row.low:,.0f}, {row.high:,.0f}]"

    return shown("power", "Queries that a difference of MAP needs", rows, notes, show)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the four tables."""
    found, sources = measured(workspace, recipe)
    tables = [
        redraw_table(found, recipe.rebuilds),
        order_table(found, recipe.rebuilds),
        bias_table(found),
        power_table(found, recipe.baseline, recipe.differences),
    ]
    return StudyResult(tables, sources=sources)


STUDY = Study(
    "mdcr_checks", "what the figures of the MDCR benchmark depend on", Recipe, batches, results, needs=study.NEEDS
)
