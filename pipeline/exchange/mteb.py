"""Export to MTEB: a file of tasks for exported folders, and results as its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core import files
from pipeline.core.config import file_name
from pipeline.core.errors import InputError
from pipeline.core.install import optional
from pipeline.core.progress import warn
from pipeline.data import DATA
from pipeline.encode.names import HUB, parse
from pipeline.measure.measures import parse_measures

TASKS = "mteb_tasks.py"


def write_tasks(output: Path) -> Path:
    """Write the file whose ``tasks()`` returns the tasks of the folders beside it; return its path."""
    files.write_text(output / TASKS, (DATA / "templates" / "mteb_tasks.txt").read_text(encoding="utf-8"))
    return output / TASKS


def write_results(folder: Path, scores: pl.DataFrame, corpora: Mapping[str, Mapping[str, Any]]) -> Iterator[Path]:
    """Write the scores on MTEB tasks as MTEB result files and yield their paths; other scores are skipped.

    As in MTEB, a query without a positive scores 0.

    Args:
        folder: receives ``results/MODEL/REVISION/TASK.json``, which ``mteb.ResultCache(folder)`` reads.
        scores: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`.
        corpora: configuration of each corpus by folder name.

    Raises:
        InputError: there are no scores on a task, or a task's main score is missing or ignores missing positives.
    """
    of_mteb = [name for name, config in corpora.items() if config["source"] == "mteb"]
    task_scores = scores.filter(pl.col("corpus").is_in(of_mteb))
    if task_scores.is_empty():
        raise InputError("scores for mteb must be on its tasks, got none", "Build a corpus with --source mteb first")
    if others := scores["corpus"].n_unique() - task_scores["corpus"].n_unique():
        warn(f"left out: scores on {others} corpora that are not tasks of mteb")
    from pipeline.sources.mteb import find_task  # here, because it brings a client of HTTP

    mteb = optional("mteb", "--format mteb")
    cache = mteb.ResultCache(folder)
    for rows in task_scores.partition_by("pool", "ranking", "label", maintain_order=True):
        first_row = rows.row(0, named=True)
        corpus, system, release = first_row["corpus"], first_row["system"], corpora[first_row["corpus"]]["release"]
        if first_row["positives_not_in_collection"] and first_row["missing_positives"] != "count":
            raise InputError(
                f"{system} on {corpus} must count all positives", "Score it with --missing-positives=count"
            )
        task = find_task(release["task"])
        sums = rows.group_by("measure", maintain_order=True).agg(pl.col("value").sum() / pl.col("queries").first())
        values = {_mteb_measure(measure): value for measure, value in sums.iter_rows()}
        if (main := task.metadata.main_score) not in values:
            name = main.replace("_at_", "@")
            remedy = f"Score it with --measures={name} --depth={name.partition('@')[2] or 1000}"
            raise InputError(f"{system} on {release['task']} must have {main}, got {', '.join(values)}", remedy)
        by_subset = {release["subset"]: {**values, "main_score": values[main]}}
        result = mteb.TaskResult.from_task_results(task, {release["judged"]: by_subset}, None)
        result.dataset_revision = release["revision"] or task.metadata.revision
        model = _model(mteb, system, first_row["revision"] or "main")
        cache.save_to_cache(result, model)
        yield cache.get_task_result_path(task.metadata.name, model)


def _mteb_measure(measure: str) -> str:
    (parsed,) = parse_measures(measure)
    return parsed.name if parsed.cutoff is None else f"{parsed.name}_at_{parsed.cutoff}"


def _model(mteb: Any, system: str, revision: str) -> Any:
    """Return mteb's metadata of a system: a name and a revision."""
    (encoder,) = parse(system)
    name = encoder.base.removeprefix(HUB) if encoder.base.startswith(HUB) else f"mdcr/{file_name(system, kept='._-')}"
    return mteb.models.ModelMeta.create_empty({"name": name, "revision": revision})
