"""A report as one long CSV: a line for each figure, fractions in full precision, provenance in every line."""

from __future__ import annotations

import csv
import io

from pipeline.report.model import Report

_TIES = "score descending, then paper id descending"


def render(report: Report) -> str:
    """Return the report as CSV, UTF-8 text with a header; lists of pools are separated by ``;``, null is empty."""
    settings = report.settings
    provenance = {
        "baseline": settings.baseline,
        "corpus": report.corpus,
        "depth": report.depth,
        "ties": _TIES,
        "seed": settings.seed,
        "resamples": settings.resamples,
        "level": settings.level,
        "permutations": settings.permutations,
    }
    lines = [
        {
            "system": each.system,
            "field": each.field,
            "size": each.size,
            "measure": each.measure,
            "value": each.value,
            "deviation": each.deviation,
            "low": each.low,
            "high": each.high,
            "samples": each.samples,
            "queries": each.queries,
            "positives": each.positives,
            "p_value": each.p_value,
            "p_adjusted": each.p_adjusted,
            **provenance,
            "pools": ";".join(each.pools),
        }
        for each in report.summaries
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
