"""A report as one long CSV: a line for each figure, fractions in full precision, provenance in every line."""

from __future__ import annotations

import csv
import dataclasses
import io

from pipeline.report.model import Report


def render(report: Report) -> str:
    """Return the report as CSV with a header; pools are separated by ``;``, a missing value is empty."""
    settings = report.settings
    provenance = {
        "baseline": settings.baseline,
        "corpus": report.corpus,
        "depth": report.depth,
        "ties": "score descending, then paper id descending",
        "seed": settings.seed,
        "resamples": settings.resamples,
        "level": settings.level,
        "permutations": settings.permutations,
    }
    lines = []
    for each in report.summaries:
        line = dataclasses.asdict(each)
        pools = line.pop("pools")
        lines.append({**line, **provenance, "pools": ";".join(pools)})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
