"""The notes below a table: how to read it, and its provenance."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipeline.core.config import format_count
from pipeline.core.fields import MAG_FIELDS
from pipeline.corpus.marks import sentence
from pipeline.encode import registry
from pipeline.report.caption import DATASET, is_given, provenance
from pipeline.report.model import Family, Report, Scored, Summary, unique

_MISSING = {"ignore": "left out of denominators", "count": "counted in denominators"}


def notes(report: Report, family: Family, summaries: Sequence[Summary], compared: str) -> tuple[str, ...]:
    """Return the notes of a table, provenance last.

    ``compared`` says which figures are compared with each other, such as ``column``.
    """
    summaries = sorted(summaries, key=lambda each: (each.field or "", each.size or 0))
    scored = report.within(family)
    found = [_reading(report, summaries, compared), _significance(report, summaries)]
    found.append(_collection(summaries) if is_given(scored[0].pool.settings) else _pools(summaries))
    marks = sentence({each.pool.name: each.pool.marks for each in scored}.values())
    found += [_missing(scored), marks, _published(report, summaries), _parameters(scored), _measured(scored)]
    found.append(provenance(report, scored))
    return tuple(note for note in found if note)


def _reading(report: Report, summaries: Sequence[Summary], compared: str) -> str:
    several = any(each.samples > 1 for each in summaries)
    what = "mean over samples of the mean over queries" if several else "mean over queries"
    deviation = " ± standard deviation over samples" if several else ""
    systems = {each.system for each in summaries}
    depths = {each.depth for each in report.scored if each.system in systems}
    alike = " among rows of its depth" if len(depths) > 1 else ""
    best = f" Bold or *: best of its {compared}{alike}." if len(systems) > 1 else ""
    return f"Percent: {what}{deviation} [{report.settings.level:.0%} interval].{best}"


def _significance(report: Report, summaries: Sequence[Summary]) -> str:
    settings = report.settings
    if settings.baseline is None:
        return ""
    tested = {(each.field, each.size) for each in summaries if each.p_value is not None}
    bases = unique([report.baselines[each.system] for each in summaries if each.p_value is not None])
    own = {each.system for each in report.scored if settings.baseline in (each.system, each.name)}
    told = {each.system for each in summaries if each.p_value is not None}
    untested = unique([each.system for each in summaries if each.system not in {*told, *own}])
    lacking = f"Not tested against {settings.baseline}: {', '.join(untested)} (another depth or other samples)."
    if not tested:
        return lacking if untested else ""
    over = f" and Holm's correction over {len(tested)} pools" if len(tested) > 1 else ""
    base = bases[0] if len(bases) == 1 else f"the baseline of its depth ({', '.join(bases)})"
    found = (
        f"† differs from {base}: paired permutation test over "
        f"queries ({settings.permutations:,} sign flips, seed {settings.seed}){over}, p < {settings.alpha:g}."
    )
    return f"{found} {lacking}" if untested else found


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


def _collection(summaries: Sequence[Summary]) -> str:
    """Return the size of a collection that has queries of its own; a table by field has columns for it."""
    some, fields = summaries[0], {each.field for each in summaries}
    known = f"Collection: {some.size:,} documents, {some.queries:,} queries, {some.positives:,} positives."
    return known if fields == {None} else ""


def _missing(scored: Sequence[Scored]) -> str:
    without = {
        system: sum(each.counts["queries_without_results"] for each in scored if each.system == system)
        for system in unique([each.system for each in scored])
    }
    unjudged = sum({each.pool.name: each.counts["queries_without_positive"] for each in scored}.values())
    absent = sum({each.pool.name: each.pool.absent for each in scored}.values())
    named = ", ".join(f"{system} {count:,}" for system, count in without.items() if count)
    parts = [f"Queries without results, scored 0: {named}."] if named else []
    parts += [f"Queries without a positive, left out: {unjudged:,}."] if unjudged else []
    ways = {json.loads(each.identity.get("settings", "{}")).get("missing_positives", "ignore") for each in scored}
    told = _MISSING[ways.pop()] if len(ways) == 1 else "counted in denominators of the rows that say so"
    parts += [f"Positives that are not in the collection: {absent:,}, {told}."] if absent else []
    return " ".join(parts)


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
    names_of = {each.system: each.name for each in report.scored}
    for system in report.systems:
        figures = registry.published(names_of[system])
        names = [f"{experiment}.{measure}" for experiment in experiments for measure in report.measures]
        known = [f"{name} {registry.as_printed(figures[name])}" for name in names if name in figures]
        parts += [f"{system} {', '.join(known)}"] if known else []
    return f"Published, on the papers' own releases: {'; '.join(parts)}." if parts else ""


def _parameters(scored: Sequence[Scored]) -> str:
    """Return the parameters of each system, followed by their fields if they differ between fields."""
    named = []
    for system in unique([each.system for each in scored]):
        fields_of: dict[str, list[str]] = {}
        for each in scored:
            if each.system == system and each.parameters:
                fields_of.setdefault(each.parameters, []).append(each.pool.setup.field or DATASET)
        texts = [
            f"{text} ({', '.join(unique(fields))})" if len(fields_of) > 1 else text
            for text, fields in fields_of.items()
        ]
        named += [f"{system} {', '.join(texts)}"] if texts else []
    replaced = unique([each.system for each in scored if each.replaced])
    newest = f" Of several tunings the newest: {', '.join(replaced)}." if replaced else ""
    return (f"Parameters: {'; '.join(named)}." if named else "") + newest


def _measured(scored: Sequence[Scored]) -> str:
    systems = unique([each.system for each in scored])
    depth_of = {each.system: each.depth for each in scored}
    depths = sorted(set(depth_of.values()))
    tops = [
        f"the top {depth:,}"
        + (f" ({', '.join(s for s in systems if depth_of[s] == depth)})" if len(depths) > 1 else "")
        for depth in depths
    ]
    tied = ", ".join(f"{system} {_tied([e for e in scored if e.system == system]):.1%}" for system in systems)
    return (
        f"Measured on {' and '.join(tops)} of each query; denominators count all positives of the query in the pool. "
        f"Ranked entries with a tied score: {tied}."
    )


def _tied(scored: Sequence[Scored]) -> float:
    entries = sum(each.counts["retrieved"] for each in scored)
    tied = sum(each.counts["tied_share"] * each.counts["retrieved"] for each in scored)
    return tied / entries if entries else 0.0
