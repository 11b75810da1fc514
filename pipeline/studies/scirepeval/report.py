"""Tables of figures: averages, differences, correlations (Singh et al. 2023, tables 2 and 3, appendix G).

Figures are a frame with one row for each system and reported figure. Columns: ``system``, ``task``, ``title``,
``format``, ``in_train``, ``averaged`` (whether averages include it), ``measure`` (all measures, if the figure is their
mean), ``label`` (the task, with the measure if the task has several), ``value`` (fraction), ``low`` and ``high`` (null
for a task of one item, such as one query), ``items``, ``draws`` (the value in each resample), ``files`` (whole or
sample) and ``seconds``. All systems have the same figures in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.data import DATA
from pipeline.encode import known
from pipeline.measure.design import Design, estimate
from pipeline.measure.statistics import Floats
from pipeline.scores.page.parts import Chart
from pipeline.scores.tables import Column, Table, frame_table, grid, percent
from pipeline.studies.common import cells_of, formatted, series, texts_of
from pipeline.studies.scirepeval.steps import LEAKS
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Folder, domain_of, entries

_SCIDOCS = pl.col("task").str.starts_with("scidocs_")
LEAST_SYSTEMS = 3
"""Minimum number of systems of a correlation."""

GROUPS = {"in-train": pl.col("in_train"), "out-of-train": ~pl.col("in_train"), "average": pl.lit(True)}
GROUPS_OF_25 = {"in-train": pl.col("in_train"), "out-of-train": ~pl.col("in_train") & ~_SCIDOCS, "scidocs": _SCIDOCS,
                "average": pl.lit(True)}  # fmt: skip
"""Groups of the earlier edition, whose tables have SciDocs apart."""

FigureArtifacts = Mapping[tuple[Entry, str], Artifact]
"""The figures of each task and system."""

_MEAN = ("value", "low", "high", "figures")
_TITLE = pl.format("{}, {}", "title", "measure")
_ENDS = pl.col("low", "high").fill_null(pl.col("value"))
"""Ends of intervals; a value without an interval is its own end."""


def read_figures(artifacts: FigureArtifacts, folder: Folder) -> pl.DataFrame:
    """Return the reported figures of all tasks and systems."""
    parts = [
        counted_figures(entry, pl.DataFrame(artifact.arrow("figures.arrow"))).with_columns(
            system=pl.lit(system), files=pl.lit(folder.state(entry)),
            seconds=pl.lit(artifact.manifest.provenance["wall_seconds"]),
        )
        for (entry, system), artifact in artifacts.items()
    ]  # fmt: skip
    figures = pl.concat(parts)
    return figures.sort(pl.col("system").cast(pl.Enum(_systems(figures))), maintain_order=True)


def counted_figures(entry: Entry, figures: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of one task and system (:data:`pipeline.studies.scirepeval.steps.FIGURES`) as reported.

    Each measure of a ranking task is one figure. Few-shot rows are averaged with the row of all training papers
    (appendix A.3), and so are the four figures of reviewer matching (appendix A.2).
    """
    if _is_averaged(entry, figures):
        names = figures["figure"].to_list()
        sizes = ", ".join(name.partition("@")[2] for name in names[1:])
        figure = f"{names[0]} (all, {sizes})" if entry.few_shot else ", ".join(entry.measures)
        parts = figures.with_columns(part=figures["figure"], figure=pl.lit(figure))
        design = Design(row=(), of=("figure",), item="part", resampled="draws")
        mean = estimate(parts, design, seed=0, keep_draws=True)
        figures = mean.select("figure", "value", "draws", items=pl.lit(figures["items"].min(), pl.Int64))
    task = pl.lit(entry.name)
    return _with_intervals(figures).select(
        "value", "items", "draws", task=task, title=pl.lit(entry.title), format=pl.lit(entry.format),
        in_train=pl.lit(entry.in_train), averaged=pl.lit(entry.averaged), measure="figure", low="low", high="high",
        label=task if len(figures) == 1 else pl.format("{} {}", task, "figure"),
    )  # fmt: skip


def _is_averaged(entry: Entry, figures: pl.DataFrame) -> bool:
    return len(figures) > 1 and entry.kind not in ("proximity", "search", "triplets")


def _with_intervals(figures: pl.DataFrame) -> pl.DataFrame:
    ends = estimate(figures, Design(row=(), of=("figure",), item="figure", resampled="draws"), seed=0)
    several = pl.col("items") > 1
    return figures.with_columns(low=pl.when(several).then(ends["low"]), high=pl.when(several).then(ends["high"]))


def means(figures: pl.DataFrame, edition: int = 24) -> pl.DataFrame:
    """Return the averages of each system: ``system``, ``group`` (as the edition has), ``format`` (empty: all formats).

    ``value`` is a fraction, ``low`` and ``high`` bound its 95% interval, and ``figures`` is the number of figures. All
    are null without any figure.
    """
    formats, systems, groups = ("", *FORMATS), _systems(figures), GROUPS_OF_25 if edition == 25 else GROUPS
    values = [
        figures.filter(is_in, pl.col("format").is_in([kind] if kind else FORMATS)).with_columns(
            group=pl.lit(group), format=pl.lit(kind)
        )
        for (group, is_in), kind in itertools.product(groups.items(), formats)
    ]
    all_rows = pl.DataFrame([*itertools.product(systems, groups, formats)], ["system", "group", "format"], orient="row")
    rows = _averaged(pl.concat(values), ("group", "format")).rename({"items": "figures"})
    return all_rows.join(rows, on=all_rows.columns, how="left", maintain_order="left").select(*all_rows.columns, *_MEAN)


def _averaged(figures: pl.DataFrame, of: Sequence[str], seed: int = 0, baseline: str | None = None) -> pl.DataFrame:
    """Return the means of the averaged figures of each system; the signs of a task's figures are flipped together."""
    keys = ["system", *of]
    numbered = figures.filter("averaged").select(
        *keys, "task", "value", "draws", number=pl.int_range(pl.len()).over(keys), benchmark=pl.lit("scirepeval")
    )
    design = Design(row=("system",), of=of, item="number", group="benchmark", unit="task", resampled="draws")
    return estimate(numbered, design, seed, None if baseline is None else (baseline,))


def seeds(figures: pl.DataFrame, repeats: Sequence[pl.DataFrame]) -> Table:
    """Return the mean and standard deviation of the figures of probes over the seeds of their fits."""
    keys = ["task", "title", "measure", "system"]
    fits = pl.concat([figures, *repeats]).group_by(keys, maintain_order=True)
    frame = fits.agg(seeds=pl.len(), mean=pl.col("value").mean(), deviation=pl.col("value").std())
    frame = frame.filter(pl.col("seeds") > 1)
    cells = cells_of(frame.rename({"mean": "value"}), _TITLE, "system")
    texts = {key: str(cell) for key, cell in cells.items()}
    notes = (f"Mean and deviation over {frame['seeds'].max()} seeds of the fits; data and draws are the same.",)
    return grid("seeds", "SciRepEval: probes over seeds", "task", texts, notes, frame)


def differences(figures: pl.DataFrame, baseline: str, seed: int) -> pl.DataFrame:
    """Return how each system differs from the baseline over all figures (``format`` empty), then over each format's.

    A format without averaged figures has no row. ``value``, ``low``, ``high`` and ``figures`` are as in :func:`means`.
    ``effect`` is the difference divided by its standard deviation between tasks, null for one task. ``better`` is the
    number of higher figures. The interval resamples test items, with the same resamples for both systems. The test
    (p-value ``p``) flips the signs of the differences task by task, all figures of a task at once: it tests whether
    one system is better over tasks.
    """
    both = pl.concat([figures.with_columns(format=pl.lit("")), figures])
    by_format = _averaged(both, ("format",), seed, baseline).filter(pl.col("p").is_not_null())
    orders = {"system": _systems(figures), "format": ["", *FORMATS]}
    facts = {"value": "difference", "low": "difference_low", "high": "difference_high", "figures": "items"}
    columns = {"effect": "effect", "p": "p", "better": "wins"}
    frame = by_format.sort(*(pl.col(name).cast(pl.Enum(order)) for name, order in orders.items()))
    return frame.select("system", pl.lit(baseline).alias("baseline"), "format", **facts, **columns)


def averages(means: pl.DataFrame, printed_as: Mapping[str, str], edition: int, samples: Sequence[str]) -> Table:
    """Return the averages beside the published ones (table 2), which ``printed_as`` names for each system.

    The earlier edition has SciDocs apart. ``samples`` are the tasks that are evaluated on a training sample.
    """
    experiment, total = ("scirepeval", 20) if edition == 24 else ("scirepeval-25", 21)
    averages = means.filter(format="").drop("format")
    keys = averages.select("system", "group").rows()
    printed = [known.published(printed_as.get(name, name)).get(f"{experiment}.{group}") for name, group in keys]
    cells = cells_of(averages.with_columns(_ENDS), "system", "group", pl.lit("measured"))
    if any(printed):
        texts = (None if figure is None else f"{figure:.1f}" for figure in printed)
        cells |= {(name, Column("published", group)): text for (name, group), text in zip(keys, texts, strict=True)}
    figures_of = dict(averages.select("group", pl.col("figures").fill_null(0)).iter_rows())
    notes = [
        f"Means of {figures_of['in-train']} in-train and {figures_of['average'] - figures_of['in-train']} out-of-train "
        f"figures; of the whole benchmark 7 and {total}.",
        "Intervals: 95%, bootstrap over test items, with repetitions of few-shot rows, or over blocks of S2AND.",
    ]
    if samples:
        notes.append(f"Samples of training data, not comparable with published figures: {', '.join(samples)}.")
    frame = averages.select("system", "group", pl.Series("published", printed, pl.Float64), *_MEAN)
    return grid("averages", "SciRepEval: averages over tasks", "system", cells, notes, frame)


def best_of(means: pl.DataFrame) -> str:
    """Return the system with the best average over all tasks, for the index of reports; empty if there is none."""
    averaged = means.filter(group="average", format="").drop_nulls("value")
    best = averaged.sort("value", descending=True, maintain_order=True).head(1).rows(named=True)
    return "".join(f"{row['system']}: average {percent(row['value'])} (mean over tasks)" for row in best)


def formats(means: pl.DataFrame) -> Table:
    """Return the averages by format."""
    rows = means.filter(pl.col("group") != "average", pl.col("format") != "")
    cells = cells_of(rows.with_columns(_ENDS), "system", "format", pl.col("group"))
    return grid("formats", "SciRepEval: averages by format", "system", cells, frame=rows)


def codes(means: pl.DataFrame, columns: Mapping[str, str], system: str, edition: int) -> Table:
    """Return every format's tasks on the vectors of every format's encoder (table 3; table 4 of the earlier edition).

    ``columns`` has the encoder of each format, and of ad-hoc queries; ``means`` has their names with a tilde before.
    Published figures of ``system`` stand beside.
    """
    keys = ["group", "format", "vectors"]
    products = itertools.product(list(GROUPS)[:2], FORMATS, columns.items())
    rows = [(group, kind, column, f"~{name}") for group, kind, (column, name) in products]
    asked = pl.DataFrame(rows, [*keys, "system"], orient="row")
    printed = pl.read_csv(DATA / "reference/trainings/codes.csv").filter(system=system, edition=edition)
    frame = asked.join(printed.select(*keys, published="percent"), on=keys, how="left", maintain_order="left")
    frame = frame.join(means, on=["system", "group", "format"], maintain_order="left").drop("system")
    figures = frame.select(*keys, "value", published=pl.col("published") / 100)
    notes = [
        "Rows: format of the tasks. Columns: format of the vectors, of ad-hoc queries too. In parentheses: difference "
        "to the published figure, for which the paper takes one task per row."
    ]
    cells = cells_of(figures, pl.format("{}, {}", "format", "group"), "vectors")
    return grid("codes", "SciRepEval: confusion of formats", "tasks", cells, notes, frame)


def tasks(figures: pl.DataFrame) -> Table:
    """Return every figure, with the domain, files, items and mean time of its task."""
    frame = figures.with_columns(figure=pl.int_range(pl.len()).over("system")).sort("figure", maintain_order=True)
    several, highest = len(_systems(figures)) > 1, pl.col("value").max().over("figure")
    cells = cells_of(frame.with_columns(_ENDS, best=(pl.col("value") == highest) & several), _TITLE, "system")
    seconds = pl.col("seconds").mean().over("figure").map_elements("{:.0f} s".format, pl.String)
    trained = pl.when("in_train").then(pl.lit("in-train")).otherwise(pl.lit("out-of-train"))
    facts = pl.concat_str(trained, "files", formatted("items", ","), seconds, separator=", ")
    domain = pl.col("task").map_elements(domain_of, pl.String)
    shown = frame.select(_TITLE, domain=domain, **{"trained, files, items, mean time": facts})
    notes = ["Proximity and search rank by Euclidean distance, whatever the encoder's distance."]
    if "s2and" in figures["task"]:
        notes.append(
            "The interval of S2AND resamples test blocks alone. The fifth of the blocks that tunes it is fixed, and "
            "another fifth can move the figure by more than the interval holds."
        )
    names = ("task", "measure", "system", "value", "low", "high", "items", "in_train", "files", "seconds")
    return grid("tasks", "SciRepEval: tasks", "task", cells | texts_of(shown), notes, frame.select(names))


def parts(artifacts: FigureArtifacts, systems: Sequence[str]) -> Table | None:
    """Return the figures that one figure of a task averages, as the published code prints them; None without any.

    They are the row of all training papers and the few-shot rows, or the four figures of reviewer matching.
    """
    frames = [
        _with_intervals(figures).select(
            "value", "low", "high", "items", task=pl.lit(entry.name), title=pl.lit(entry.title), system=pl.lit(system),
            measure="figure",
        )
        for (entry, system), artifact in artifacts.items()
        if system in systems and _is_averaged(entry, figures := pl.DataFrame(artifact.arrow("figures.arrow")))
    ]  # fmt: skip
    if not frames:
        return None
    frame = pl.concat(frames)
    with_rows = pl.col("task").is_in([entry.name for entry in entries().values() if entry.few_shot])
    name, size = (pl.col("measure").str.split("@").list.get(place, null_on_oob=True) for place in (0, 1))
    label = pl.when(with_rows).then(pl.format("{}, {}", name, size.fill_null("all"))).otherwise("measure")
    cells = cells_of(frame.with_columns(_ENDS), pl.format("{}, {}", "title", label), "system")
    notes = (
        "A figure of the table of tasks is the mean of these. all: every training paper; a number: a few-shot row.",
    )
    columns = ("task", "measure", "system", "value", "low", "high", "items")
    return grid("parts", "SciRepEval: full and few-shot rows", "task", cells, notes, frame.select(columns))


def difference_table(differences: pl.DataFrame) -> Table:
    """Return the differences over all figures (:func:`differences`)."""
    frame = differences.filter(format="").drop("format")
    cells = cells_of(frame.with_columns(_ENDS), "system", pl.lit("difference"))
    better = pl.format("{} of {}", "better", "figures")
    texts = texts_of(frame.select("system", formatted("effect", "+.2f"), formatted("p", ".4f"), better=better))
    notes = (
        "p: paired permutation test, signs flipped task by task. Interval: bootstrap over test items. Effect: the "
        "difference over its deviation between tasks.",
    )
    title = f"SciRepEval: differences from {frame['baseline'][0]}"
    return grid("differences", title, "system", cells | texts, notes, frame)


def gains(differences: pl.DataFrame, provenance: str) -> Chart:
    """Return the gain of each system over the baseline by format (:func:`differences`), with 95% intervals."""
    category = pl.col("format").replace_strict({kind: category for category, kind in enumerate(FORMATS)})
    by_format = differences.filter(pl.col("format") != "").with_columns(category.alias("format"))
    title = f"Gain over {by_format['baseline'][0]} by format"
    views = {"difference": [*series(by_format, "system", "format")]}
    return Chart(title, "", "points", views, categories=FORMATS, provenance=provenance)


def leaks(artifacts: Mapping[str, Artifact]) -> Table:
    """Return how many test papers of each task are in training data."""
    frame = pl.concat(
        pl.DataFrame(artifact.arrow("leaks.arrow")).select(pl.lit(task).alias("task"), *LEAKS.names)
        for task, artifact in artifacts.items()
    )
    headers = {"training": "training data", "papers": "test papers", "ids": "in it by id", "titles": "by title alone"}
    return frame_table("leaks", "SciRepEval: test papers in training data", frame, shown=frame.rename(headers))


def counts(artifacts: FigureArtifacts, systems: Sequence[str]) -> Table:
    """Return the counts of each task with each system; the table shows those of the first system."""
    rows = [
        {"task": entry.name, "system": system, "count": name, "number": number}
        for (entry, system), artifact in artifacts.items()
        for name, number in artifact.manifest.counts.items()
        if system in systems and number and name != "figures"
    ]
    frame = pl.DataFrame(rows)
    shown = frame.unique(["task", "count"], keep="first", maintain_order=True).drop("system")
    shown = shown.with_columns(pl.col("count").str.replace_all("_", " "))
    return frame_table("counts", "SciRepEval: what was read and left out", frame, shown=shown)


def correlation_table(figures: pl.DataFrame) -> Table:
    """Return, for each figure, the figure that correlates most with it over systems; the CSV file has all pairs."""
    labels, matrix = correlations(figures)
    keys = pl.DataFrame([*itertools.product(labels, labels)], ["figure", "other"], orient="row")
    pairs = keys.with_columns(correlation=pl.Series(matrix.ravel())).fill_nan(None)
    pairs = pairs.with_columns(pl.when(pl.col("figure") != pl.col("other")).then("correlation"))
    highest = pl.col("correlation").max()
    other = pl.col("other").sort_by("correlation", descending=True, nulls_last=True, maintain_order=True).first()
    nearest = pl.when(highest.is_not_null()).then(other).alias("nearest")
    rows = pairs.group_by("figure", maintain_order=True).agg(nearest, highest)
    pairs, title = pairs.filter(pl.col("figure") != pl.col("other")), "SciRepEval: correlation of figures over systems"
    return frame_table("correlations", title, pairs, (), decimals=2, shown=rows)


def correlations(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return labels and Pearson's correlations over systems, ``[figures, figures]``; NaN for a constant figure."""
    names, values = _by_label(figures)
    with np.errstate(invalid="ignore", divide="ignore"):
        return names, np.corrcoef(values, rowvar=False).reshape(len(names), -1)


def _by_label(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return the labels of the figures, and float64 ``[systems, figures]``."""
    systems = figures.partition_by("system", maintain_order=True)
    return systems[0]["label"].to_list(), np.array([system["value"] for system in systems])


def _systems(figures: pl.DataFrame) -> list[str]:
    return list(figures["system"].unique(maintain_order=True))
