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

from pipeline.studies import kit
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Folder, Format

_SCIDOCS = pl.col("task").str.starts_with("scidocs_")
_LEAST_SYSTEMS = 3
"""Minimum number of systems of a correlation."""

GROUPS = {"in-train": pl.col("in_train"), "out-of-train": ~pl.col("in_train"), "average": pl.lit(True)}
GROUPS_OF_25 = {"in-train": pl.col("in_train"), "out-of-train": ~pl.col("in_train") & ~_SCIDOCS, "scidocs": _SCIDOCS,
                "average": pl.lit(True)}  # fmt: skip
"""Groups of the earlier edition, whose tables have SciDocs apart."""

FigureArtifacts = Mapping[tuple[Entry, str], kit.Artifact]
"""The figures of each task and system."""

_MEAN = ("value", "low", "high", "figures")
_ENDS = pl.col("low", "high").fill_null(pl.col("value"))
"""Ends of intervals; a value without an interval is its own end."""


def figures_of(artifacts: FigureArtifacts, folder: Folder) -> pl.DataFrame:
    """Return the reported figures of all tasks and systems."""
    reported = list[pl.DataFrame]()
    for (entry, system), artifact in artifacts.items():
        facts = {"system": pl.lit(system), "files": pl.lit(folder.state(entry))}
        facts["seconds"] = pl.lit(artifact.manifest.provenance["wall_seconds"])
        figures = counted_figures(entry, pl.DataFrame(artifact.arrow("figures.arrow")))
        reported.append(figures.with_columns(**facts))
    systems = pl.Enum(list(dict.fromkeys(system for _, system in artifacts)))
    return pl.concat(reported).sort(pl.col("system").cast(systems), maintain_order=True)


def counted_figures(entry: Entry, figures: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of one task and system (:data:`pipeline.studies.scirepeval.study.FIGURES`) as reported.

    Each measure of a ranking task is one figure. Few-shot rows are averaged with the row of all training papers
    (appendix A.3), and so are the four figures of reviewer matching (appendix A.2).
    """
    if len(figures) > 1 and entry.kind not in ("proximity", "search", "triplets"):
        names = figures["figure"].to_list()
        sizes = ", ".join(name.partition("@")[2] for name in names[1:])
        figure = f"{names[0]} (all, {sizes})" if entry.few_shot else ", ".join(entry.measures)
        parts = figures.with_columns(part=figures["figure"], figure=pl.lit(figure))
        design = kit.Design(row=(), of=("figure",), item="part", resampled="draws")
        mean = kit.estimate(parts, design, seed=0, keep_draws=True)
        figures = mean.select("figure", "value", "draws", items=pl.lit(figures["items"].min(), pl.Int64))
    task = pl.lit(entry.name)
    return _with_intervals(figures).select(
        "value", "items", "draws", task=task, title=pl.lit(entry.title), format=pl.lit(entry.format),
        in_train=pl.lit(entry.in_train), averaged=pl.lit(entry.averaged), measure="figure", low="low", high="high",
        label=task if len(figures) == 1 else pl.format("{} {}", task, "figure"),
    )  # fmt: skip


def _with_intervals(figures: pl.DataFrame) -> pl.DataFrame:
    ends = kit.estimate(figures, kit.Design(row=(), of=("figure",), item="figure", resampled="draws"), seed=0)
    several = pl.col("items") > 1
    return figures.with_columns(low=pl.when(several).then(ends["low"]), high=pl.when(several).then(ends["high"]))


def means(figures: pl.DataFrame, edition: int = 24) -> pl.DataFrame:
    """Return the averages of each system: ``system``, ``group`` (as the edition has), ``format`` (empty: all formats).

    ``value``, with its interval, is null without any of the ``figures`` that it averages.
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
    design = kit.Design(row=("system",), of=of, item="number", group="benchmark", unit="task", resampled="draws")
    return kit.estimate(numbered, design, seed, None if baseline is None else (baseline,))


def differences(figures: pl.DataFrame, baseline: str, seed: int) -> pl.DataFrame:
    """Return how each system differs from the baseline over all figures; empty without averaged figures.

    ``effect`` is the difference over its standard deviation between tasks, null for one task; ``better`` the number of
    higher figures. The interval resamples test items; the test (``p``) flips all figures of a task at once.
    """
    frame = _averaged(figures, (), seed, baseline).filter(pl.col("p").is_not_null())
    facts = {"value": "difference", "low": "difference_low", "high": "difference_high", "figures": "items"}
    columns = {"effect": "effect", "p": "p", "better": "wins"}
    frame = frame.sort(pl.col("system").cast(pl.Enum(_systems(figures))))
    return frame.select("system", pl.lit(baseline).alias("baseline"), **facts, **columns)


def averages(means: pl.DataFrame, printed_as: Mapping[str, str], edition: int, samples: Sequence[str]) -> kit.Table:
    """Return the averages beside the published ones (table 2), which ``printed_as`` names for each system.

    The earlier edition has SciDocs apart. ``samples`` are the tasks that are evaluated on a training sample.
    """
    experiment, total = ("scirepeval", 20) if edition == 24 else ("scirepeval-25", 21)
    averages = means.filter(format="").drop("format")
    keys = averages.select("system", "group").rows()
    printed = [kit.published_of(printed_as.get(name, name)).get(f"{experiment}.{group}") for name, group in keys]
    frame = averages.select("system", "group", pl.Series("published", printed, pl.Float64), *_MEAN)
    figures_of = dict(averages.select("group", pl.col("figures").fill_null(0)).iter_rows())
    notes = [
        f"Means of {figures_of['in-train']} in-train and {figures_of['average'] - figures_of['in-train']} out-of-train "
        f"figures; of the whole benchmark 7 and {total}. In parentheses: difference to the published figure.",
        "Intervals: 95%, bootstrap over test items, with repetitions of few-shot rows, or over blocks of S2AND.",
    ]
    if samples:
        notes.append(f"Samples of training data, not comparable with published figures: {', '.join(samples)}.")
    rows = frame.with_columns(_ENDS, pl.col("published") / 100)
    title = "SciRepEval: averages over tasks"
    return kit.table("averages", title, frame, "{system}", kit.figure(), notes, rows=rows, across="{group}")


def formats(means: pl.DataFrame) -> kit.Table:
    """Return the averages by format."""
    frame, title = means.filter(pl.col("group") != "average", pl.col("format") != ""), "SciRepEval: averages by format"
    layout = {"rows": frame.with_columns(_ENDS), "across": "{format}", "group": "{group}"}
    return kit.table("formats", title, frame, "{system}", kit.figure(), **layout)


def codes(means: pl.DataFrame, columns: Mapping[str, str], system: str, edition: int) -> kit.Table:
    """Return every format's tasks on the vectors of every format's encoder (table 3; table 4 of the earlier edition).

    ``columns`` has the encoder of each format, and of ad-hoc queries; ``means`` has their names with a tilde before.
    """
    keys = ["group", "format", "vectors"]
    products = itertools.product(list(GROUPS)[:2], FORMATS, columns.items())
    rows = [(group, kind, column, f"~{name}") for group, kind, (column, name) in products]
    asked = pl.DataFrame(rows, dict.fromkeys([*keys, "system"], pl.String), orient="row")
    printed = pl.read_csv(kit.DATA / "reference/trainings/codes.csv").filter(system=system, edition=edition)
    frame = asked.join(printed.select(*keys, published="percent"), on=keys, how="left", maintain_order="left")
    frame = frame.join(means, on=["system", "group", "format"], maintain_order="left").drop("system")
    notes = [
        "Rows: format of the tasks. Columns: format of the vectors, of ad-hoc queries too. In parentheses: difference "
        "to the published figure, for which the paper takes one task per row."
    ]
    shown, title = frame.with_columns(pl.col("published") / 100), "SciRepEval: confusion of formats"
    show, label = kit.figure(low=None, high=None), "tasks: {format}, {group}"
    return kit.table("codes", title, frame, label, show, notes, rows=shown, across="{vectors}")


def tasks(figures: pl.DataFrame) -> kit.Table:
    """Return every figure, with the files and the number of items of its task."""
    frame = figures.with_columns(figure=pl.int_range(pl.len()).over("system")).sort("figure", maintain_order=True)
    several, highest = len(_systems(figures)) > 1, pl.col("value").max().over("figure")
    trained = pl.when("in_train").then(pl.lit("in-train")).otherwise(pl.lit("out-of-train"))
    shown = frame.with_columns(_ENDS, best=(pl.col("value") == highest) & several, trained=trained)
    notes = ["Proximity and search rank by Euclidean distance, whatever the encoder's distance."]
    if "s2and" in figures["task"]:
        notes.append(
            "The interval of S2AND resamples test blocks alone. The fifth of the blocks that tunes it is fixed, and "
            "another fifth can move the figure by more than the interval holds."
        )
    names = ("task", "measure", "system", "value", "low", "high", "items", "in_train", "files", "seconds")
    label = "task, measure (trained, files, items): {title}, {measure} ({trained}, {files}, {items:,})"
    layout = {"rows": shown, "across": "{system}"}
    return kit.table("tasks", "SciRepEval: tasks", frame.select(names), label, kit.figure(), notes, **layout)


def difference_table(differences: pl.DataFrame, baseline: str) -> kit.Table:
    """Return the differences over all figures (:func:`differences`)."""
    notes = [
        "p: paired permutation test, signs flipped task by task. Interval: bootstrap over test items. Effect: the "
        "difference over its deviation between tasks.",
    ]
    shown: kit.Columns
    shown = {"difference": kit.figure(), "effect": "{effect:+.2f}", "p": "{p:.4f}", "better": "{better} of {figures}"}
    title = f"SciRepEval: differences from {baseline}"
    return kit.table("differences", title, differences, "{system}", shown, notes, rows=differences.with_columns(_ENDS))


def counts(artifacts: FigureArtifacts) -> kit.Table:
    """Return the counts of each task with each system; the table shows those of the first system."""
    rows = [
        {"task": entry.name, "system": system, "count": name, "number": number}
        for (entry, system), artifact in artifacts.items()
        for name, number in artifact.manifest.counts.items()
        if number and name != "figures"
    ]
    frame, title = pl.DataFrame(rows), "SciRepEval: what was read and left out"
    shown = frame.unique(["task", "count"], keep="first", maintain_order=True).drop("system")
    shown = shown.with_columns(pl.col("count").str.replace_all("_", " "))
    return kit.table("counts", title, frame, "{task}", {"count": "{count}", "number": "{number:,}"}, rows=shown)


def correlations(figures: pl.DataFrame) -> kit.Table:
    """Return, for each figure, the figure that correlates most with it over systems; the CSV file has all pairs.

    Pearson's correlation is null for a figure that is constant. Without enough systems there are none.
    """
    systems = figures.partition_by("system", maintain_order=True)
    labels, values = systems[0]["label"].to_list(), np.array([system["value"] for system in systems])
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = np.corrcoef(values, rowvar=False).reshape(len(labels), -1)
    keys = pl.DataFrame([*itertools.product(labels, labels)], ["figure", "other"], orient="row")
    pairs = keys.with_columns(correlation=pl.Series(matrix.ravel())).fill_nan(None)
    pairs = pairs.head(len(pairs) * (len(systems) >= _LEAST_SYSTEMS)).filter(pl.col("figure") != pl.col("other"))
    highest = pl.col("correlation").max()
    other = pl.col("other").sort_by("correlation", descending=True, nulls_last=True, maintain_order=True).first()
    nearest = pl.when(highest.is_not_null()).then(other).alias("nearest")
    rows = pairs.group_by("figure", maintain_order=True).agg(nearest, highest)
    title = "SciRepEval: correlation of figures over systems"
    shown = {"nearest": "{nearest}", "correlation": "{correlation:.2f}"}
    return kit.table("correlations", title, pairs, "{figure}", shown, rows=rows)


def efficiency(vectors: Mapping[tuple[str, Format], tuple[kit.Model, kit.Artifact]]) -> kit.Table:
    """Return the size and speed of each encoder of each system (table 4), from the runs that embedded papers.

    ``own_parameters`` are those of the format alone; ``cut`` is the percentage of papers that were cut at its length.
    """
    formats: dict[tuple[str, str], list[Format]] = {}
    for (system, kind), (model, _) in vectors.items():
        formats.setdefault((system, model.name), []).append(kind)
    rows = []
    for (system, encoder), kinds in formats.items():
        model, artifact = vectors[system, kinds[0]]
        segments = [segment.manifest for segment in kit.published(artifact.path.parent)]
        read, cut = (sum(segment.counts.get(name, 0) for segment in segments) for name in ("embedded", "truncated"))
        timed = [manifest for manifest in segments if "documents_per_second" in manifest.provenance]
        papers = sum(manifest.counts["embedded"] for manifest in timed)
        seconds = sum(manifest.counts["embedded"] / manifest.provenance["documents_per_second"] for manifest in timed)
        rows.append({
            "system": system, "encoder": encoder, "formats": ", ".join(kinds), "parameters": kit.parameters(model),
            "own_parameters": kit.own_parameters(model),
            "papers": papers, "papers_per_second": papers / seconds if timed else None,
            "cut": 100 * cut / read if read else None,
            "device": ", ".join(dict.fromkeys(manifest.provenance["device"] for manifest in timed)),
        })  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    notes = [
        "Papers per second while vectors were made, whatever else ran on the device; not tested. Parameters of files "
        "that are not safetensors: their bytes by four. Of the format: of its adapter, PALs or code alone. Cut: papers "
        "longer than the encoder reads.",
    ]
    shown = frame.rename(
        {"own_parameters": "of the format", "papers_per_second": "papers per second", "cut": "cut (%)"}
    )
    return kit.table("efficiency", "SciRepEval: efficiency", frame, "{system}", notes=notes, rows=shown)


def _systems(figures: pl.DataFrame) -> list[str]:
    return list(figures["system"].unique(maintain_order=True))
