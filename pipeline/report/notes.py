"""The notes below a table: how to read it, and its provenance."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.config import format_count
from pipeline.core.fields import MAG_FIELDS
from pipeline.encode import registry
from pipeline.measure.statistics import interval_kind
from pipeline.report.model import Report, Summary, unique


def notes(report: Report, summaries: Sequence[Summary], compared: str) -> tuple[str, ...]:
    """Return the notes of a table, provenance last.

    Args:
        report: the report of the table.
        summaries: the figures of the table, without averages.
        compared: ``row`` or ``column``: which figures are compared with each other.
    """
    summaries = sorted(summaries, key=lambda each: (each.field or "", each.size or 0))
    pools = unique([name for each in summaries for name in each.pools])
    found = [_reading(report, summaries, compared), _significance(report, summaries), _pools(summaries)]
    found += [_missing(report), _published(report, summaries), _parameters(report), _measured(report)]
    found.append(provenance(report, pools))
    return tuple(note for note in found if note)


def provenance(report: Report, pools: Sequence[str]) -> str:
    """Return what the figures were made from, and with which settings."""
    settings = report.settings
    kinds = " or ".join(sorted({interval_kind(each.queries) for each in report.summaries}))
    drawn = f", drawn with seed {', '.join(map(str, report.pool_seeds))}" if report.pool_seeds else ""
    return (
        f"Provenance: corpus {report.corpus}; pools {', '.join(pools)}{drawn}; ties: score descending, then paper id "
        f"descending; bootstrap over queries: {settings.resamples:,} resamples, {settings.level:.0%} {kinds} interval, "
        f"seed {settings.seed}."
    )


def _reading(report: Report, summaries: Sequence[Summary], compared: str) -> str:
    several = any(each.samples > 1 for each in summaries)
    what = "mean over samples of the mean over queries" if several else "mean over queries"
    deviation = " ± standard deviation over samples" if several else ""
    best = f" Bold or *: best of its {compared}." if len(report.systems) > 1 else ""
    return f"Percent: {what}{deviation} [{report.settings.level:.0%} interval].{best}"


def _significance(report: Report, summaries: Sequence[Summary]) -> str:
    settings = report.settings
    tested = {(each.field, each.size) for each in summaries if each.p_value is not None}
    if not tested:
        return ""
    over = f" and Holm's correction over {len(tested)} pools" if len(tested) > 1 else ""
    return (
        f"† differs from {settings.baseline}: paired permutation test over queries ({settings.permutations:,} sign "
        f"flips, seed {settings.seed}){over}, p < {settings.alpha:g}."
    )


def _pools(summaries: Sequence[Summary]) -> str:
    """Return the samples of the pools; also queries and positives if the table has no columns for them."""
    facts: dict[tuple[str | None, int | None], tuple[int, int, int]] = {}
    for each in summaries:
        place = (each.field, each.size)
        facts[place] = max(facts.get(place, (0, 0, 0)), (each.samples, each.queries, each.positives))
    if len({field for field, _ in facts}) > 1:
        samples = sorted({each[0] for each in facts.values()})
        return f"Samples of each field's pool: {' or '.join(map(str, samples))}."
    parts = [
        f"{format_count(size or 0)} in {samples} sample{'s' * (samples > 1)}, {queries:,} queries, "
        f"{positives:,} positives"
        for (_, size), (samples, queries, positives) in facts.items()
    ]
    return f"Pools: {'; '.join(parts)}."


def _missing(report: Report) -> str:
    without = [f"{system} {count:,}" for system, count in report.without_results.items() if count]
    empty = f"Queries without results, scored 0: {', '.join(without)}." if without else ""
    unjudged = f"Queries without a positive, left out: {report.without_positive:,}." if report.without_positive else ""
    return " ".join(part for part in (empty, unjudged) if part)


def _published(report: Report, summaries: Sequence[Summary]) -> str:
    """Return the published figures of the encoders shown, if the pools are of the kind of a published experiment."""
    fields = {each.field for each in summaries}
    sizes = unique([format_count(each.size or 0) for each in summaries])
    experiments: list[str] = []
    if fields == {None}:
        scifact = report.corpus.startswith("scifact-")
        experiments = ["scifact"] if scifact else [f"dataset-{size}" for size in sizes]
    elif len(fields) == len(MAG_FIELDS) and "100k" in sizes:
        experiments = ["fields"]
    parts = []
    for system in report.systems:
        figures = registry.published(system)
        names = [f"{experiment}.{measure}" for experiment in experiments for measure in report.measures]
        known = [f"{name} {registry.as_printed(figures[name])}" for name in names if name in figures]
        parts += [f"{system} {', '.join(known)}"] if known else []
    return f"Published, on the papers' own releases: {'; '.join(parts)}." if parts else ""


def _parameters(report: Report) -> str:
    named = "; ".join(f"{system} {parameters}" for system, parameters in report.parameters.items())
    return f"Parameters: {named}." if named else ""


def _measured(report: Report) -> str:
    tied = ", ".join(f"{system} {share:.1%}" for system, share in report.tied.items())
    return (
        f"Measured on the top {report.depth:,} of each query; denominators count all positives of the query in the "
        f"pool. Ranked entries with a tied score: {tied}."
    )
