"""The study ``mdcr_eval``: systems on a benchmark in the published layout (Medić & Šnajder 2022, tables 3 and 4)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import Floats
from pipeline.studies.mdcr.evaluation import Recipe, evaluated, read_evaluation
from pipeline.studies.mdcr.lists import DEPTH, GRAPH, MEASURES, MOST_CITED, RANDOM, Lists

BY_CHANCE, OF_SYSTEMS = "random order", "mean of systems"
"""Rows of table 4 that are not of a system."""

MEANINGS = {
    GRAPH: "near the query in the citation graph, not cited",
    MOST_CITED: "among the most cited of the field, not cited",
    RANDOM: "any paper, not cited",
}
"""Meaning of each type of negatives; other types have the name of the system that ranks them high."""

_ALPHA = 0.05
_MEASURE = pl.col("measure").cast(pl.Enum(MEASURES))


NEEDS = (
    "Build one first, mdcr study mdcr, or give a folder with --input; the published one: curl --create-dirs "
    "--output-dir benchmark -O 'https://takelab.fer.hr/data/mdcr/mdcr_test{.json,_data.jsonl}'"
)


@kit.study("mdcr_eval", "score systems on a benchmark in the MDCR layout", Recipe, needs=NEEDS)
def mdcr_eval(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return tables 3 and 4, published figures beside ours, and the queries one by one."""
    if recipe.baseline:
        kit.check_baseline(recipe.baseline, recipe.systems)
    corpus, evaluations = yield from evaluated(workspace, recipe)
    runs = kit.runs_of(workspace.runner, evaluations)
    runs = runs.with_columns(pl.lit("benchmark").alias("kind"))  # one row per system, whatever the length of its lists
    scores, draws = kit.values(runs), kit.Draws(seed=recipe.seed)
    baseline = next(iter(kit.labels_of(runs, recipe.baseline)), None) if recipe.baseline else None
    summary = kit.summarise(scores, runs, baseline=baseline, draws=draws)
    lists_of: dict[str, Lists] = {}
    values_of: defaultdict[tuple[str, str], dict[str, Floats]] = defaultdict(dict)
    scores_of: dict[str, dict[str, float]] = {}
    for evaluation in evaluations:
        lists, ranking = read_evaluation(workspace, evaluation)
        lists_of[lists.pool.artifact.name] = lists
        if recipe.score_files:
            scores_of.setdefault(evaluation.system.title, {}).update(lists.scores(ranking))
        for name in lists.types:
            values_of[evaluation.system.title, name][lists.field] = lists.values(ranking, MEASURES, {name})
    systems = list(dict.fromkeys(evaluation.system.title for evaluation in evaluations))
    for lists in lists_of.values():
        for name in lists.types:
            of_systems = [values_of[system, name][lists.field] for system in systems]
            values_of[OF_SYSTEMS, name][lists.field] = np.mean(of_systems, axis=0)
            values_of[BY_CHANCE, name][lists.field] = lists.values_by_chance(MEASURES, {name}, recipe.seed)
    types = types_frame(values_of, baseline, recipe.seed)
    report = kit.report_of(runs, [summary], MEASURES)
    browser = kit.browser(runs, scores, MEASURES)

    notes = ["BM25 counts the documents of all lists of a field."]
    configs = [lists.pool.artifact.manifest.config for lists in lists_of.values()]
    if short_fields := [config["field"] for config in configs if config["longest"] <= DEPTH]:
        reason = f"no list has more than {DEPTH} candidates"
        notes.append(f"recall@{DEPTH} is 1 by construction in {', '.join(short_fields)}: {reason}.")
    (table,) = report.tables
    title = f"{kit.resolved(Path(recipe.input)).name}, {recipe.split}"
    fields = with_paper(table.frame, "benchmark")
    table = replace(table, name="fields", title=title, notes=(*table.notes, *notes), frame=fields)
    tables = [table, types_table(types, baseline), *published_table(fields)]
    sources = [corpus.name, *lists_of]
    files = {f"scores-{kit.file_name(name, kept='._')}.json": json.dumps(of) for name, of in scores_of.items()}
    return replace(report, tables=tables, figures={}, parts=[*report.parts, browser], sources=sources, files=files)


def types_frame(
    values: Mapping[tuple[str, str], Mapping[str, Floats]], baseline: str | None, seed: int
) -> pl.DataFrame:
    """Return table 4: the measures of each system on each candidate type, mean over the fields that have the type.

    ``values`` are float64 ``[measures, queries]`` on the positives and the negatives of one type, by (system, type) and
    field. Columns: ``system``, ``type``, ``measure``, the mean ``value`` with ``low`` and ``high``, ``p_adjusted`` by
    Holm's correction over types (null without a test), and ``paper``, the published figure.
    """
    frames = [
        kit.tall(fields, pl.DataFrame({"system": system, "field": name, "measure": MEASURES}))
        for (system, name), fields in values.items()
    ]
    design = kit.Design(row=("system",), of=("field",), item="item", group="group", family=("system",))
    compared = {system for system, _ in values} - {baseline, OF_SYSTEMS}
    found = kit.estimate(pl.concat(frames), design, seed, {(system,): (baseline,) for system in compared})
    frame = found.select("system", "field", "measure", "value", "low", "high", "p_adjusted")
    systems = pl.Enum(list(dict.fromkeys(frame["system"])))
    frame = frame.sort(pl.col("system").cast(systems), _MEASURE, maintain_order=True)
    return with_paper(frame, "benchmark-type").rename({"field": "type"})


def types_table(types: pl.DataFrame, baseline: str | None) -> kit.Table:
    """Return :func:`types_frame` as a table."""
    notes = [
        f"Percent: mean over fields of the {types['type'].n_unique()} types alone, with all positives [95% interval]. "
        "Random order: the mean of random rankings of the same lists."
    ]
    if baseline is not None:
        notes.append(f"† differs from {baseline}: paired permutation test, Holm's correction over types, p < 0.05.")
    marks = pl.when(pl.col("p_adjusted") < _ALPHA).then(pl.lit("†")).otherwise(pl.lit(""))
    label = pl.col("measure").replace_strict({name: kit.label_of(name) for name in MEASURES})
    rows = types.filter(pl.col("measure") != "ndcg").sort(_MEASURE, maintain_order=True)
    layout = {"rows": rows.with_columns(marks=marks, label=label), "across": "{system}", "group": "{label}"}
    return kit.table("types", "Candidate types", types, "{type}", kit.figure(), notes, **layout)


def with_paper(frame: pl.DataFrame, experiment: str) -> pl.DataFrame:
    """Add the column ``paper``: the published figure, a fraction; null if there is none."""
    field_key = pl.concat_str(pl.lit(f"{experiment}."), "field")
    key = pl.when(pl.col("field") == kit.AVERAGE).then(pl.lit(experiment)).otherwise(field_key)
    return kit.with_published(frame, key).drop("difference").rename({"published": "paper"})


def published_table(fields: pl.DataFrame) -> list[kit.Table]:
    """Return the table of figures beside the published ones; an empty list if none is published."""
    percent = pl.col("value", "low", "high", "paper") * 100
    compared = fields.filter(pl.col("paper").is_not_null()).select("field", "system", "measure", percent)
    compared = compared.rename({"value": "here"})
    note = "Percent. The paper's benchmark comes from S2ORC; another corpus or other candidates give other figures."
    title = "Next to the figures of the papers"
    return [kit.table("paper", title, compared, "{field}", notes=[note])] if len(compared) else []
