"""MAP among candidates with title and abstract, where their lack tells positives from negatives."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.corpus.prefilter import PrefilterConfig, has_text
from pipeline.measure.hits import Hits
from pipeline.measure.inputs import Mask, Offsets, Qrels, Run
from pipeline.measure.measures import average_precision
from pipeline.measure.statistics import Floats, mean_of_means
from pipeline.scores.store import artifact, opened_pool
from pipeline.scores.tables import percent

_GAP = 0.01
"""Difference of the shares without an abstract from which on the figures are given."""


def precision_among(qrels: Qrels, run: Run, kept: Mask) -> Floats:
    """Return average precision with the papers ``kept`` alone, float64 ``[queries]``; NaN without positives."""
    positive, entry = kept[qrels.rows], kept[run.rows]
    cut_qrels = Qrels(_offsets(qrels.offsets, positive), qrels.rows[positive], qrels.grades[positive])
    cut_run = Run(_offsets(run.offsets, entry), run.rows[entry])
    with np.errstate(invalid="ignore"):
        return np.where(cut_qrels.positives() > 0, average_precision(Hits.of(cut_qrels, cut_run)), np.nan)


def _offsets(offsets: Offsets, kept: Mask) -> Offsets:
    counts: Offsets = np.concatenate([[0], np.cumsum(kept)])
    return counts[offsets]


def sentence(runs: pl.DataFrame, seed: int, *, by_field: bool) -> str:
    """Return the note of a table: MAP with its interval by system, for each size, or ``by_field`` the mean over fields.

    Only first samples whose positives and negatives differ in the share without an abstract count; empty without any.
    """
    if "pool_path" not in runs.columns:
        return ""
    gapped = runs.filter(pl.col("sample") == pl.col("sample").min().over("field", "size"))
    gapped = gapped.filter(pl.col("metadata_gaps").map_elements(differs, return_dtype=pl.Boolean))
    scopes = [gapped] if by_field else gapped.partition_by("size", maintain_order=True)
    texts = [text for scope in scopes if len(scope) for text in _of_scope(scope, seed, by_field)]
    return f"MAP among candidates with an abstract alone: {'; '.join(texts)}." if texts else ""


def differs(gaps: str) -> bool:
    """Whether positives and negatives lack abstracts in different shares (:func:`pipeline.corpus.marks.counted`)."""
    counts = json.loads(gaps).values()
    shares = [count["without_abstract"] / max(count["papers"], 1) for count in counts]
    return bool(shares) and max(shares) - min(shares) >= _GAP


def _of_scope(runs: pl.DataFrame, seed: int, by_field: bool) -> Iterator[str]:
    labels, groups = list(runs["label"].unique(maintain_order=True)), {}
    for part in runs.partition_by("pool", maintain_order=True):
        pool = opened_pool(part.row(0, named=True))
        if pool is None or part["label"].to_list() != labels:
            continue
        queries = len(pool.query_rows)
        qrels, kept = Qrels.from_table(pool.qrels, queries), has_text(pool.corpus.attributes, PrefilterConfig())
        tables = [artifact(run, "ranking").arrow("ranking.arrow") for run in part.iter_rows(named=True)]
        values = np.stack([precision_among(qrels, Run.from_table(table, queries), kept) for table in tables])
        answered = ~np.isnan(values[0])
        if answered.any():
            groups[part["field"][0] or ""] = values[:, answered]
    if groups:
        means = mean_of_means(groups, seed)
        shown = (
            f"{label} {percent(value)} [{percent(low)}, {percent(high)}]"
            for label, value, low, high in zip(labels, means.value, means.low, means.high, strict=True)
        )
        where = f"mean over {', '.join(groups)}" if by_field else format_count(runs["size"][0])
        yield f"{where}: {', '.join(shown)}"
