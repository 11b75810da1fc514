"""A report as records, one a figure: the rows of ``--json``, and of the CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.core.text import csv_cell
from pipeline.report.aggregate import of_sample
from pipeline.report.frame import as_json
from pipeline.report.model import AVERAGE, Report, Scored, Setup, Summary, unique

_OWN = ("year", "split", "seed", "depth", "k1", "b", "precision", "engine", "revision", "settings")
"""What identifies a row: columns of :data:`pipeline.report.frame.SCHEMA`; null in an average over different values."""


def records(report: Report) -> list[dict[str, Any]]:
    """Return every figure of every measure, with all that identifies and qualifies it.

    Values are fractions; ``low`` and ``high`` bound the interval over queries; ``size`` counts candidates. A figure
    over several samples has no ``sample``; the figures of each of its samples follow, without tests.
    """
    found = [_record(report, each) for each in report.summaries]
    several = {(each.system, each.field, each.size) for each in report.summaries if each.samples > 1}
    for sample in sorted({each.pool.sample for each in report.scored}):
        alone = of_sample(report, sample) if several else ()
        found += [_record(report, each, sample) for each in alone if (each.system, each.field, each.size) in several]
    return found


def render(report: Report) -> str:
    """Return the report as CSV (:func:`as_csv`)."""
    return as_csv(records(report))


def as_csv(found: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV with a header (texts: :func:`pipeline.core.text.csv_cell`).

    What is several is separated by ``;``, a missing value is empty.
    """
    lines = [{name: _cell(value) for name, value in each.items()} for each in found]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    joined = ";".join(map(str, value)) if isinstance(value, list) else value
    return csv_cell(joined) if isinstance(joined, str) else joined


def _record(report: Report, summary: Summary, sample: int | None = None) -> dict[str, Any]:
    own = _made_from(report, summary, sample)
    settings, samples = report.settings, sorted({each.pool.sample for each in own})
    tested = report.baselines.get(summary.system) if summary.p_value is not None else None
    return {
        "system": own[0].name,
        "label": summary.system,
        "corpus": own[0].corpus,
        "pool": summary.pools[0] if len(summary.pools) == 1 else None,
        "field": summary.field,
        "size": summary.size,
        "sample": samples[0] if len(samples) == 1 and summary.field != AVERAGE else None,
        "samples": samples,
        "measure": summary.measure,
        "value": summary.value,
        "deviation": summary.deviation,
        "low": summary.low,
        "high": summary.high,
        "level": settings.level,
        "p_value": summary.p_value,
        "p_adjusted": summary.p_adjusted,
        "baseline": tested,
        "queries": summary.queries,
        "positives": summary.positives,
        "queries_without_results": sum(each.counts["queries_without_results"] for each in own),
        "positives_not_in_collection": sum(each.pool.absent for each in own),
        **{name: _common([each.identity.get(name) for each in own]) for name in _OWN},
        "pool_settings": as_json(_shared([each.pool.settings for each in own])),
        "ties": "score descending, then paper id descending",
        "bootstrap_seed": settings.seed,
        "resamples": settings.resamples,
        "permutations": settings.permutations,
        "pools": list(summary.pools),
        "rankings": list(unique([str(each.identity["ranking"]) for each in own if "ranking" in each.identity])),
        "scores": list(unique([name for each in own for name in each.scores])),
    }


def _made_from(report: Report, summary: Summary, sample: int | None) -> list[Scored]:
    setup = Setup(summary.field, summary.size or 0)
    return [
        each
        for each in report.scored
        if each.system == summary.system
        and summary.measure in each.measures
        and each.pool.name in summary.pools
        and (summary.field == AVERAGE or each.pool.setup == setup)
        and sample in (None, each.pool.sample)
    ]


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in settings[0].items() if all(each.get(key) == value for each in settings)}


def _common(values: Sequence[Any]) -> Any:
    """Return the value that all share, or None."""
    return values[0] if all(value == values[0] for value in values) else None
