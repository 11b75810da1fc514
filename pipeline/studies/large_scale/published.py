"""Tables 1, 2, 7 and 8 of Medić & Šnajder 2022 in their layout, with differences to the published figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
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


def tables(
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


def training(found: kit.Scored, pools: pl.DataFrame, trained: kit.Mask) -> kit.Table:
    """Return the papers of training lists by field, and the number of queries left out (section 4.2 of the paper).

    ``trained`` are the papers of the lists, bool ``[papers of the corpus]``; a paper of several fields counts in each.
    """
    opened = {field or "dataset": found.pool(pool) for pool, field in pools.select("pool", "field").iter_rows()}
    masks = next(iter(opened.values())).corpus.attributes["fields"][trained]
    counts = {
        field: int(np.count_nonzero(masks >> np.uint32(kit.FIELD_BIT[field]) & np.uint32(1)))
        for field in kit.MAG_FIELDS
    }
    rows = [(field, count, 100 * count / max(len(masks), 1)) for field, count in counts.items() if count]
    frame = pl.DataFrame(rows, {"field": pl.String, "papers": pl.Int64, "share in %": pl.Float64}, orient="row")
    left_out = []
    for field, pool in opened.items():
        counts_of_pool = pool.artifact.manifest.counts
        eligible = counts_of_pool["eligible_queries"] + counts_of_pool["excluded_queries"]
        left_out.append(f"{field} {counts_of_pool['excluded_queries']:,} of {eligible:,}")
    notes = [
        f"Papers of the training lists that the corpus has: {len(masks):,}.",
        f"Queries left out of those that may be drawn: {'; '.join(left_out)}.",
    ]
    columns = {"papers": "{papers:,}", "share in %": "{share in %:.1f}"}
    return kit.table("training", "Training queries by field", frame, "{field}", columns, notes)
