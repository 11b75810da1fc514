"""Export of scores for model cards of the hub: ``.eval_results`` of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from pipeline.core import files
from pipeline.core.config import counted, file_name
from pipeline.measure.design import Design, estimate

EVAL_RESULTS = "eval_results"
"""The format of scores, a file for every system."""

_DISTRIBUTION = "mdcr-pipeline"
_SEED = 13


def write_scores(folder: Path, scores: pl.DataFrame) -> Iterator[Path]:
    """Write the means of scores on each pool, with 95% intervals, and yield the paths.

    Args:
        folder: receives ``SYSTEM/.eval_results/mdcr.yaml``.
        scores: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`.
    """
    design = Design(row=("label",), of=("pool",), group="field")
    facts = scores.select("label", "pool", "system", "corpus", "revision", "ranking").unique(["label", "pool"])
    means = estimate(scores, design, _SEED).join(facts, on=["label", "pool"], maintain_order="left")
    for rows in means.partition_by("label", maintain_order=True):
        name = file_name(rows["label"][0], kept="._-")
        path = folder / name / ".eval_results" / "mdcr.yaml"
        content = yaml.safe_dump([_eval_result(row) for row in rows.iter_rows(named=True)], sort_keys=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, content)
        yield path


def _eval_result(row: dict[str, Any]) -> dict[str, Any]:
    interval = "" if row["low"] is None else f", 95% interval {100 * row['low']:.2f} to {100 * row['high']:.2f}"
    made = f"{_DISTRIBUTION} {version(_DISTRIBUTION)}, pool {row['pool']}, ranking {row['ranking']}"
    notes = f"{row['measure']} in percent over {counted(row['items'], 'query')}{interval}; {made}"
    task = file_name(f"{row['pool']}-{row['measure']}", kept="._-")
    return {"dataset": {"id": row["corpus"], "task_id": task}, "value": 100 * row["value"], "notes": notes}
