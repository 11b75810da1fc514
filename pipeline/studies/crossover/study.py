"""The study ``crossover``: from which number of candidates on does dense retrieval overtake sparse?

The design is crossed: every query meets every number of candidates, every kind of negatives and every sample of them.
The difference of two systems in MAP is a line over the logarithm of the number of candidates, whose two coefficients
vary between queries and between samples of candidates.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact
from pipeline.core.config import format_count
from pipeline.core.errors import InputError, nearest
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.estimates import components, crossed_mean
from pipeline.measure.inputs import Qrels, query_of
from pipeline.measure.statistics import Floats
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.store import runs_of, values
from pipeline.scores.tables import frame_table
from pipeline.stages.chain import Evaluation
from pipeline.stages.selection import Selection
from pipeline.stages.systems import TUNED
from pipeline.stages.tune import Tuning, tune_task
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import drawn, made
from pipeline.studies.crossover.negatives import KINDS, MODEL, RANDOM, kind_pool_task
from pipeline.studies.recipe import NO_RULES, Rules, pools_of

_BEYOND = 4
"""Times the measured range that a line is followed to look for its zero."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        field: one of the 19 fields; empty: dataset-level pools.
        year: publication year of the queries.
        sizes: numbers of candidates, such as ``2k``; smaller pools are subsets of larger ones.
        kinds: of negatives, among :data:`KINDS`.
        queries: number of queries, or ``all``.
        samples: samples of the candidates of each kind.
        seed: of every draw.
        sparse: the system that dense ones are compared with; ``bm25:tuned`` has the parameters of the largest pool.
        systems: dense systems, with commas.
        depth: ranks kept of each query.
        budgets: numbers of lists (a query on one sample) that may be ranked, for the generalisability study.
        rules: further settings of pools that the recipe gives.
    """

    corpus: str
    field: str
    year: int
    sizes: tuple[str, ...]
    kinds: tuple[str, ...]
    queries: str
    samples: int
    seed: int
    sparse: str
    systems: str
    depth: int
    budgets: tuple[int, ...]
    rules: Rules = NO_RULES

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise InputError(
                    f"a kind of negatives must be one of {', '.join(KINDS)}, got {kind!r}", nearest(kind, KINDS)
                )
        if len(self.sizes) < 2 or not self.kinds:
            raise InputError(f"sizes must be two or more, got {', '.join(self.sizes)}", "Write --set=sizes=1k,2k,4k")

    @property
    def selection(self) -> Selection:
        """The pools of random negatives."""
        return selection(**{**pools_of(self), "nested": True})


class Cell(NamedTuple):
    """One pool of the design."""

    kind: str
    sample: int
    pool: Task


def cells(workspace: Workspace, recipe: Recipe) -> list[Cell]:
    """Return the pools of the design: kind by kind, then size, then sample."""
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    pools = recipe.selection.pools(corpus)
    largest = max(pools, key=lambda pool: pool.config.size if isinstance(pool.config.size, int) else np.inf)
    designed = []
    for kind in recipe.kinds:
        for pool in pools:
            inputs: dict[str, Task | Artifact] = {}
            if kind == MODEL:
                (nearest_by,) = workspace.evaluations(largest, recipe.systems.split(",")[:1], depth=recipe.depth)
                inputs = {"ranking": nearest_by.ranking}
            task = pool if kind == RANDOM else kind_pool_task(corpus, pool, kind, inputs)
            designed.append(Cell(kind, pool.config.sample, task))
    return designed


def _tuning(workspace: Workspace, recipe: Recipe) -> Task:
    """Return the task that tunes BM25 on validation queries of the largest pool."""
    corpus = find_corpus(workspace.root, recipe.corpus or None)
    validation = recipe.selection.but(split="validation", samples=1, size=recipe.selection.given["size"][-1:])
    (pool,) = validation.pools(corpus)
    return tune_task(corpus, pool)


def _sparse(workspace: Workspace, recipe: Recipe) -> str:
    """Return the sparse system with its parameters; InputError if they are not tuned yet."""
    if recipe.sparse != TUNED:
        return recipe.sparse
    tuning = Tuning.of(made(workspace, _tuning(workspace, recipe)))
    return f"bm25:k1={tuning.k1:g},b={tuning.b:g}"


def _evaluations(workspace: Workspace, recipe: Recipe, sparse: str) -> list[tuple[Cell, Evaluation]]:
    names = [sparse, *recipe.systems.split(",")]
    return [
        (cell, evaluation)
        for cell in cells(workspace, recipe)
        for evaluation in workspace.evaluations(cell.pool, names, depth=recipe.depth)
    ]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tuning of BM25, then the scores of all systems on all pools of the design."""
    if recipe.sparse == TUNED:
        yield [_tuning(workspace, recipe)]
    sparse = _sparse(workspace, recipe)
    yield [score for _, evaluation in _evaluations(workspace, recipe, sparse) for score in evaluation.scores]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return where the order turns, the difference at each size, and what queries and samples contribute."""
    sparse = _sparse(workspace, recipe)
    designed = _evaluations(workspace, recipe, sparse)
    runs = runs_of(workspace.runner, [evaluation for _, evaluation in designed])
    frame = values(runs).filter(measure="map").with_columns(
        kind=pl.col("pool_settings").map_elements(lambda text: json.loads(text).get("negatives", RANDOM), pl.String),
        asked=pl.col("pool_settings").map_elements(lambda text: int(json.loads(text)["size"]), pl.Int64),
    )  # fmt: skip
    first = workspace.runner.make(designed[0][0].pool)
    gaps = _gaps(Pool(first, Corpus(find_corpus(workspace.root, recipe.corpus or None))))
    lines = list(fitted(frame, sparse, gaps))
    short = frame.filter(pl.col("size") < pl.col("asked")).select("kind", "asked", "size").unique(maintain_order=True)
    sources = [runs["corpus"][0], *sorted(runs["pool"].unique())]
    chart = difference_chart(lines, sparse, ", ".join(sources))
    tables = [
        turn_table(lines, sparse, short),
        difference_table(lines, sparse),
        *budget_tables(frame, sparse, recipe.budgets),
    ]
    figures = drawn((f"difference-{view}".replace(" ", "-"), chart, view) for view in chart.views)
    return StudyResult(tables, figures=figures, sources=sources, parts=[chart])


def _gaps(pool: Pool) -> Floats:
    """Return the share of the positives of each query that lack an abstract, float64 ``[queries]``."""
    qrels = Qrels.from_table(pool.qrels, len(pool.query_rows))
    lacking = pool.corpus.attributes["abstract_chars"][qrels.rows] == 0
    return np.bincount(query_of(qrels.offsets), lacking, len(pool.query_rows)) / qrels.positives()


class Line(NamedTuple):
    """The difference of one dense system to the sparse one over the logarithm of the number of candidates.

    Attributes:
        system: the dense system.
        kind: of negatives.
        queries: which queries.
        sizes: numbers of candidates, rising.
        values: differences, float64 ``[samples, queries, sizes]``.
        coefficients: intercept at the middle size and slope a doubling, float64 ``[samples, queries, 2]``.
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
        """Return the line's difference at a size, with the interval over queries and samples."""
        return crossed_mean(self.coefficients @ np.array([1.0, np.log2(size / self.middle)]))

    def turn(self) -> tuple[float, float, float]:
        """Return the size at which the line is 0, and the sizes between which 0 is not rejected.

        Sizes are followed to :data:`_BEYOND` times the measured range on either side. An end beyond is infinite or 0.
        The size is NaN where the interval of the slope holds 0; all three are where 0 is rejected everywhere.
        """
        sizes = np.geomspace(self.sizes[0] / _BEYOND, self.sizes[-1] * _BEYOND, 400)
        bounds = np.array([self.at(size) for size in sizes])
        held = np.flatnonzero((bounds[:, 1] <= 0) & (bounds[:, 2] >= 0))
        if not len(held):
            return np.nan, np.nan, np.nan
        level, slope = self.coefficients.mean(axis=(0, 1))
        _, falls, rises = crossed_mean(self.coefficients[..., 1])
        low = float(sizes[held[0]]) if held[0] else 0.0
        high = float(sizes[held[-1]]) if held[-1] < len(sizes) - 1 else np.inf
        return float(self.middle * 2 ** (-level / slope)) if falls > 0 or rises < 0 else np.nan, low, high


def fitted(frame: pl.DataFrame, sparse: str, gaps: Floats) -> Iterator[Line]:
    """Yield the line of each dense system and kind of negatives: over all queries, with few and with many gaps.

    Args:
        frame: a value for each ``kind``, ``sample``, ``size``, ``system`` and ``query``; pools that are smaller than
            was asked are left out.
        sparse: name of the sparse system.
        gaps: share of the positives of each query that lack an abstract, float64 ``[queries]``.
    """
    whole = frame.filter(pl.col("size") == pl.col("asked"))
    few = gaps <= np.median(gaps)
    chosen = {"all": np.ones(len(gaps), bool), "few gaps": few, "many gaps": ~few}
    for kind, system in itertools.product(whole["kind"].unique(maintain_order=True), _dense(whole, sparse)):
        of_kind = whole.filter(pl.col("system").is_in([system, sparse]), kind=kind)
        wide = of_kind.pivot("system", index=["sample", "query", "size"], values="value").sort(
            "sample", "query", "size"
        )
        sizes = tuple(wide["size"].unique().sort().to_list())
        if len(sizes) < 2:
            continue
        shape = (wide["sample"].n_unique(), wide["query"].n_unique(), len(sizes))
        differences = (wide[system] - wide[sparse]).to_numpy().reshape(shape)
        doublings = np.log2(sizes)
        design = np.stack([np.ones(len(sizes)), doublings - doublings.mean()])
        coefficients = differences @ np.linalg.pinv(design)
        for name, kept in chosen.items():
            if kept.sum() > 1:
                yield Line(system, kind, name, sizes, differences[:, kept], coefficients[:, kept])


def _dense(frame: pl.DataFrame, sparse: str) -> list[str]:
    return [name for name in frame["system"].unique(maintain_order=True) if name != sparse]


def turn_table(lines: Sequence[Line], sparse: str, short: pl.DataFrame) -> StudyTable:
    """Return where each line is 0, and its slope; ``short`` are pools that are smaller than was asked."""
    rows, shown = [], []
    for line in lines:
        slope, turn = crossed_mean(line.coefficients[..., 1]), line.turn()
        key = {"system": line.system, "negatives": line.kind, "queries": line.queries}
        rows.append({
            **key, "count": line.values.shape[1],
            **dict(zip(("slope", "slope_low", "slope_high"), slope, strict=True)),
            **dict(zip(("turn", "turn_low", "turn_high"), turn, strict=True)),
        })  # fmt: skip
        value, low, high = (f"{100 * figure:+.2f}" for figure in slope)
        shown.append({
            "system, negatives": f"{line.system}, {line.kind}", "queries": f"{line.queries} ({line.values.shape[1]:,})",
            "slope": f"{value} [{low}, {high}]", "turns at": _turn_text(turn),
        })  # fmt: skip
    notes = [
        f"Slope: points of MAP over {sparse} a doubling of the candidates. Turns at: the number of candidates at which "
        "the line is 0, if the slope differs from 0 [sizes at which 0 is not rejected]. Brackets: 95% intervals.",
        f"Sizes are followed to {_BEYOND} times the measured range; beyond it the line is not tested.",
        "Gaps: positives without an abstract; few: a share of them up to the median query's.",
        *(
            f"Left out: {kind} negatives, {asked:,} candidates: only {size:,} exist."
            for kind, asked, size in short.rows()
        ),
    ]
    return StudyTable(
        "turns", frame_table("Where dense overtakes sparse", pl.DataFrame(shown), notes), pl.DataFrame(rows)
    )


def _turn_text(turn: tuple[float, float, float]) -> str:
    value, low, high = turn
    if np.isnan(low):
        return "not within these sizes"
    ends = "below" if low == 0 else format_count(round(low)), "above" if np.isinf(high) else format_count(round(high))
    return f"{'not shown' if np.isnan(value) else format_count(round(value))} [{ends[0]}, {ends[1]}]"


def difference_table(lines: Sequence[Line], sparse: str) -> StudyTable:
    """Return the measured difference at each size, and that of the line, over all queries."""
    rows = []
    for line in (line for line in lines if line.queries == "all"):
        for place, size in enumerate(line.sizes):
            measured, low, high = crossed_mean(line.values[..., place])
            rows.append((f"{line.system}, {line.kind}", size, measured, low, high, line.at(size)[0]))
    frame = pl.DataFrame(rows, ["system", "size", "difference", "low", "high", "line"], orient="row")
    shown = frame.select(
        pl.format("{}, {}", "system", "size").alias("system, negatives, size"),
        pl.struct(pl.all()).map_elements(
            lambda row: "{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format(
                **{name: 100 * row[name] for name in ("difference", "low", "high")}
            ), pl.String,
        ).alias("difference"),
        (100 * pl.col("line")).alias("line"),
    )  # fmt: skip
    notes = [f"Points of MAP over {sparse}; brackets: 95% intervals over queries and samples of candidates."]
    return StudyTable("differences", frame_table("Differences by number of candidates", shown, notes), frame)


def difference_chart(lines: Sequence[Line], sparse: str, source: str) -> Chart:
    """Return the differences with their lines, a view for each kind of negatives."""
    views: dict[str, list[Series]] = {}
    for line in (line for line in lines if line.queries == "all"):
        mean, low, high = zip(*(crossed_mean(line.values[..., place]) for place in range(len(line.sizes))), strict=True)
        curve = [(float(size), line.at(size)[0]) for size in np.geomspace(line.sizes[0], line.sizes[-1], 20)]
        views.setdefault(line.kind, []).append(Series(line.system, line.sizes, mean, low, high, curve))
    ticks = {float(size): format_count(size) for line in lines for size in line.sizes}
    title = f"Difference to {sparse} in MAP"
    return Chart(title, "candidates", "points of MAP", views, log=True, ticks=ticks, provenance=source)


def budget_tables(frame: pl.DataFrame, sparse: str, budgets: Sequence[int]) -> Iterator[StudyTable]:
    """Yield how a number of ranked lists is best spent on queries and samples, at the largest size of each kind."""
    rows = []
    whole = frame.filter(pl.col("size") == pl.col("asked"))
    for kind, system in itertools.product(whole["kind"].unique(maintain_order=True), _dense(whole, sparse)):
        part = whole.filter(pl.col("system").is_in([system, sparse]), kind=kind).filter(
            pl.col("size") == pl.col("size").max()
        )
        wide = part.pivot("system", index=["sample", "query"], values="value").sort("sample", "query")
        differences = (wide[system] - wide[sparse]).to_numpy().reshape(wide["sample"].n_unique(), -1)
        if len(differences) < 2:
            return
        parts = components(differences)
        for budget in budgets:
            errors = {
                samples: parts.queries / (budget // samples) + parts.samples / samples + parts.rest / budget
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
    yield StudyTable("budgets", frame_table("How to spend ranked lists", table, notes, 2), table)


STUDY = Study(
    "crossover", "from which number of candidates on dense retrieval overtakes sparse", Recipe, batches, results
)
