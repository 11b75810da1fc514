"""The study ``mdcr_checks``: how the figures of a benchmark depend on its candidates and number of queries."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from pipeline.measure.estimates import POWER, detectable, queries_needed, variance_interval
from pipeline.measure.statistics import Floats, simultaneous
from pipeline.scores.store import runs_of, values
from pipeline.scores.tables import DIFFERENCE, Cell, Form, Table, Value, cell, grid
from pipeline.stages.chain import Evaluation
from pipeline.stages.systems import parse_systems
from pipeline.stages.titles import stored_names
from pipeline.studies.base import StudyResult, old_study
from pipeline.studies.common import cells_of, check_baseline, named_by, require_made
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


Plan = tuple[Artifact, Sequence[Evaluation], Mapping[str, Sequence[Evaluation]]]
"""The benchmark, and the evaluations of each system by field: on the large pools, and on the lists of each draw."""


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
    return benchmark, large, lists


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks of the benchmark, then the scores on its large pools and the rankings of all draws."""
    check_baseline(recipe.baseline, recipe.systems)
    if recipe.rebuilds < 1:
        raise InputError(f"rebuilds must be at least 1, got {recipe.rebuilds}", "Write --set=rebuilds=20")
    yield from study.batches(workspace, recipe)
    _, large, lists = plan(workspace, recipe)
    yield [evaluation.scores[0] for evaluation in large]
    yield [evaluation.ranking for evaluations in lists.values() for evaluation in evaluations]


_OF_DRAW = Design(row=("system",), of=("draw",), item="query", group="field")
_SHOWN = {OWN: "benchmark", MATCHED: MATCHED, LARGE: LARGE}


def average_precisions(workspace: Workspace, recipe: Recipe, planned: Plan) -> pl.DataFrame:
    """Return the average precision of every query: ``draw``, ``system``, ``field``, ``query``, ``value``.

    The draws are those of the plan, the field-level pools (:data:`LARGE`), and the benchmark without the negatives of
    one system (``without bm25``).
    """
    benchmark, large_evaluations, evaluations_of = planned
    names, left_out = stored_names(recipe.systems), benchmark.manifest.counts["model_negatives"]
    all_types, frames = {*left_out, GRAPH, MOST_CITED, RANDOM}, list[pl.DataFrame]()
    without = {f"without {name}": all_types - {name} for name in left_out}
    for draw, evaluations in evaluations_of.items():
        for system, evaluation in zip(itertools.cycle(names), evaluations, strict=False):
            lists, ranking = read_evaluation(workspace, evaluation)
            for name, types in {draw: None, **(without if draw == OWN else {})}.items():
                (precision,) = lists.values(ranking, ["map"], types)
                facts = {"draw": pl.lit(name), "system": pl.lit(system), "field": pl.lit(lists.field)}
                frames.append(pl.DataFrame({"value": precision}).with_row_index("query").with_columns(**facts))
    scores = values(runs_of(workspace.runner, large_evaluations)).filter(measure="map")
    named = dict(zip(scores["system"].unique(maintain_order=True), names, strict=True))
    large = scores.with_columns(pl.col("system").replace_strict(named), draw=pl.lit(LARGE))
    columns = "draw", "system", "field", pl.col("query").cast(pl.Int64), "value"
    return pl.concat(frame.select(columns) for frame in (*frames, large))


def redraw_table(precisions: pl.DataFrame, recipe: Recipe) -> Table:
    """Return the MAP of each system in the benchmark, over its rebuilds, with matched negatives and in large pools.

    Negatives are drawn query by query, so the variance between queries includes that of the draws.
    """
    over_draws = dataclasses.replace(_OF_DRAW, of=(), over="draw")
    rebuilt, means = _rebuilds(precisions, recipe), _rebuild_means(precisions, recipe)
    deviation = pl.Series(means.std(axis=1, ddof=1) if recipe.rebuilds > 1 else [None] * len(means))
    shown = pl.concat(
        [
            estimate(precisions.filter(pl.col("draw").is_in(list(_SHOWN))), _OF_DRAW, recipe.seed),
            estimate(rebuilt, over_draws, recipe.seed).with_columns(draw=pl.lit("rebuilds"), deviation=deviation),
        ],
        how="diagonal",
    )
    systems, draws = pl.Enum(shown["system"].unique(maintain_order=True)), pl.Enum([OWN, "rebuilds", MATCHED, LARGE])
    shown = shown.sort(pl.col("system").cast(systems), pl.col("draw").cast(draws))
    notes = (
        "Percent: MAP, mean over fields [95% interval over queries and their negatives].",
        "benchmark: the benchmark's own lists, each draw ranked by itself; systems that are fitted (LSA, words) are "
        "fitted on its corpus, where mdcr eval fits them on its texts.",
        f"rebuilds: mean ± standard deviation over {recipe.rebuilds} other draws of the negatives. matched: negatives "
        "of every system. large: the field-level pools.",
    )
    cells = cells_of(shown, "system", pl.col("draw").replace(_SHOWN))
    return grid("redraws", "Systems under other candidates", "system", cells, notes)


def _rebuilds(precisions: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the values of the further draws."""
    return precisions.filter(pl.col("draw").is_in([str(draw) for draw in range(1, recipe.rebuilds + 1)]))


def _rebuild_means(precisions: pl.DataFrame, recipe: Recipe) -> Floats:
    """Return the mean of each system over fields in each further draw, float64 ``[systems, draws]``."""
    means = estimate(_rebuilds(precisions, recipe), _OF_DRAW, recipe.seed)
    return np.ascontiguousarray(means.pivot("draw", index="system", values="value").drop("system").to_numpy())


def order_table(precisions: pl.DataFrame, recipe: Recipe) -> Table:
    """Return the difference of each two systems in the benchmark and with other candidates.

    The first of a pair is better in the benchmark; the intervals of a column hold simultaneously.
    """
    shown = precisions.filter(pl.col("draw").is_in(list(_SHOWN)))
    in_benchmark = estimate(shown.filter(draw=OWN), _OF_DRAW, recipe.seed)["value"]
    names, rebuilt = shown["system"].unique(maintain_order=True), _rebuild_means(precisions, recipe)
    pairs = {
        f"{names[first]} over {names[second]}": (first, second)
        for pair in itertools.combinations(range(len(names)), 2)
        for first, second in [sorted(pair, key=lambda place: -in_benchmark[place])]
    }
    rows = [
        (label, side, names[place]) for side in (0, 1) for label, places in pairs.items() for place in [places[side]]
    ]
    sides = pl.DataFrame(rows, ["pair", "side", "system"], orient="row").join(
        shown, on="system", maintain_order="left_right"
    )
    design, draws = dataclasses.replace(_OF_DRAW, row=("pair", "side")), Draws(level=simultaneous(len(pairs)))
    found = estimate(sides, design, recipe.seed, {(label, 0): (label, 1) for label in pairs}, draws).filter(side=0)
    of_pair = {(row["pair"], row["draw"]): row for row in found.iter_rows(named=True)}
    cells = dict[tuple[str, str], Value]()
    for label, (first, second) in pairs.items():
        for draw, name in _SHOWN.items():
            row = of_pair[label, draw]
            ends = (row[f"difference{end}"] for end in ("", "_low", "_high"))
            cells[label, name] = cell(*ends, form=DIFFERENCE)
            if draw == OWN:
                cells[label, "effect"] = cell(row["effect"], form=Form(1, "+.2f"))
        share = float(np.mean(rebuilt[first] > rebuilt[second]))
        cells[label, f"{recipe.rebuilds} rebuilds"] = Cell(share, form=Form(1, ".0%"))
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


def bias_table(precisions: pl.DataFrame, recipe: Recipe) -> Table:
    """Return the gain of each system when the negatives of one system are left out."""
    without = precisions.filter(pl.col("draw").str.starts_with("without ") | (pl.col("draw") == OWN))
    wide = without.pivot("draw", index=["system", "field", "query"], values="value")
    sources = [name.removeprefix("without ") for name in wide.columns[4:]]
    by_system = {
        str(name): of for (name,), of in wide.partition_by("system", as_dict=True, maintain_order=True).items()
    }
    gains = {
        system: {name: (of[f"without {name}"] - of[OWN]).to_numpy() for name in sources}
        for system, of in by_system.items()
    }
    unfused = [system.name for system in parse_systems(",".join(gains)) if len(system.leaves) == 1]
    frames = []
    for system, of in by_system.items():
        own = own_cost(gains, system, [name for name in unfused if name != system]) if system in sources else None
        changes = gains[system] | ({} if own is None else {_OWN_COST: own})
        facts = of.select("system", "field", "query")
        frames += [facts.with_columns(name=pl.lit(name), value=change) for name, change in changes.items()]
    design = dataclasses.replace(_OF_DRAW, row=("system", "name"), of=())
    cells = cells_of(estimate(pl.concat(frames), design, recipe.seed), "system", "name")
    notes = (
        "Points of MAP that a system gains without one system's negatives, mean over fields [95% interval].",
        f"{_OWN_COST}: how much more its own negatives cost it than those of the others, less the same difference for "
        "the other systems, fusions excluded.",
    )
    return grid("bias", "Whose negatives are left out", "system", cells, notes)


def power_table(precisions: pl.DataFrame, recipe: Recipe) -> Table:
    """Return the queries that each field needs to detect a difference, and the difference that its queries detect.

    Differences are to the baseline. The test is the first step of Holm's correction over the fields.
    """
    wide = precisions.filter(draw=OWN).pivot("system", index=["field", "query"], values="value")
    fields, systems, cells = wide.partition_by("field", maintain_order=True), wide.columns[2:], {}
    baseline, first_alpha = named_by(recipe.baseline, systems), ALPHA / len(fields)
    tests = {"one test": ALPHA, f"first of {len(fields)}": first_alpha}
    for system, of_field in itertools.product(systems, fields):
        if system != baseline:
            label = f"{system}, {of_field['field'][0]}"
            variances = variance_interval((of_field[system] - of_field[baseline]).to_numpy())
            for name, alpha in tests.items():
                shown = (100 * detectable(variance, len(of_field), alpha) for variance in variances)
                cells[label, f"points detected, {name}"] = cell(*shown, form=Form(1, ",.1f"))
            for difference in recipe.differences:
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
    planned = plan(workspace, recipe)
    precisions = average_precisions(workspace, recipe, planned)
    tables = [table(precisions, recipe) for table in (redraw_table, order_table, bias_table, power_table)]
    return StudyResult(tables, sources=[planned[0].name])


STUDY = old_study(
    "mdcr_checks", "what the figures of the MDCR benchmark depend on", Recipe, batches, results, needs=study.NEEDS
)
