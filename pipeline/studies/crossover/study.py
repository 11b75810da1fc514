"""The study ``crossover``: from which number of candidates on does dense retrieval overtake sparse?

The design is crossed: every query has pools of every size, every kind of negatives and every sample of candidates. The
difference of two systems in MAP is modelled as a line over the logarithm of the size. Its intercept and slope vary
between queries and between samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact
from pipeline.core.config import format_count
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import split_names
from pipeline.measure.estimates import components, crossed_mean
from pipeline.measure.inputs import Qrels, query_of
from pipeline.measure.statistics import Floats
from pipeline.scores.choose import is_called
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.store import runs_of, values
from pipeline.scores.tables import Table, frame_table
from pipeline.stages.chain import Evaluation
from pipeline.stages.selection import Selection
from pipeline.stages.systems import TUNED
from pipeline.stages.tune import Tuning, tune_task
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.common import drawn, formatted, in_points, require_made, views_of
from pipeline.studies.crossover.negatives import KINDS, MODEL, RANDOM, kind_pool_task
from pipeline.studies.recipe import PoolsRecipe, pools_of


@dataclass(frozen=True, kw_only=True)
class Recipe(PoolsRecipe):
    """Settings of the study."""

    field: str
    year: int
    sizes: tuple[str, ...] = required("numbers of candidates, such as 2k; smaller pools are subsets of larger ones")
    kinds: tuple[str, ...] = required("kinds of negatives: random, graph, matched, model")
    samples: int
    sparse: str = required("what dense systems are compared with; bm25:tuned has the parameters of the largest pool")
    budgets: tuple[int, ...] = required("numbers of ranked lists (a query on one sample) to split")

    def __post_init__(self) -> None:
        for kind in self.kinds:
            require_known(kind, KINDS, f"a kind of negatives must be one of {', '.join(KINDS)}, got {kind!r}")
        if len(self.sizes) < 2 or not self.kinds:
            raise InputError(f"sizes must be two or more, got {', '.join(self.sizes)}", "Write --set=sizes=1k,2k,4k")

    @property
    def selection(self) -> Selection:
        """The nested pools of random negatives, by size and sample."""
        return selection(**{**pools_of(self), "nested": True})


def design(workspace: Workspace, recipe: Recipe) -> list[Task]:
    """Return the pools of the design: kind by kind, then size, then sample."""
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    pools = recipe.selection.pools(corpus)
    largest = max(pools, key=lambda pool: pool.config.size if isinstance(pool.config.size, int) else np.inf)
    nearest: dict[str, Task | Artifact] = {}
    if MODEL in recipe.kinds:
        (nearest_by,) = workspace.evaluations(largest, split_names(recipe.systems)[:1], depth=recipe.depth)
        nearest = {"ranking": nearest_by.ranking}
    return [
        pool if kind == RANDOM else kind_pool_task(corpus, pool, kind, nearest if kind == MODEL else {})
        for kind, pool in itertools.product(recipe.kinds, pools)
    ]


def _tuning(workspace: Workspace, recipe: Recipe) -> list[Task]:
    """Return the task that tunes the sparse system, if it is to be tuned."""
    if recipe.sparse != TUNED:
        return []
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    validation = recipe.selection.but(split="validation", samples=1, size=recipe.selection.given["size"][-1:])
    return [tune_task(corpus, pool) for pool in validation.pools(corpus)]


def _sparse(workspace: Workspace, recipe: Recipe) -> str:
    """Return the name of the sparse system, with its tuned parameters; InputError if it has not been tuned."""
    for task in _tuning(workspace, recipe):
        tuning = Tuning.of(require_made(workspace, task))
        return f"bm25:k1={tuning.k1:g},b={tuning.b:g}"
    return recipe.sparse


def _evaluations(workspace: Workspace, recipe: Recipe, sparse: str, pools: Sequence[Task]) -> list[Evaluation]:
    return workspace.evaluations(pools, [sparse, *split_names(recipe.systems)], depth=recipe.depth)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tuning of BM25, then the scores of all systems on all pools of the design."""
    if tuning := _tuning(workspace, recipe):
        yield tuning
    sparse = _sparse(workspace, recipe)
    evaluations = _evaluations(workspace, recipe, sparse, design(workspace, recipe))
    yield [score for evaluation in evaluations for score in evaluation.scores]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the crossover points, the difference at each size, and the variance due to queries and samples."""
    sparse = _sparse(workspace, recipe)
    pools = design(workspace, recipe)
    runs = runs_of(workspace.runner, _evaluations(workspace, recipe, sparse, pools))
    systems = [sparse if is_called(run, sparse) else run["system"] for run in runs.iter_rows(named=True)]
    runs = runs.with_columns(system=pl.Series(systems, dtype=pl.String))
    kind_of = {pool.name: getattr(pool.config, "negatives", RANDOM) for pool in pools}
    kind = pl.col("pool").replace_strict(kind_of, return_dtype=pl.String)
    asked = pl.col("pool").replace_strict(dict(runs.select("pool", "size_asked").iter_rows()))
    frame = values(runs).filter(measure="map").with_columns(kind=kind, asked=asked)
    short = frame.filter(pl.col("size") < pl.col("asked")).select("kind", "asked", "size").unique(maintain_order=True)
    pool = workspace.runner.make(pools[0])
    lines = list(fitted(frame, sparse, _gaps(Pool(pool, Corpus(find_corpus(workspace.root, recipe.corpus or None))))))
    sources = [runs["corpus"][0], *sorted(runs["pool"].unique())]
    chart = difference_chart(lines, sparse, ", ".join(sources))
    tables = [
        turn_table(lines, sparse, short),
        difference_table(lines, sparse),
        *budget_tables(frame, sparse, recipe.budgets),
    ]
    return StudyResult(tables, figures=drawn(views_of("difference", chart)), sources=sources, parts=[chart])


def _gaps(pool: Pool) -> Floats:
    """Return the share of the positives of each query that lack an abstract, float64 ``[queries]``."""
    qrels = Qrels.from_table(pool.qrels, pool)
    without_abstract = pool.corpus.attributes["abstract_chars"][qrels.rows] == 0
    return np.bincount(query_of(qrels.offsets), without_abstract, len(pool.query_rows)) / qrels.positives()


class Line(NamedTuple):
    """The difference between a dense system and the sparse one, as a line over the log of the number of candidates.

    Attributes:
        system: the dense system.
        kind: kind of negatives.
        queries: ``all``, ``few gaps`` or ``many gaps``.
        sizes: numbers of candidates, rising.
        values: differences, float64 ``[samples, queries, sizes]``.
        coefficients: intercept at the middle size and slope per doubling, float64 ``[samples, queries, 2]``.
    """

    system: str
    kind: str
    queries: str
    sizes: tuple[int, ...]
    values: Floats
    coefficients: Floats

    @property
    def middle(self) -> float:
        """Geometric mean of the sizes."""
        return float(np.exp(np.mean(np.log(self.sizes))))

    def at(self, size: float) -> tuple[float, float, float]:
        """Return the difference that the line gives at a size, with its interval over queries and samples."""
        return crossed_mean(self.coefficients @ np.array([1.0, np.log2(size / self.middle)]))

    def turn(self) -> tuple[float, float, float]:
        """Return the size at which the line is 0, and the range of sizes at which 0 is not rejected.

        Only the measured sizes are searched; ends beyond them are 0 or infinite. The size is NaN if it lies beyond
        them, or if the interval of the slope contains 0. All three are NaN if 0 is rejected everywhere.
        """
        sizes = np.geomspace(self.sizes[0], self.sizes[-1], 400)
        bounds = np.array([self.at(size) for size in sizes])
        not_rejected = np.flatnonzero((bounds[:, 1] <= 0) & (bounds[:, 2] >= 0))
        if not len(not_rejected):
            return np.nan, np.nan, np.nan
        level, slope = self.coefficients.mean(axis=(0, 1))
        _, falls, rises = crossed_mean(self.coefficients[..., 1])
        low = float(sizes[not_rejected[0]]) if not_rejected[0] else 0.0
        high = float(sizes[not_rejected[-1]]) if not_rejected[-1] < len(sizes) - 1 else np.inf
        turn = float(self.middle * 2 ** (-level / slope)) if falls > 0 or rises < 0 else np.nan
        return turn if self.sizes[0] <= turn <= self.sizes[-1] else np.nan, low, high


def fitted(frame: pl.DataFrame, sparse: str, gaps: Floats) -> Iterator[Line]:
    """Yield the lines of each dense system and kind of negatives: of all queries, of those with few and with many gaps.

    Args:
        frame: a value for each ``kind``, ``sample``, ``size``, ``system`` and ``query``; pools smaller than
            configured are left out.
        sparse: name of the sparse system.
        gaps: share of the positives of each query that lack an abstract, float64 ``[queries]``.
    """
    few = gaps <= np.median(gaps)
    subsets = {"all": np.ones(len(gaps), bool), "few gaps": few, "many gaps": ~few}
    for kind, system, sizes, differences in _differences(frame, sparse):
        if len(sizes) < 2:
            continue
        doublings = np.log2(sizes)
        design = np.stack([np.ones(len(sizes)), doublings - doublings.mean()])
        coefficients = differences @ np.linalg.pinv(design)
        for name, mask in subsets.items():
            if mask.sum() > 1:
                yield Line(system, kind, name, sizes, differences[:, mask], coefficients[:, mask])


def _differences(frame: pl.DataFrame, sparse: str) -> Iterator[tuple[str, str, tuple[int, ...], Floats]]:
    """Yield kind, dense system, sizes, and differences to the sparse system ``[samples, queries, sizes]``."""
    full_pools = frame.filter(pl.col("size") == pl.col("asked"))
    dense = [name for name in full_pools["system"].unique(maintain_order=True) if name != sparse]
    for kind, system in itertools.product(full_pools["kind"].unique(maintain_order=True), dense):
        pair_scores = full_pools.filter(pl.col("system").is_in([system, sparse]), kind=kind)
        keys = ["sample", "query", "size"]
        wide = pair_scores.pivot("system", index=keys, values="value").sort(keys)
        sizes = tuple(wide["size"].unique().sort().to_list())
        differences = (wide[system] - wide[sparse]).to_numpy()
        yield kind, system, sizes, differences.reshape(wide["sample"].n_unique(), wide["query"].n_unique(), len(sizes))


def turn_table(lines: Sequence[Line], sparse: str, short: pl.DataFrame) -> Table:
    """Return the size at which each line is 0, and its slope; ``short`` are pools smaller than configured."""
    names = ("slope", "slope_low", "slope_high", "turn", "turn_low", "turn_high")
    rows = [
        (line.system, line.kind, line.queries, line.values.shape[1], *crossed_mean(line.coefficients[..., 1]),
         *line.turn())
        for line in lines
    ]  # fmt: skip
    frame = pl.DataFrame(rows, ["system", "negatives", "queries", "count", *names], orient="row")
    turns = pl.struct("turn", "turn_low", "turn_high").map_elements(lambda turn: _turn_text(*turn.values()), pl.String)
    shown = frame.select(
        pl.format("{}, {}", "system", "negatives").alias("system, negatives"),
        pl.format("{} ({})", "queries", formatted("count", ",")).alias("queries"),
        in_points(*names[:3], digits=2), turns.alias("turns at"),
    )  # fmt: skip
    notes = [
        f"Slope: points of MAP over {sparse} a doubling of the candidates. Turns at: the number of candidates at which "
        "the line is 0, if the slope differs from 0 [sizes at which 0 is not rejected]. Brackets: 95% intervals.",
        "Below, above: beyond the measured sizes, to which the line is not followed.",
        "Gaps: positives without an abstract; few: a share of them up to the median query's.",
        *(
            f"Left out: {kind} negatives, {configured:,} candidates: only {size:,} exist."
            for kind, configured, size in short.rows()
        ),
    ]
    return frame_table("turns", "Where dense overtakes sparse", frame, notes, shown=shown)


def _turn_text(value: float, low: float, high: float) -> str:
    if np.isnan(low):
        return "not within these sizes"
    ends = "below" if low == 0 else format_count(round(low)), "above" if np.isinf(high) else format_count(round(high))
    return f"{'not shown' if np.isnan(value) else format_count(round(value))} [{ends[0]}, {ends[1]}]"


def difference_table(lines: Sequence[Line], sparse: str) -> Table:
    """Return the measured difference at each size and that of the line, of all queries."""
    rows = []
    for line in (line for line in lines if line.queries == "all"):
        for size, differences in zip(line.sizes, np.moveaxis(line.values, -1, 0), strict=True):
            figures = crossed_mean(differences)
            rows.append((f"{line.system}, {line.kind}", size, *figures, line.at(size)[0]))
    frame = pl.DataFrame(rows, ["system", "size", "difference", "low", "high", "line"], orient="row")
    shown = frame.select(
        pl.format("{}, {}", "system", "size").alias("system, negatives, size"),
        in_points(),
        pl.col("line") * 100,
    )
    notes = [f"Points of MAP over {sparse}; brackets: 95% intervals over queries and samples of candidates."]
    return frame_table("differences", "Differences by number of candidates", frame, notes, shown=shown)


def difference_chart(lines: Sequence[Line], sparse: str, source: str) -> Chart:
    """Return the differences with their lines, a view for each kind of negatives."""
    views: dict[str, list[Series]] = {}
    for line in (line for line in lines if line.queries == "all"):
        at_sizes = np.moveaxis(line.values, -1, 0)
        mean, low, high = zip(*map(crossed_mean, at_sizes), strict=True)
        curve = [(float(size), line.at(size)[0]) for size in np.geomspace(line.sizes[0], line.sizes[-1], 20)]
        views.setdefault(line.kind, []).append(Series(line.system, line.sizes, mean, low, high, curve))
    ticks = {float(size): format_count(size) for line in lines for size in line.sizes}
    title = f"Difference to {sparse} in MAP"
    return Chart(title, "candidates", "points of MAP", views, log=True, ticks=ticks, provenance=source)


def budget_tables(frame: pl.DataFrame, sparse: str, budgets: Sequence[int]) -> Iterator[Table]:
    """Yield the best split of a number of ranked lists into queries and samples, at the largest size of each kind."""
    rows = []
    for kind, system, _, differences in _differences(frame, sparse):
        if len(differences) < 2:
            return
        variance = components(np.ascontiguousarray(differences[..., -1]))
        for budget in budgets:
            errors = {
                samples: variance.queries / (budget // samples) + variance.samples / samples + variance.rest / budget
                for samples in range(1, min(budget, 20) + 1)
            }
            samples = min(errors, key=lambda count: errors[count])
            rows.append((f"{system}, {kind}", budget, budget // samples, samples, 100 * errors[samples] ** 0.5,
                         100 * errors[1] ** 0.5))  # fmt: skip
    names = ["system, negatives", "lists", "queries", "samples", "standard error", "with one sample"]
    table = pl.DataFrame(rows, names, orient="row")
    notes = [
        f"Standard error of the mean difference to {sparse}, points of MAP, by the estimated variance components of "
        "queries, samples and their interaction at the largest size; components below 0 count as 0.",
        "Queries and samples: the split of the lists with the smallest error, of up to 20 samples. Not tested.",
    ]
    yield frame_table("budgets", "How to spend ranked lists", table, notes, 2)


STUDY = Study(
    "crossover", "from which number of candidates on dense retrieval overtakes sparse", Recipe, batches, results
)
