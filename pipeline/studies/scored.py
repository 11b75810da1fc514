"""Scores of systems on pools: their tasks, and what a study reads from them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.api import Workspace
from pipeline.core.errors import require_known
from pipeline.core.schema import NO_YEAR
from pipeline.core.task import Task
from pipeline.core.workspace import SCORES, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import walk
from pipeline.measure.design import Draws
from pipeline.measure.inputs import query_of
from pipeline.scores.average import PROTOCOL
from pipeline.scores.charts import charts as charts_of
from pipeline.scores.charts import figures
from pipeline.scores.choose import is_called, label_of_row
from pipeline.scores.findings import findings
from pipeline.scores.labels import labelled
from pipeline.scores.layout import select_measures, table_of
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Chart, Part
from pipeline.scores.plot import draw
from pipeline.scores.sources import trainings_of
from pipeline.scores.store import Rankings, open_rankings, runs_of, stored, values, with_values
from pipeline.scores.summary import flat, summarise
from pipeline.scores.tables import Table
from pipeline.stages.selection import Selection, joined
from pipeline.stages.systems import TUNED, UNTUNED, stored_names
from pipeline.stages.tune import Tuning, tune_task
from pipeline.studies.base import Report

LISTS = "runs/benchmarks"
"""Folder of the scores of lists of benchmarks, apart from scores of pools."""

Batches = Generator[Sequence[Task], Any, Any]
"""A part of the steps of a study, for ``yield from``."""


def corpus_of(workspace: Workspace, recipe: Any) -> Corpus:
    """Open the corpus of a recipe; without a name, the only one."""
    return workspace.corpus(recipe.corpus or None)


def stored_runs(root: Path) -> pl.DataFrame:
    """Return all rankings that were scored in a workspace, lists of benchmarks included, a row each, not labelled.

    Columns: :data:`pipeline.scores.frames.RUNS`. What cannot be read is left out with a warning.
    """
    return pl.concat(with_values(stored(root, folder)) for folder in (SCORES, LISTS))


def pool_tasks(workspace: Workspace, recipe: Any, chosen: Selection) -> list[Task]:
    """Return the tasks of the pools of a selection: by field, then size, then sample."""
    return chosen.pools(find_corpus(workspace.root, recipe.corpus or None))


def tuned(workspace: Workspace, recipe: Any, chosen: Selection) -> Generator[Sequence[Task], Any, list[str]]:
    """Tune BM25 on the validation queries of a selection; return the name of the tuned system of each pool."""
    corpus, validation = find_corpus(workspace.root, recipe.corpus or None), chosen.but(split="validation", samples=1)
    made = yield [tune_task(corpus, pool) for pool in validation.pools(corpus)]
    return [f"bm25:k1={tuning.k1:g},b={tuning.b:g}" for tuning in map(Tuning.of, made)]


def scored(
    workspace: Workspace,
    recipe: Any,
    pools: Sequence[Task] | Sequence[Selection],
    systems: str | Sequence[str] | None = None,
    *,
    together: bool = False,
) -> Generator[Sequence[Task], Any, Scored]:
    """Rank and score the systems of a study on pools; it is for ``yield from``.

    Args:
        workspace: the workspace.
        recipe: has ``corpus``, ``systems``, ``depth``, and perhaps ``measures`` and ``baseline``, one of the systems.
        pools: tasks of pools, or selections, for which BM25 is tuned first if a system is ``bm25:tuned``.
        systems: what ranks; None: ``recipe.systems``.
        together: as in :func:`pipeline.scores.labels.labelled`.
    """
    names = joined(recipe.systems if systems is None else systems)
    if baseline := getattr(recipe, "baseline", ""):
        check_baseline(baseline, names)
    found, further = [], {"depth": recipe.depth, "measures": getattr(recipe, "measures", None)}
    groups: list[Selection | list[Task]] = [pool for pool in pools if isinstance(pool, Selection)]
    for group in groups or [[pool for pool in pools if isinstance(pool, Task)]]:
        tasks = pool_tasks(workspace, recipe, group) if isinstance(group, Selection) else group
        if isinstance(group, Selection) and any(name.base == TUNED for name in walk(names)):
            yield from tuned(workspace, recipe, group)
        evaluations = workspace.evaluations(tasks, names, **further)
        made = yield [score for evaluation in evaluations for score in evaluation.scores]
        found += evaluations
    list(made)  # a plan ends here
    return Scored(runs_of(workspace.runner, found), together)


@dataclass(frozen=True, eq=False)
class Scored:
    """Rankings of pools by systems, with their values.

    Attributes:
        rankings: a row for each ranking, not labelled: :data:`pipeline.scores.frames.RUNS`.
        together: as in :func:`pipeline.scores.labels.labelled`.
    """

    rankings: pl.DataFrame
    together: bool = False

    @cached_property
    def runs(self) -> pl.DataFrame:
        """A row for each ranking with the ``label`` of its system, its pool and all settings."""
        return labelled(self.rankings, together=self.together)

    @cached_property
    def values(self) -> pl.DataFrame:
        """A row for each ranking, query and measure: ``label``, ``pool``, ``query``, ``measure``, ``value``, ...

        The other columns say what the pool is, such as ``field``, ``year``, ``size`` and ``sample``
        (:data:`pipeline.scores.frames.VALUES`); values are fractions.
        """
        return values(self.runs)

    @property
    def labels(self) -> list[str]:
        """The labels of the systems, in order of first appearance."""
        return list(self.runs["label"].unique(maintain_order=True))

    @property
    def sources(self) -> list[str]:
        """Folder names of the corpus and the pools."""
        return [self.rankings["corpus"][0], *sorted(self.rankings["pool"].unique())]

    def label(self, name: str) -> str:
        """Return the label of the system that a name means; InputError if there is none, or several."""
        return label_of_row(self.runs, name)

    def named(self, name: str, measure: str = "map") -> pl.DataFrame:
        """Return the values of a measure in which the ``system`` that a name means is called by it on every pool."""
        systems = [name if is_called(run, name) else run["system"] for run in self.rankings.iter_rows(named=True)]
        runs = self.rankings.with_columns(system=pl.Series(systems, dtype=pl.String))
        return values(runs).filter(measure=measure)

    def gains(self, baseline: str, measure: str = "map") -> pl.DataFrame:
        """Return the values of a measure less those of a baseline (a label), query by query.

        Columns: ``label`` of the other system, ``field`` (or ``dataset``), ``year``, ``size``, ``sample``, ``pool``,
        ``query``, ``value``.
        """
        keys = ["field", "year", "size", "sample", "pool", "query"]
        of_measure = self.values.filter(measure=measure)
        base = of_measure.filter(label=baseline).select(*keys, base="value")
        others = of_measure.filter(pl.col("label") != baseline)
        both = others.join(base, on=keys, nulls_equal=True, maintain_order="left")
        return both.select("label", *keys, value=pl.col("value") - pl.col("base")).with_columns(_field())

    def open(self, pool: str) -> Rankings:
        """Open a pool by the name of its folder, with its qrels and rankings; InputError if it cannot be read."""
        return open_rankings(self.runs.filter(pool=pool))

    def pool(self, name: str) -> Pool:
        """Open a pool by the name of its folder, with its corpus; InputError if it cannot be read."""
        return open_rankings(self.rankings.filter(pool=name).head(1)).pool

    def positives_of(self, pool: str) -> pl.DataFrame:
        """Return :attr:`positives` of one pool."""
        runs = self.runs.filter(pool=pool)
        rankings, run = self.open(pool), runs.row(0, named=True)
        rows, corpus = rankings.qrels.rows, rankings.pool.corpus
        facts = pl.DataFrame({
            "query": query_of(rankings.qrels.offsets), "paper": rows, "citations": corpus.citations[rows],
            "abstract": corpus.attributes["abstract_chars"][rows] > 0,
            "published": corpus.attributes["year"][rows].astype(int),
        })  # fmt: skip
        facts = facts.select(
            pl.lit(pool).alias("pool"),
            pl.lit(run["field"], pl.String).alias("field"),
            pl.lit(run["year"]).alias("year"),
            pl.all().exclude("published"),
            pl.col("published").replace(NO_YEAR, None),
        ).with_columns(_field())
        frames = [
            facts.select(pl.lit(label).alias("label"), pl.all(), pl.Series("rank", ranks).replace(0, None))
            for label, ranks in rankings.ranks.items()
        ]
        nth = pl.col("rank").rank("ordinal").over("label", "query")
        return pl.concat(frames).with_columns(precision=(nth / pl.col("rank")).fill_null(0.0))

    @cached_property
    def positives(self) -> pl.DataFrame:
        """A row for each positive of each ranking; pools are opened one by one.

        Columns: ``label`` of the system; ``pool``, its ``field`` (or ``dataset``) and ``year``; the position of the
        ``query`` in the pool; the ``paper`` (row of the corpus), its ``citations``, whether it has an ``abstract``, the
        year it was ``published`` (null: unknown); its ``rank`` from 1 (null: not retrieved) and the ``precision`` there
        (0: not retrieved). The mean precision of a query's positives is its average precision.
        """
        return pl.concat(self.positives_of(pool) for pool in self.runs["pool"].unique(maintain_order=True))

    def trained_until(self, label: str) -> int | None:
        """Return the last year of a system's training data; None: it is unknown, or the system is not trained."""
        trainings = trainings_of(self.runs.filter(label=label).row(0, named=True)).values()
        years = [training.until for training in trainings]
        return max(filter(None, years)) if years and all(years) else None

    def report(
        self,
        *measures: str,
        baseline: str | None = None,
        draws: Draws = PROTOCOL,
        tables: Sequence[Table] = (),
        charts: Mapping[str, Chart] | None = None,
        summaries: Sequence[pl.DataFrame] | None = None,
    ) -> Report:
        """Return the report that studies of pools have in common, after tables and charts of the study's own.

        It has the tables of scores, one for each kind of pools, a chart and a figure of each measure, and the queries.
        Findings are of the scores: a report with tables of its own has none.

        Args:
            *measures: canonical names.
            baseline: the system that others are tested against; None: tuned BM25 if its untuned form is shown.
            draws: settings of intervals and tests.
            tables: tables before those of scores.
            charts: charts before those of scores, by name.
            summaries: figures in place of those of all values (:func:`pipeline.scores.summary.summarise`).
        """
        scores = self.values.filter(pl.col("measure").is_in(measures))
        summaries = summaries or [summarise(scores, self.runs, baseline=baseline, draws=draws)]
        report = report_of(self.runs, summaries, measures)
        parts = [*report.parts, browser(self.runs, scores, measures)]
        shown, found = [*tables, *report.tables], () if tables else report.findings
        return replace(report, tables=shown, charts=charts or {}, parts=parts, findings=found)


def report_of(runs: pl.DataFrame, summaries: Sequence[pl.DataFrame], measures: Sequence[str]) -> Report:
    """Return the tables, charts and figures of summaries."""
    summaries = [select_measures(summary, measures) for summary in summaries]
    tables = [table for summary in summaries for table in summary.partition_by("table", maintain_order=True)]
    parts: list[Part] = [chart for summary in summaries for chart in charts_of(summary, runs)]
    plots = (plot for summary in summaries for plot in figures(summary, runs))
    return Report(
        tables=[
            replace(table_of(table, runs), name=f"scores-{number}" if number > 1 else "scores", frame=flat(table))
            for number, table in enumerate(tables, 1)
        ],
        figures={name: partial(draw, chart=chart, view=view) for name, chart, view in plots},
        sources=[runs["corpus"][0], *sorted(runs["pool"].unique())],
        parts=parts,
        findings=findings(summaries[-1], runs),
    )


def _field() -> pl.Expr:
    return pl.col("field").cast(pl.String).fill_null("dataset")


def check_baseline(baseline: str, systems: str) -> None:
    """Raise InputError if the baseline is not one of the systems."""
    names = stored_names(systems)
    if named_by(baseline.partition(" (")[0], names) not in names:
        problem = f"the baseline must be one of {', '.join(names)}, got {baseline!r}"
        require_known(baseline, names, problem, f"Write --set=baseline={names[0]}")


def named_by(name: str, systems: Iterable[str]) -> str:
    """Return the system that a name means, else the name; ``bm25`` is the tuned or the untuned, where one is there."""
    (name, *_), names = stored_names(name) or (name,), list(systems)
    meant = (system for system in names if "bm25" in (name, system) and {name, system} <= {"bm25", TUNED, UNTUNED})
    return name if name in names else next(meant, name)
