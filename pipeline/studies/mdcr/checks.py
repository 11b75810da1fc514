"""The study ``mdcr_checks``: what a benchmark's figures depend on, beyond the paper."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.statistics import (
    PERCENTILE_QUERIES,
    Floats,
    Groups,
    Means,
    bootstrap_means,
    mean_of_means,
    percentiles,
)
from pipeline.scores.store import runs_of, values
from pipeline.scores.tables import Cell, Value, frame_table, grid
from pipeline.stages.chain import Evaluation
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, made
from pipeline.studies.mdcr import study
from pipeline.studies.mdcr.build import FieldRankings
from pipeline.studies.mdcr.candidates import GRAPH, MOST_CITED, RANDOM, CandidateSampler, SamplingConfig
from pipeline.studies.mdcr.evaluation import evaluations_of_lists, opened
from pipeline.studies.mdcr.layout import TRUE
from pipeline.studies.mdcr.lists import ListsConfig, write_lists_pool
from pipeline.studies.tables import Measurement

OWN, MATCHED, LARGE = "0", "matched", "large"
"""The draw that is the benchmark itself, the draw with negatives of every system, and the field-level pools."""

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


class Draw(NamedTuple):
    """One draw of the negatives, with its number; its types are ``NAME/TYPE``, and ``systems`` give top negatives."""

    name: str
    redraw: int
    systems: tuple[str, ...]

    def types(self, without: str = "") -> frozenset[str]:
        """Return its types, without one."""
        types = {*self.systems, GRAPH, MOST_CITED, RANDOM} - {without}
        return frozenset(f"{self.name}/{name}" for name in types)


def draws_pool_task(corpus: Artifact, part: FieldRankings, drawing: SamplingConfig, draws: Sequence[Draw]) -> Task:
    """Return the task of the pool with all draws of one field, so that each system ranks all draws at once.

    Positives are the same in all.
    """
    settings = {field.name: getattr(part.pool.config, field.name) for field in dataclasses.fields(part.pool.config)}
    config = ListsConfig(
        **settings,
        lists=digest([drawing, [list(draw) for draw in draws], list(part.rankings)]),
        longest=drawing.positives + sum(len(draw.types()) for draw in draws) * drawing.negatives,
    )
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": part.pool, **part.rankings}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        sampler = CandidateSampler(pool, drawing)
        tops = {name: sampler.top_negatives(inputs[name], pool) for name in part.rankings}
        popular = sampler.most_cited(part.field)
        query, row, types = [], [], []
        for draw in draws:
            of_draw = {name: tops[name] for name in draw.systems}
            for number, by_type in enumerate(sampler.draw(pool, part.split, of_draw, popular, draw.redraw)):
                for name, rows in by_type.items():
                    if name != TRUE or draw is draws[0]:
                        query.append(np.full(len(rows), number))
                        row.append(rows)
                        types += [name if name == TRUE else f"{draw.name}/{name}"] * len(rows)
        query_rows = pool.query_rows.astype(np.int64)
        return write_lists_pool(out, part.field, query_rows, np.concatenate(query), np.concatenate(row), types)

    return Task("pool", 1, POOLS, f"{part.pool.slug}-draws", config, inputs, run)


class Plan(NamedTuple):
    """What is evaluated: each system on the large pools and on the lists of all draws, of each field."""

    benchmark: Artifact
    draws: Sequence[Draw]
    large: Sequence[Evaluation]
    lists: Sequence[Evaluation]


def plan(workspace: Workspace, recipe: Recipe) -> Plan:
    """Return what is evaluated; the benchmark must have been made."""
    parts, task = study.benchmark(workspace, recipe)
    benchmark = made(workspace, task)
    tested = [part for part in parts if part.split == "test"]
    chosen = tuple(benchmark.manifest.counts["model_negatives"])
    draws = [Draw(str(number), number, chosen) for number in range(recipe.rebuilds + 1)]
    draws.append(Draw(MATCHED, 0, task.config.systems))
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    pools = [draws_pool_task(corpus, part, recipe.sampling, draws) for part in tested]
    large = workspace.evaluations([part.pool for part in tested], recipe.systems, depth=recipe.depth)
    lists = evaluations_of_lists(workspace, corpus, pools, recipe.systems, "field")
    return Plan(benchmark, draws, large, lists)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks of the benchmark, then its large pools' scores and the rankings of all draws."""
    check_baseline(recipe.baseline, recipe.systems)
    if recipe.rebuilds < 1:
        raise InputError(f"rebuilds must be at least 1, got {recipe.rebuilds}", "Write --set=rebuilds=20")
    yield from study.batches(workspace, recipe)
    planned = plan(workspace, recipe)
    yield [evaluation.scores[0] for evaluation in planned.large]
    yield [evaluation.ranking for evaluation in planned.lists]


@dataclass(frozen=True)
class Precisions:
    """Average precision of every query.

    Attributes:
        systems: in order.
        chosen: those that the benchmark draws negatives from.
        values: by draw, draw and the type that is left out (``without bm25``), or :data:`LARGE`, and field: float64
            ``[systems, queries]``.
        seed: of the bootstrap; all figures share the queries that are drawn.
    """

    systems: tuple[str, ...]
    chosen: tuple[str, ...]
    values: Mapping[str, Groups]
    seed: int

    def few(self) -> list[str]:
        """Return a note where queries are too few for the percentile intervals of statistics that are not means."""
        queries = sum(of_field.shape[1] for of_field in self.values[OWN].values())
        note = f"Percentile intervals of {queries} queries, which are too short."
        return [note] if queries < PERCENTILE_QUERIES else []

    def macro(self, draw: str) -> Means:
        """Return the means over fields of one draw."""
        return mean_of_means(self.values[draw], self.seed)


def average_precisions(workspace: Workspace, recipe: Recipe, planned: Plan) -> Precisions:
    """Return what the tables are made of."""
    benchmark = planned.draws[0]
    choices = {draw.name: draw.types() for draw in planned.draws}
    choices |= {f"without {name}": benchmark.types(without=name) for name in benchmark.systems}
    rows: dict[str, dict[str, list[Floats]]] = {name: {} for name in (*choices, LARGE)}
    for evaluation in planned.lists:
        lists, ranking = opened(workspace, evaluation)
        for name, types in choices.items():
            rows[name].setdefault(lists.field, []).append(lists.values(ranking, ["map"], types)[0])
    scores = values(runs_of(workspace.runner, planned.large)).filter(measure="map")
    for (field, _), of_system in scores.group_by("field", "system", maintain_order=True):
        rows[LARGE].setdefault(str(field), []).append(of_system.sort("query")["value"].to_numpy())
    by_field = {
        name: {field: np.stack(of_field) for field, of_field in fields.items()} for name, fields in rows.items()
    }
    return Precisions(planned.draws[-1].systems, benchmark.systems, by_field, recipe.seed)


def tau(first: Floats, second: Floats) -> Floats:
    """Return Kendall's tau of two orders of ``[systems, ...]``; a pair that is tied in one of them counts 0."""
    pairs = itertools.combinations(range(len(first)), 2)
    taus: Floats = np.mean([np.sign(first[a] - first[b]) * np.sign(second[a] - second[b]) for a, b in pairs], axis=0)
    return taus


def _figure(row: Measurement) -> Value:
    return Cell(row.value, row.deviation, row.low, row.high, best=False, marked=False)


def systems_table(
    name: str,
    title: str,
    rows: Sequence[Measurement],
    notes: Sequence[str],
    show: Callable[[Measurement], Value] = _figure,
) -> StudyTable:
    """Return a table of systems by columns; ``show`` says how a figure is shown."""
    frame = pl.DataFrame(rows, schema=["system", *Measurement._fields[1:]], orient="row", infer_schema_length=None)
    return StudyTable(name, grid(title, "system", {row[:2]: show(row) for row in rows}, notes), frame)


def redraw_table(precisions: Precisions, rebuilds: int) -> StudyTable:
    """Return each system's figure in the benchmark, over its rebuilds, with matched negatives and in large pools."""
    means = {"benchmark": precisions.macro(OWN), MATCHED: precisions.macro(MATCHED), LARGE: precisions.macro(LARGE)}
    again = np.stack([precisions.macro(str(number)).value for number in range(1, rebuilds + 1)], axis=1)
    rows = []
    for place, (system, means_of_draws) in enumerate(zip(precisions.systems, again, strict=True)):
        rows += [Measurement(system, name, *mean.at(place)) for name, mean in means.items()]
        mean, least, most = (float(getattr(means_of_draws, name)()) for name in ("mean", "min", "max"))
        deviation = float(means_of_draws.std(ddof=1)) if rebuilds > 1 else None
        rows.append(Measurement(system, "rebuilds", mean, least, most, deviation))
    notes = (
        "Percent: MAP, mean over fields [95% interval over queries].",
        "matched: negatives of every system. large: the field-level pools.",
        f"rebuilds: mean ± standard deviation over {rebuilds} other draws of the negatives [least, most].",
    )
    return systems_table("redraws", "Systems under other candidates", rows, notes)


def order_table(precisions: Precisions, rebuilds: int) -> StudyTable:
    """Return Kendall's tau between the order of systems in the benchmark and in other candidates."""
    benchmark, numbers = precisions.macro(OWN), [str(number) for number in range(1, rebuilds + 1)]
    rows = []
    for name, draws in ((f"{rebuilds} rebuilds", numbers), (MATCHED, [MATCHED]), ("large pools", [LARGE])):
        others = [precisions.macro(draw) for draw in draws]
        taus = [float(tau(benchmark.value, other.value)) for other in others]
        low, high = percentiles(np.mean([tau(benchmark.draws, other.draws) for other in others], axis=0))
        rows.append({"compared with": name, "tau": float(np.mean(taus)), "low": low, "high": high, "least": min(taus)})
    frame = pl.DataFrame(rows)
    note = f"Kendall's tau over {len(precisions.systems)} systems, mean over rebuilds [95% interval over queries]."
    return StudyTable(
        "order", frame_table("Does the order of systems hold?", frame, [note, *precisions.few()], 2), frame
    )


def bias_table(precisions: Precisions) -> StudyTable:
    """Return what each system gains when one system's negatives are left out."""
    benchmark, rows = precisions.values[OWN], []
    gains = {
        name: {field: values - benchmark[field] for field, values in precisions.values[f"without {name}"].items()}
        for name in precisions.chosen
    }
    for place, system in enumerate(precisions.systems):
        changes = {name: {field: values[[place]] for field, values in gain.items()} for name, gain in gains.items()}
        others = [name for name in precisions.chosen if name != system]
        if system in changes:
            changes[_OWN_COST] = {
                field: gain - np.mean([changes[name][field] for name in others], axis=0)
                for field, gain in changes[system].items()
            }
        rows += [
            Measurement(system, name, *mean_of_means(change, precisions.seed).at(0)) for name, change in changes.items()
        ]
    notes = (
        "Points of MAP that a system gains without one system's negatives, mean over fields [95% interval].",
        f"{_OWN_COST}: what its own negatives cost a system more than those of the others do.",
    )
    return systems_table("bias", "Whose negatives are left out", rows, notes)


def power_table(precisions: Precisions, baseline: str, differences: Sequence[float]) -> StudyTable:
    """Return how many queries a field needs so that a difference to the baseline is precisions.

    The formula is that of the paired test by normal approximation, with the mean variance of the fields.
    """
    normal, base, rows = NormalDist(), precisions.systems.index(baseline), []
    factor = (normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)) ** 2
    for place, system in enumerate(precisions.systems):
        if place == base:
            continue
        changes = {field: values[place] - values[base] for field, values in precisions.values[OWN].items()}
        moments = [
            bootstrap_means(np.stack([change, change**2]), seed=precisions.seed, item=field)
            for field, change in changes.items()
        ]
        variance = float(np.mean([change.var() for change in changes.values()]))
        low, high = percentiles(np.mean([second - first**2 for first, second in moments], axis=0))
        for difference in differences:
            needed = (factor * spread / difference**2 for spread in (variance, low, high))
            rows.append(Measurement(system, f"{100 * difference:g} points", *needed))
    notes = [
        f"Queries a field [95% interval]: power {POWER:.0%}, p < {ALPHA:g}, against {baseline}.",
        *precisions.few(),
    ]

    def show(row: Measurement) -> str:
        return f"{row.value:,.0f} [{row.low:,.0f}, {row.high:,.0f}]"

    return systems_table("power", "Queries that a difference of MAP needs", rows, notes, show)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the four tables."""
    planned = plan(workspace, recipe)
    precisions = average_precisions(workspace, recipe, planned)
    tables = [
        redraw_table(precisions, recipe.rebuilds),
        order_table(precisions, recipe.rebuilds),
        bias_table(precisions),
        power_table(precisions, recipe.baseline, recipe.differences),
    ]
    return StudyResult(tables, sources=[planned.benchmark.name])


STUDY = Study(
    "mdcr_checks", "what the figures of the MDCR benchmark depend on", Recipe, batches, results, needs=study.NEEDS
)
