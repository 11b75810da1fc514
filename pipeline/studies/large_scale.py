"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2).

Tables 1, 2, 7 and 8 in their layout, with differences to the published figures; tests of MAP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from pipeline.studies import kit

DATASET = "dataset"
"""Name of the dataset-level pools, in the fields of a recipe and in tables."""

MEASURES = {"map": 2, "ndcg": 7, "recall@30": 8}
"""Measures of the tables, with the number of each measure's table by field."""

_WHOLE = ("Art", "History", "Philosophy")  # fields whose published pools hold all papers
_POOL = 100_000  # candidates in the published pools of other fields

NOTE = (
    "In parentheses: the difference to the published figure, in points; without, none was published for pools of this "
    "size."
)

_SETUP = ("field", "size")


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study; ``exclude`` names training queries (section 3.1)."""

    fields: str = kit.required("of the 19 fields, with commas, or all; dataset: pools of all fields")
    sizes: tuple[str, ...] = kit.required("numbers of candidates, such as 200k, or all")
    year: int
    samples: int
    nested: bool
    positives: Literal["corpus", "prefiltered", "strangers"]
    baseline: str = kit.required("the system that the others are tested against")
    own: Mapping[str, Mapping[str, Any]] = kit.required("by field: other sizes, year, queries or settings of pools")

    @property
    def selections(self) -> list[kit.Selection]:
        """The pools: of the dataset level, then field by field."""
        names = [name.strip() for name in self.fields.split(",") if name.strip()]
        fields = ",".join(name for name in names if name != DATASET)
        groups = [DATASET] * (DATASET in names) + list(kit.selection(field=fields).given["field"] if fields else ())
        for name in self.own:
            kit.require_known(name, groups, f"{name!r} has settings, but is not studied", "Correct the recipe")
        selections = []
        for group in groups:
            own = {name.replace("sizes", "size"): value for name, value in self.own.get(group, {}).items()}
            field = None if group == DATASET else group
            selections.append(kit.selection(**kit.pools_of(self) | own | {"field": field}))
        return selections


@kit.study("large_scale", "retrieval from large pools, by pool size and by field", Recipe)
def large_scale(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the tables of the paper, and tests."""
    found = yield from kit.scored(workspace, recipe, recipe.selections, together=True)
    seed, runs = recipe.seed, found.runs
    scores = found.values.filter(pl.col("measure").is_in(list(MEASURES)))
    largest = pl.col("size") == pl.col("size").max().over("field")
    summaries = [
        kit.summarise(frame, runs, baseline=recipe.baseline, draws=kit.Draws(seed=seed))
        for frame in _by_size_and_field(scores, largest)
    ]
    pools = runs.filter(largest, sample=1).unique("pool", maintain_order=True)
    compared = kit.corpus_of(workspace, recipe).artifact.manifest.config.get("source") != "synthetic"
    tuned = set(runs.filter(pl.col("aliases").list.contains(kit.TUNED))["label"])
    tables = [
        *(table for summary in summaries for table in paper_tables(summary, pools, tuned, compared=compared)),
        *tests(summaries, scores, seed),
    ]
    report = found.report(*MEASURES, summaries=summaries)
    figures = {name: draw for name, draw in report.figures.items() if name.endswith("-map")}
    return replace(report, tables=tables, figures=figures)


def _by_size_and_field(scores: pl.DataFrame, largest: pl.Expr) -> Iterator[pl.DataFrame]:
    """Yield the scores to show by pool size, and those of each field's largest pool to show by field.

    A field with pools of one size is shown by size only if there is no other field.
    """
    fields = scores["field"].drop_nulls().n_unique()
    several_sizes = pl.col("size").n_unique().over("field") > 1
    by_size = scores.filter(pl.col("field").is_null() | several_sizes | (fields == 1))
    if len(by_size):
        yield by_size
    if fields > 1:
        yield scores.filter(pl.col("field").is_not_null() & largest)


def published(system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure, a fraction, or None.

    The published BM25 is tuned. The field ``AVG`` is the average of all 19. The size is not
    compared if it is None, for ``AVG``, or in a field whose published pool holds all papers.
    """
    if field is not None and field not in (kit.AVERAGE, *_WHOLE) and size not in (None, _POOL):
        return None
    experiment = f"dataset-{kit.format_count(size or 0)}" if field is None else f"field-{field}"
    experiment = "fields" if field == kit.AVERAGE else experiment
    if system == "bm25":
        return None
    return kit.published_figure("bm25" if system == kit.TUNED else system, experiment, measure)


def paper_tables(
    summary: pl.DataFrame, pools: pl.DataFrame, tuned: Collection[str] = (), *, compared: bool = True
) -> Iterator[kit.Table]:
    """Yield table 1 for each table over sizes, and tables 2, 7 and 8 for each table over fields.

    ``pools`` are rankings of the pools whose metadata gaps are noted, one of each; ``tuned`` are the labels of tuned
    BM25. Unless ``compared``, as for synthetic papers, there are no published figures. Averages have one if all 19
    fields are present.
    """
    for table in kit.select_measures(summary, list(MEASURES)).partition_by("table", maintain_order=True):
        frame = kit.flat(table)
        has_all_fields = frame.filter(pl.col("field") != kit.AVERAGE)["field"].n_unique() == len(kit.MAG_FIELDS)
        figures = [
            published(kit.TUNED if system in tuned else system, field, size, measure)
            if compared and (has_all_fields or field != kit.AVERAGE)
            else None
            for system, field, size, measure in frame.select("system", "field", "size", "measure").iter_rows()
        ]
        frame = frame.with_columns(published=pl.Series(figures, dtype=pl.Float64))
        frame = frame.with_columns(difference=pl.col("value") - pl.col("published"))
        of_table = pools.filter(
            pl.col("field").cast(pl.String).is_in(frame["field"].unique().to_list(), nulls_equal=True)
        )
        notes = [f"Percent [{table['level'][0]:.0%} interval over queries]."]
        notes += [NOTE] if compared else []
        notes += filter(None, [kit.describe_gaps(map(kit.gaps_of, of_table.iter_rows(named=True)))])
        shown = frame.drop("deviation").with_columns(shown=pl.col("measure").map_elements(kit.label_of, pl.String))
        if table["over"][0] == "sizes":
            shown = shown.with_columns(pl.col("size").map_elements(kit.format_count, pl.String))
            field = frame["field"][0]
            name = "table-1" if field is None else f"table-1-{kit.file_name(field.lower())}"
            title, layout = f"Table 1: {field or 'dataset level'}", {"across": "{shown}", "group": "{size}"}
            yield kit.table(name, title, frame, "{system}", kit.figure(), notes, rows=shown, **layout)
            continue
        sizes = frame.filter(pl.col("field") != kit.AVERAGE)["size"].drop_nulls().unique().sort()
        of_sizes = " to ".join(dict.fromkeys(kit.format_count(size) for size in (sizes[0], sizes[-1])))
        suffix = f"-{of_sizes}" if len(sizes) == 1 else ""
        for measure, number in MEASURES.items():
            of_measure, rows = frame.filter(measure=measure), shown.filter(measure=measure)
            title = f"Table {number}: {kit.label_of(measure)} by field, {of_sizes} candidates"
            yield kit.table(
                f"table-{number}{suffix}", title, of_measure, "{field}", kit.figure(), notes,
                rows=rows, across="{system}", last=[kit.AVERAGE],
            )  # fmt: skip


def tests(summaries: Sequence[pl.DataFrame], scores: pl.DataFrame, seed: int) -> Iterator[kit.Table]:
    """Yield the differences of MAP to the baseline with intervals, effects, p-values, wins and losses."""
    tested = pl.concat(summaries).filter(
        pl.col("p_value").is_not_null(), pl.col("field").ne_missing(kit.AVERAGE), measure="map"
    )
    tested = tested.group_by(*_SETUP, "label", maintain_order=True).last()
    if len(tested):
        design = kit.Design(row=("label",), of=_SETUP, group="field", over="sample")
        base_of = {(label,): (base,) for label, base in tested.select("label", "baseline").iter_rows()}
        differences = kit.estimate(scores.filter(measure="map"), design, seed, base_of)
        tested = tested.select(*_SETUP, "label", "baseline", "p_value", corrected="p_adjusted", shown="detectable")
        both = tested.join(differences, on=[*_SETUP, "label"], how="left", nulls_equal=True, maintain_order="left")
        names = pl.Series([_name(*setup) for setup in both.select(_SETUP).iter_rows()])
        facts = {"system": "label", "baseline": "baseline", "difference": "difference", "low": "difference_low",
                 "high": "difference_high", "effect": "effect", "p": "p_value", "p_adjusted": "corrected",
                 "error": "error", "detectable": "shown", "wins": "wins", "losses": "losses"}  # fmt: skip
        frame = both.select(pool=names, **facts)
        shown: kit.Columns = {
            "MAP difference": kit.points(), "effect": "{effect:+.2f}", "p": "{p:.4f}", "p, Holm": "{p_adjusted:.4f}",
            "wins : losses": "{wins} : {losses}", "detectable": kit.figure("detectable", None, None),
        }  # fmt: skip
        notes = (
            "Paired permutation tests. Holm's correction is over fields, or sizes of one field, system by system.",
            "Effect: mean difference over the standard deviation of the differences. Intervals hold one by one. "
            f"detectable: smallest true difference they reveal with power {kit.POWER:g} at the corrected level.",
        )
        yield kit.table("tests", "Difference to the baseline", frame, "{pool} {system}", shown, notes)


def _name(field: str | None, size: int) -> str:
    return f"{field or DATASET} {kit.format_count(size)}"
