"""Tables and the figure of queries of the study ``facets``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.corpus.pool import Pool
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.scores.figures import COLOURS
from pipeline.scores.tables import Cell, Column, Table, TableRow, frame_table
from pipeline.sources.csfcube import Judged
from pipeline.studies.base import StudyFigure, StudyTable
from pipeline.studies.facets.agreement import agreement, by_citation, citations, rank_correlation
from pipeline.studies.facets.scoring import ALL, FOLDS, QUERIES, differences
from pipeline.studies.tables import points

Rankings = Mapping[tuple[str, str, str], tuple[Pool, Artifact]]
"""Pool and ranking by system, form and facet."""

_ALPHA = 0.05
_MEANS = {FOLDS: "folds of the means of their queries", QUERIES: "queries"}


def score_tables(figures: pl.DataFrame, shown: Sequence[str], pools: Mapping[str, Pool]) -> list[StudyTable]:
    """Return the table of facets, and that of all measures over all facets."""
    average = FOLDS if FOLDS in figures["average"] else QUERIES
    own = figures.filter(average=average)
    signs = {name: sign_of(name) for name in own["measure"].unique()}
    worth = pl.col("mean") * pl.col("measure").replace_strict(signs)
    of = {
        (row["system"], row["form"], row["facet"], row["measure"]): row
        for row in own.with_columns(best=worth > worth.max().over("facet", "measure") - 1e-12).iter_rows(named=True)
    }

    def table(title: str, groups: Sequence[str], measures: Sequence[str], notes: Sequence[str] = ()) -> Table:
        places = list(itertools.product(groups, measures))
        lines = [TableRow(key[0], (key[1], *(_figure(of[*key, *place]) for place in places))) for key in systems]
        labels = [each.label for each in parse_measures(measures)]
        columns = [Column(group, label) for group, label in itertools.product(groups, labels)]
        note = f"Percent: mean over {_MEANS[average]} [95% interval]. Bold: best."
        return Table(title, "system", (Column("", "query"), *columns), tuple(lines), (note, *notes))

    systems = own.select("system", "form").unique(maintain_order=True).rows()
    counts = {facet: pool.artifact.manifest.counts for facet, pool in pools.items()}
    notes = [
        *_counted(next(iter(pools.values())).corpus.artifact.manifest.counts),
        *(
            f"{facet}: {c['queries']} queries, {c['judgements']:,} judgements, {c['relevant']} relevant; "
            f"{c['queries_without_relevant']} queries without a relevant candidate left out, "
            f"{c['candidates_without_text']} candidates without text."
            for facet, c in counts.items()
        ),
    ]
    measures = own["measure"].unique(maintain_order=True).to_list()
    index = ["system", "form", "facet", "average", "queries"]
    wide = figures.pivot("measure", index=index, values="mean", maintain_order=True)
    return [
        StudyTable("scores", table("Systems by facet", [*pools, ALL], shown, notes), figures),
        StudyTable("measures", table("All measures", [ALL], measures), wide),
    ]


def _figure(row: Mapping[str, Any]) -> Cell:
    return Cell(row["mean"], None, row["low"], row["high"], row["best"], marked=False)


def _counted(counts: Counts) -> list[str]:
    """Return the note of what is left out of the collection's files, or kept though something is missing."""
    all_ = {"judgements_of_unknown_papers": counts["judgements_of_nothing"], **counts["noted"], **counts["dropped"]}
    told = [f"{name.replace('_', ' ')}: {count:,}" for name, count in all_.items() if count]
    return [f"Counted in the files: {'; '.join(told)}."] if told else []


def difference_tables(values: pl.DataFrame, measure: str, baseline: str, seed: int) -> list[StudyTable]:
    """Return how the systems differ from the baseline, and facet from whole paper; none of a single system."""
    frame = differences(values, measure, baseline, seed)
    if frame.is_empty():
        return []
    (label,) = (each.label for each in parse_measures(measure))
    facets = frame["facet"].unique(maintain_order=True).to_list()
    lines = []
    for (system, form, than, other), own in frame.group_by("system", "form", "than", "than_form", maintain_order=True):
        cells = [points(row) + "†" * (row["p_adjusted"] < _ALPHA) for row in own.iter_rows(named=True)]
        whole = own.row(-1, named=True)
        ends = (f"{whole['p_adjusted']:.4f}", f"{whole['wins']} : {whole['losses']}")
        lines.append(TableRow(f"{system}, {form}", (f"{than}, {other}", *cells, *ends)))
    names = ("than", *facets, f"p, Holm ({ALL})", f"wins : losses ({ALL})")
    notes = (
        f"Points of {label}, mean over queries [95% interval].",
        f"† paired permutation test over queries, p < {_ALPHA}; Holm's correction over the systems compared with the "
        "baseline on one facet, and over those compared with themselves.",
    )
    table = Table(
        "Differences between systems", "system, query", tuple(Column("", each) for each in names), tuple(lines), notes
    )
    return [StudyTable("differences", table, frame)]


def agreement_tables(annotations: Mapping[str, Judged]) -> list[StudyTable]:
    """Return the table of agreement; none where no annotator is recorded."""
    frame = agreement(annotations)
    if frame.is_empty():
        return []
    notes = ["rho: mean over queries of each two annotators; alpha is ordinal; kappa also with quadratic weights."]
    return [StudyTable("agreement", frame_table("Agreement of annotators", frame, notes, 3), frame)]


def citation_tables(
    pools: Mapping[str, Pool], rankings: Rankings, figures: pl.DataFrame, measure: str, relevant: int
) -> list[StudyTable]:
    """Return how citations and grades overlap, and the systems under either; none where no paper is cited."""
    overlap = citations(pools, relevant)
    if not overlap["cited"].sum():
        return []
    graded = figures.filter((pl.col("facet") == ALL) & (pl.col("measure") == measure), average=QUERIES)
    mean = dict(zip(graded.select("system", "form").rows(), graded["mean"], strict=True))
    rows = []
    for key in dict.fromkeys(each[:2] for each in rankings):
        values = [by_citation(*of, measure) for each, of in rankings.items() if each[:2] == key]
        found = np.concatenate(values)
        rows.append((*key, mean[key], float(found.mean()), len(found)))
    frame = pl.DataFrame(rows, schema=["system", "form", "graded", "citation", "queries_cited"], orient="row")
    tau = rank_correlation(frame["graded"].to_list(), frame["citation"].to_list())
    notes = [
        f"{measure} over all queries, with grades and with citations as judgements.",
        f"Kendall's tau of the systems under both: {'not defined' if tau is None else f'{tau:.3f}'}.",
    ]
    return [
        StudyTable("citations", frame_table("Citations and grades", overlap, (), 3), overlap),
        StudyTable("citation_scores", frame_table("Systems by grades and by citations", frame, notes, 4), frame),
    ]


def query_figure(values: pl.DataFrame, measure: str) -> StudyFigure:
    """Return the figure of every query's value: a panel a facet, a line of dots a system, the mean as a bar."""
    of_measure = values.filter(measure=measure)
    systems = of_measure.select("system", "form").unique(maintain_order=True).rows()
    facets = of_measure["facet"].unique(maintain_order=True).to_list()
    (label,) = (each.label for each in parse_measures(measure))

    def draw(figure_class: Any) -> Any:
        figure = figure_class(figsize=(2.4 * len(facets) + 1, 0.28 * len(systems) + 0.9), layout="constrained")
        panels = figure.subplots(1, len(facets), sharey=True, sharex=True, squeeze=False)[0]
        for panel, facet, colour in zip(panels, facets, COLOURS, strict=False):
            for place, (system, form) in enumerate(systems):
                own = of_measure.filter(system=system, form=form, facet=facet).sort("query")["value"].to_numpy()
                panel.plot(own, np.full(len(own), place), "o", color=colour, alpha=0.5, ms=3, mew=0)
                panel.plot([own.mean()], [place], "|", color="black", ms=10)
            panel.set_title(facet)
            panel.set_xlabel(label)
        panels[0].set_yticks(range(len(systems)), [f"{name}, {form}" for name, form in systems])
        panels[0].invert_yaxis()
        return figure

    return StudyFigure("queries", draw)
