"""The page of a report: leaderboard, curves, fields, tables, and its queries one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.core.config import format_count
from pipeline.core.provenance import code_version
from pipeline.report import longcsv
from pipeline.report.caption import DATASET, listing, provenance, scope
from pipeline.report.identity import Chosen
from pipeline.report.model import AVERAGE, Family, Report, Setup, Summary
from pipeline.report.page.browse import browser
from pipeline.report.page.parts import Chart, Heat, Leaderboard, Page, Part, Series, TablePart
from pipeline.report.render import render_table
from pipeline.report.tables import build_tables, label_of, percent

_PLACES = list[tuple[float, str | None, int | None]]
"""Position on an axis, field and size."""


def page_of(report: Report, chosen: Sequence[Chosen]) -> Page:
    """Return the page of a report.

    Args:
        report: what :func:`pipeline.report.aggregate.summarise` made.
        chosen: what its scores were read from, in the order of ``report.scored``.
    """
    pools = {each.pool.name: each.pool for each in report.scored}
    setups = sorted({each.setup for each in pools.values()}, key=str)
    fields = {setup.field for setup in setups} - {None}
    what = f"{len(fields)} fields" if len(fields) > 1 else scope(report.scored[0])
    sizes = sorted({setup.size for setup in setups})
    span = format_count(sizes[0]) + (f" to {format_count(sizes[-1])}" if len(sizes) > 1 else "")
    queries = sum({each.pool.setup.field: len(each.queries) for each in report.scored}.values())
    about = f"{len(report.systems)} systems, {what}, {queries:,} queries, pools of {span} candidates."
    return Page(
        f"Retrieval on {report.scored[0].collection}",
        about,
        report_parts(report, chosen),
        facts_of(report),
        listing(report.scored[0], report.systems, best_of(report)),
    )


def best_of(report: Report) -> str:
    """Return the best row by the first measure: of the mean over fields, else of the largest pool."""
    family = next((family for family in report.families if family.kind == "fields"), report.families[0])
    field, size = (AVERAGE, family.size) if family.kind == "fields" else family.setups[-1]
    measure = report.measures[0]
    found = [each for system in report.systems if (each := report.find(system, field, size, measure))]
    if not found:
        return ""
    best = max(found, key=lambda each: each.value)
    where = "mean over fields" if field == AVERAGE else scope(report.within(family)[0])
    where += "" if size is None else f" {format_count(size)}"
    return f"{best.system}: {label_of(measure)} {percent(best.value)} ({where})"


def facts_of(report: Report) -> Mapping[str, str]:
    """Return what all figures of a report were made from."""
    first = report.scored[0].identity
    known = {"corpus": report.corpus, "pool settings": str(first.get("pool_settings", ""))}
    return {**known, "figures": provenance(report, report.scored), "code": code_version()}


def report_parts(report: Report, chosen: Sequence[Chosen] = ()) -> list[Part]:
    """Return all parts of a report's page; the query browser needs ``chosen``, as :func:`page_of`."""
    records = longcsv.records(report)
    parts: list[Part] = [leaderboard(report, records), *charts(report)]
    for number, (family, table) in enumerate(zip(report.families, build_tables(report), strict=True), 1):
        if family.kind == "fields":
            parts.append(heat(report, family))
        places = [*family.setups, (AVERAGE, family.size)]
        shown = longcsv.as_csv(each for each in records if (each["field"], each["size"]) in places)
        own = {"csv": shown, "tex": render_table(table, "latex")}
        parts.append(TablePart(f"table-{number}" if len(report.families) > 1 else "table", table, own))
    found = browser(chosen, report.scored, report.measures, report.settings) if chosen else None
    return [*parts, found] if found and found.pools else parts


def leaderboard(report: Report, records: Sequence[Mapping[str, Any]]) -> Leaderboard:
    """Return every figure over all samples, with what identifies it; the download has all of ``records``."""
    whole = records[: len(report.summaries)]
    shown = [each for each in whole if each["measure"] in report.measures]
    return Leaderboard("Leaderboard", shown, report.measures, report.settings.alpha, {"csv": longcsv.as_csv(records)})


def charts(report: Report) -> Iterator[Chart]:
    """Yield the curves over pool size, then the figures by field."""
    by_field = [family for family in report.families if family.kind == "fields"]
    by_size = [family for family in report.families if family.kind == "sizes"]
    averages = tuple(Setup(AVERAGE, family.size) for family in by_field if family.size is not None)
    for family in [*by_size, Family("sizes", averages)]:
        if len(family.setups) > 1:
            yield chart_of(report, family)
    yield from (chart_of(report, family) for family in by_field)


def chart_of(report: Report, family: Family) -> Chart:
    """Return the curve of a family over pool size, or its figures by field."""
    if family.kind == "sizes":
        field = family.setups[0].field or DATASET
        return Chart(
            title=f"Score against pool size ({'mean over fields' if field == AVERAGE else field})",
            x_label="candidates",
            unit="%",
            views=_views(report, [(setup.size, *setup) for setup in family.setups]),
            log=True,
            ticks={setup.size: format_count(setup.size) for setup in family.setups},
            provenance=provenance(report, report.scored),
        )
    places: _PLACES = [(number, *setup) for number, setup in enumerate(family.setups)]
    return Chart(
        title=f"Score by field{_at(family)}",
        x_label="",
        unit="%",
        views=_views(report, [*places, (len(places), AVERAGE, family.size)]),
        categories=[*(str(setup.field) for setup in family.setups), "mean"],
        provenance=provenance(report, report.within(family)),
    )


def heat(report: Report, family: Family) -> Heat:
    """Return fields by systems, coloured by value."""
    places = [*family.setups, (AVERAGE, family.size)]

    def value(system: str, place: tuple[str | None, int | None], measure: str) -> float | None:
        found = report.find(system, *place, measure)
        return None if found is None else found.value

    return Heat(
        title=f"Fields by systems{_at(family)}",
        corner="field",
        rows=[*(str(setup.field) for setup in family.setups), "mean"],
        columns=report.systems,
        views={
            label_of(measure): [[value(system, place, measure) for system in report.systems] for place in places]
            for measure in report.measures
        },
        provenance=provenance(report, report.within(family)),
    )


def _views(report: Report, places: _PLACES) -> dict[str, list[Series]]:
    views = {}
    for measure in report.measures:
        found = []
        for system in report.systems:
            points: list[tuple[float, Summary]] = []
            for x, field, size in places:
                summary = report.find(system, field, size, measure)
                points += [] if summary is None else [(x, summary)]
            own = [summary for _, summary in points]
            found.append(
                Series(
                    system,
                    [x for x, _ in points],
                    [each.value for each in own],
                    [each.low for each in own],
                    [each.high for each in own],
                )
            )
        views[label_of(measure)] = [series for series in found if series.x]
    return views


def _at(family: Family) -> str:
    return "" if family.size is None else f" ({format_count(family.size)} candidates)"
