"""The study ``mdcr_checks``: how the figures of a benchmark depend on its candidates and number of queries."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.settings import required
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.design import Design, Draws, estimate
from pipeline.measure.estimates import POWER, detectable, queries_needed, tall, variance_interval
from pipeline.measure.statistics import Floats, Groups, simultaneous
from pipeline.scores.store import runs_of, values
from pipeline.scores.tables import DIFFERENCE, Cell, Form, Table, Value, cell, grid
from pipeline.stages.chain import Evaluation
from pipeline.stages.systems import parse_systems
from pipeline.stages.titles import stored_names
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.common import check_baseline, named_by, require_made
from pipeline.studies.mdcr import study
from pipeline.studies.mdcr.build import CandidateSampler, FieldRankings, SamplingConfig
from pipeline.studies.mdcr.evaluation import evaluations_of_lists, read_evaluation
from pipeline.studies.mdcr.lists import GRAPH, MOST_CITED, RANDOM, ListsConfig, write_lists_pool

OWN, MATCHED, LARGE = "0", "matched", "large"
"""The draw that is the benchmark itself, the draw with negatives of every system, and the field-level pools."""

ALPHA = 0.05

_OWN_COST = "own less others"


@dataclass(frozen=True, kw_only=True)
class Recipe(study.Recipe):
    """Settings of the benchmark and of the study (see ``mdcr_checks.toml``)."""

    rebuilds: int = required("further draws of the negatives")
    baseline: str = required("system that the number of queries is computed against")
    differences: tuple[float, ...] = required("differences of MAP, fractions, that a benchmark is to detect")


def draw_pool_task(
    corpus: Artifact, field: FieldRankings, drawing: SamplingConfig, number: int, systems: tuple[str, ...]
) -> Task:
    """Return the task of the pool with the lists of one draw of one field; positives are the same in all draws.

    ``number`` is the number of the draw of negatives; ``systems`` give top negatives.
    """
    all_types = (*systems, GRAPH, MOST_CITED, RANDOM)
    config = ListsConfig(
        **vars(field.pool.config),
        lists=digest([drawing, number, list(systems)]),
        longest=drawing.positives + len(all_types) * drawing.negatives,
    )
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": field.pool}
    inputs |= {name: field.rankings[name] for name in systems}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        sampler = CandidateSampler(pool, dataclasses.replace(drawing, redraw=number))
        draws = sampler.draw(pool, field.split, {name: sampler.top_negatives(inputs[name], pool) for name in systems})
        entries = [(position, name, rows) for position, by_type in enumerate(draws) for name, rows in by_type.items()]
        query = np.repeat([position for position, _, _ in entries], [len(rows) for _, _, rows in entries])
        types = [name for _, name, rows in entries for _ in rows]
        row = np.concatenate([rows for _, _, rows in entries])
        return write_lists_pool(out, field.field, pool.query_rows.astype(np.int64), query, row, types)

    return Task("pool", 1, POOLS, f"{field.pool.slug}-draw", config, inputs, run)


class Plan(NamedTuple):
    """The evaluations of each system, by field, on the large pools and on the lists of each draw.

    ``negative_systems`` are the systems whose top negatives are in the benchmark.
    """

    benchmark: Artifact
    negative_systems: tuple[str, ...]
    large: Sequence[Evaluation]
    lists: Mapping[str, Sequence[Evaluation]]


def plan(workspace: Workspace, recipe: Recipe) -> Plan:
    """Return the evaluations of the study; the benchmark must have been made."""
    fields, task = study.benchmark(workspace, recipe)
    benchmark = require_made(workspace, task)
    test_fields = [field for field in fields if field.split == "test"]
    negative_systems = tuple(benchmark.manifest.counts["model_negatives"])
    draws = {str(number): (number, negative_systems) for number in range(recipe.rebuilds + 1)}
    draws[MATCHED] = (0, task.config.systems)
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    lists = {}
    for name, draw in draws.items():
        pools = [draw_pool_task(corpus, field, recipe.sampling, *draw) for field in test_fields]
        lists[name] = evaluations_of_lists(workspace, corpus, pools, recipe.systems, "field")
    large = workspace.evaluations([field.pool for field in test_fields], recipe.systems, depth=recipe.depth, tunings=())
    return Plan(benchmark, negative_systems, large, lists)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks of the benchmark, then the scores on its large pools and the rankings of all draws."""
    check_baseline(recipe.baseline, recipe.systems)
    if recipe.rebuilds < 1:
        raise InputError(f"rebuilds must be at least 1, got {recipe.rebuilds}", "Write --set=rebuilds=20")
    yield from study.batches(workspace, recipe)
    study_plan = plan(workspace, recipe)
    yield [evaluation.scores[0] for evaluation in study_plan.large]
    yield [evaluation.ranking for evaluations in study_plan.lists.values() for evaluation in evaluations]


_MACRO = Design(row=("system",), item="item", group="group")


class Precisions(NamedTuple):
    """Average precision of every query.

    Attributes:
        systems: names of the systems, in order.
        negative_systems: systems whose top negatives are in the benchmark.
        values: float64 ``[systems, queries]`` by draw, negatives left out (``without bm25``) or :data:`LARGE`, and by
            field.
        seed: seed of the bootstrap; all figures share the resampled queries.
    """

    systems: tuple[str, ...]
    negative_systems: tuple[str, ...]
    values: Mapping[str, Groups]
    seed: int

    def macro(self, values: Groups) -> pl.DataFrame:
        """Return the means over fields of values of all systems, in their order."""
        return estimate(tall(values, pl.DataFrame({"system": self.systems})), _MACRO, self.seed)


def average_precisions(workspace: Workspace, recipe: Recipe, study_plan: Plan) -> Precisions:
    """Return the average precision of every query, system and draw."""
    all_types = {*study_plan.negative_systems, GRAPH, MOST_CITED, RANDOM}
    left_out = {f"without {name}": all_types - {name} for name in study_plan.negative_systems}
    rows: dict[str, dict[str, list[Floats]]] = {name: {} for name in (*study_plan.lists, *left_out, LARGE)}
    for draw, evaluations in study_plan.lists.items():
        for evaluation in evaluations:
            lists, ranking = read_evaluation(workspace, evaluation)
            for name, types in {draw: None, **(left_out if draw == OWN else {})}.items():
                rows[name].setdefault(lists.field, []).append(lists.values(ranking, ["map"], types)[0])
    scores = values(runs_of(workspace.runner, study_plan.large)).filter(measure="map")
    for (field, _), system_values in scores.group_by("field", "system", maintain_order=True):
        rows[LARGE].setdefault(str(field), []).append(system_values.sort("query")["value"].to_numpy())
    by_field = {
        name: {field: np.stack(field_rows) for field, field_rows in fields.items()} for name, fields in rows.items()
    }
    return Precisions(stored_names(recipe.systems), study_plan.negative_systems, by_field, recipe.seed)


def redraw_table(precisions: Precisions, rebuilds: int) -> Table:
    """Return the MAP of each system in the benchmark, over its rebuilds, with matched negatives and in large pools.

    Negatives are drawn query by query, so the variance between queries includes that of the draws.
    """
    draws = [str(draw) for draw in range(1, rebuilds + 1)]
    over_draws = {
        field: np.mean([precisions.values[draw][field] for draw in draws], axis=0) for field in precisions.values[OWN]
    }
    means = {
        "benchmark": precisions.macro(precisions.values[OWN]), "rebuilds": precisions.macro(over_draws),
        MATCHED: precisions.macro(precisions.values[MATCHED]), LARGE: precisions.macro(precisions.values[LARGE]),
    }  # fmt: skip
    rebuild_means = np.stack([precisions.macro(precisions.values[draw])["value"] for draw in draws], axis=1)
    cells = {}
    for position, system in enumerate(precisions.systems):
        deviations = {"rebuilds": float(rebuild_means[position].std(ddof=1)) if rebuilds > 1 else None}
        for name, mean in means.items():
            value, low, high = mean.select("value", "low", "high").row(position)
            cells[system, name] = Cell(value, low, high, deviations.get(name))
    notes = (
        "Percent: MAP, mean over fields [95% interval over queries and their negatives].",
        "benchmark: the benchmark's own lists, each draw ranked by itself; systems that are fitted (LSA, words) are "
        "fitted on its corpus, where mdcr eval fits them on its texts.",
        f"rebuilds: mean ± standard deviation over {rebuilds} other draws of the negatives. matched: negatives of "
        "every system. large: the field-level pools.",
    )
    return grid("redraws", "Systems under other candidates", "system", cells, notes)


def order_table(precisions: Precisions, rebuilds: int) -> Table:
    """Return the difference of each two systems in the benchmark and with other candidates.

    The first of a pair is better in the benchmark; the intervals of a column hold simultaneously.
    """
    names, in_benchmark = precisions.systems, precisions.macro(precisions.values[OWN])["value"]
    pairs = [
        (first, second) if in_benchmark[first] >= in_benchmark[second] else (second, first)
        for first, second in itertools.combinations(range(len(names)), 2)
    ]
    rebuild_means = [precisions.macro(precisions.values[str(draw)])["value"] for draw in range(1, rebuilds + 1)]
    labels, cells = [f"{names[first]} over {names[second]}" for first, second in pairs], dict[tuple[str, str], Value]()
    sides = pl.DataFrame({"pair": [*labels, *labels], "side": ["first"] * len(pairs) + ["second"] * len(pairs)})
    design, draws = dataclasses.replace(_MACRO, row=("pair", "side")), Draws(level=simultaneous(len(pairs)))
    against = {(label, "first"): (label, "second") for label in labels}
    members = [side for pair in zip(*pairs, strict=True) for side in pair]
    differences = {
        name: estimate(
            tall({field: of_field[members] for field, of_field in precisions.values[draw].items()}, sides),
            design, precisions.seed, against, draws,
        ).filter(side="first")
        for name, draw in (("benchmark", OWN), (MATCHED, MATCHED), (LARGE, LARGE))
    }  # fmt: skip
    for position, (label, (first, second)) in enumerate(zip(labels, pairs, strict=True)):
        for name, of_draw in differences.items():
            value, low, high = of_draw.select("difference", "difference_low", "difference_high").row(position)
            cells[label, name] = Cell(value, low, high, form=DIFFERENCE)
            if name == "benchmark":
                effect = of_draw["effect"][position]
                cells[label, "effect"] = None if effect is None else Cell(effect, form=Form(1, "+.2f"))
        share = float(np.mean([mean[first] > mean[second] for mean in rebuild_means]))
        cells[label, f"{rebuilds} rebuilds"] = Cell(share, form=Form(1, ".0%"))
    notes = (
        f"Points of MAP, mean over fields [intervals that hold for all {len(pairs)} pairs of a column with 95%, "
        "Bonferroni].",
        "effect: mean difference in the benchmark over the standard deviation of the differences. rebuilds: how many "
        "have this order.",
    )
    return grid("order", "Does the order of systems hold?", "system", cells, notes)


def own_cost(gains: Mapping[str, Mapping[str, Floats]], system: str, others: Sequence[str]) -> Floats | None:
    """Return the extra cost of a system's own negatives for itself, less the same cost for other systems.

    The extra cost of these negatives for any system is its gain without them, less its mean gain without neutral
    negatives, which neither of the two compared systems gave. None if there are no neutral negatives. ``gains`` are
    float64 ``[queries]``, by system and by the system whose negatives are left out.
    """
    excess = []
    for other in others:
        neutral = [name for name in gains[system] if name not in (system, other)]
        if neutral:
            system_excess, other_excess = (
                gains[name][system] - np.mean([gains[name][left_out] for left_out in neutral], axis=0)
                for name in (system, other)
            )
            excess.append(system_excess - other_excess)
    return np.mean(excess, axis=0) if excess else None


def bias_table(precisions: Precisions) -> Table:
    """Return the gain of each system when the negatives of one system are left out."""
    cells, sources = {}, precisions.negative_systems
    gains = {
        field: {
            system: {name: precisions.values[f"without {name}"][field][row] - in_benchmark[row] for name in sources}
            for row, system in enumerate(precisions.systems)
        }
        for field, in_benchmark in precisions.values[OWN].items()
    }
    unfused = [system.name for system in parse_systems(",".join(precisions.systems)) if len(system.leaves) == 1]
    for system in precisions.systems:
        changes = {name: {field: field_gains[system][name] for field, field_gains in gains.items()} for name in sources}
        if system in changes:
            others = [name for name in unfused if name != system]
            excess = {field: own_cost(field_gains, system, others) for field, field_gains in gains.items()}
            changes[_OWN_COST] = {field: values for field, values in excess.items() if values is not None}
        for name, change in changes.items():
            if change:
                gain = tall(
                    {field: values[None] for field, values in change.items()}, pl.DataFrame({"system": [system]})
                )
                figures = estimate(gain, _MACRO, precisions.seed).select("value", "low", "high").row(0)
                cells[system, name] = Cell(*figures)
    notes = (
        "Points of MAP that a system gains without one system's negatives, mean over fields [95% interval].",
        f"{_OWN_COST}: how much more its own negatives cost it than those of the others, less the same difference for "
        "the other systems, fusions excluded.",
    )
    return grid("bias", "Whose negatives are left out", "system", cells, notes)


def power_table(precisions: Precisions, baseline: str, differences: Sequence[float]) -> Table:
    """Return the queries that each field needs to detect a difference, and the difference that its queries detect.

    Differences are to the baseline. The test is the first step of Holm's correction over the fields.
    """
    baseline_position, cells, fields = precisions.systems.index(baseline), {}, precisions.values[OWN]
    first_alpha = ALPHA / len(fields)
    tests = {"one test": ALPHA, f"first of {len(fields)}": first_alpha}
    for position, system in enumerate(precisions.systems):
        for field, of_systems in fields.items() if position != baseline_position else ():
            label, queries = f"{system}, {field}", of_systems.shape[1]
            variances = variance_interval(of_systems[position] - of_systems[baseline_position])
            for name, alpha in tests.items():
                shown = (100 * detectable(variance, queries, alpha) for variance in variances)
                cells[label, f"points detected, {name}"] = cell(*shown, form=Form(1, ",.1f"))
            for difference in differences:
                needed = (queries_needed(variance, difference, first_alpha) for variance in variances)
                cells[label, f"{100 * difference:g} points"] = cell(*needed, form=Form(1, ",.0f"))
    notes = (
        f"Against {baseline}, power {POWER:.0%} [95% interval]. points detected: by the queries that the field has, "
        f"with p < {ALPHA:g} in one test, and in the first step of Holm's correction over {len(fields)} fields.",
        "Queries that the field needs to detect 1, 2, ... points in that first step. One number for all fields is that "
        "of the field with the largest.",
    )
    return grid("power", "Queries that a difference of MAP needs", "system", cells, notes)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the four tables."""
    study_plan = plan(workspace, recipe)
    precisions = average_precisions(workspace, recipe, study_plan)
    tables = [
        redraw_table(precisions, recipe.rebuilds),
        order_table(precisions, recipe.rebuilds),
        bias_table(precisions),
        power_table(precisions, named_by(recipe.baseline, precisions.systems), recipe.differences),
    ]
    return StudyResult(tables, sources=[study_plan.benchmark.name])


STUDY = Study(
    "mdcr_checks", "what the figures of the MDCR benchmark depend on", Recipe, batches, results, needs=study.NEEDS
)
