"""Pages as HTML, and their index. A page is one file with styles, scripts, chart library and data; it loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from pipeline.core import files
from pipeline.core.config import counted
from pipeline.scores.page.browse import pack
from pipeline.scores.page.parts import Browser, Chart, Page, Part
from pipeline.scores.render import render_table
from pipeline.scores.tables import Cell, Table, TableRow, Value, groups

NAME = "index.html"
"""File name of a page, and of the index of pages."""

LIBRARY = "vendor/chart.umd.min.js"
LIBRARY_VERSION = "Chart.js 4.6.1"
_SCRIPTS = ("tables.js", "charts.js", "queries.js", "start.js")
_MIN_FILTER_ROWS = 8
"""Minimum rows of a table with a filter."""
_MAX_TABLES = 4
"""Maximum number of tables that a page shows without folding any."""


class _PageBuilder:
    """A page under construction.

    Attributes:
        main: data that scripts read on load, one block.
        blocks: further blocks (:func:`pack`) by element id, decoded on demand.
    """

    def __init__(self) -> None:
        self.main: dict[str, Any] = {"charts": [], "records": [], "files": {}, "pools": []}
        self.blocks: dict[str, str] = {}

    def build(self, part: Part) -> str:
        """Return a part as HTML, and collect its data."""
        return _BUILDERS[type(part)][1](self, part)

    def _table(self, part: Table) -> str:
        notes = [note for note in part.notes if not note.startswith("Provenance: ")]
        provenance = next((note for note in part.notes if note not in notes), part.source)
        notes_html = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
        records = range(len(self.main["records"]), len(self.main["records"]) + len(part.records))
        self.main["records"] += [dict(record) for record in part.records]
        downloads = {} if part.frame.is_empty() else {"csv": render_table(part, "csv")}
        downloads["tex"] = render_table(part, "latex")
        tools = self.tools(part.name, downloads, len(part.lines))
        return tools + _table(part, records) + notes_html + _provenance(provenance)

    def _chart(self, part: Chart) -> str:
        spec = {name: getattr(part, name) for name in ("x_label", "unit", "log", "categories")}
        views = {name: [vars(series) for series in of_view] for name, of_view in part.views.items()}
        self.main["charts"].append(spec | {"views": views, "ticks": list(part.ticks.items())})
        number, label = len(self.main["charts"]) - 1, escape(f"Chart: {part.title}. The tables have its figures.")
        canvas = f'<div class="canvas"><canvas role="img" tabindex="0" aria-label="{label}"></canvas></div>'
        return f'<div data-chart="{number}">{_views(part.views)}{canvas}</div>' + _provenance(part.provenance)

    def _browser(self, part: Browser) -> str:
        first = len(self.main["pools"])
        for label, block in part.pools.items():
            name = f"pool-{len(self.main['pools'])}"
            self.main["pools"].append({"label": label, "block": name})
            self.blocks[name] = block
        attributes = f'data-browser data-first="{first}" data-end="{len(self.main["pools"])}"'
        skeleton = _read("browser.html").replace("data-browser", attributes, 1)
        return f'<p class="note">{escape(part.note)}</p>{skeleton}'

    def tools(self, name: str, downloads: Mapping[str, str], rows: int) -> str:
        """Return the filter of a table, if it has many rows, and its downloads."""
        self.main["files"] |= {f"{name}.{suffix}": text for suffix, text in downloads.items()}
        buttons = "".join(
            f'<button type="button" data-file="{escape(f"{name}.{suffix}")}" aria-label="{kind} of {escape(name)}">'
            f"{kind}</button>"
            for suffix, kind in (("csv", "CSV"), ("tex", "LaTeX"))
            if suffix in downloads
        )
        search = (
            '<label>Filter <input type="search" data-filter autocomplete="off"></label>'
            '<span class="found" aria-live="polite"></span>'
        )
        return f'<div class="tools">{search if rows >= _MIN_FILTER_ROWS else ""}{buttons}</div>'


_BUILDERS: dict[type[Any], tuple[str, Callable[[_PageBuilder, Any], str]]] = {
    Table: ("Tables", _PageBuilder._table),
    Chart: ("Charts", _PageBuilder._chart),
    Browser: ("Browse", _PageBuilder._browser),
}
"""Heading in the navigation, and method, for each type of part."""


def as_html(page: Page) -> str:
    """Return a page as the text of one HTML file; the text depends only on the page.

    A page of many tables shows the first, and folds the others.
    """
    builder = _PageBuilder()
    sections, links = [], dict[str, list[str]]()
    tables = [part for part in page.parts if isinstance(part, Table)]
    folded = tables[1:] if len(tables) > _MAX_TABLES else []
    for number, part in enumerate(page.parts):
        heading, content = f"<h2>{escape(part.title)}</h2>", builder.build(part)
        if any(part is table for table in folded):
            heading, content = "", f'<details class="folded"><summary>{heading}</summary>{content}</details>'
        sections.append(f'<section id="s{number}">{heading}{content}</section>')
        link_text = re.split(r" \(|, ", part.title)[0] if isinstance(part, Table) else part.title
        links.setdefault(_BUILDERS[type(part)][0], []).append(f'<a href="#s{number}">{escape(link_text)}</a>')
    blocks = {"main": pack(builder.main, {}), **builder.blocks}
    has_charts = any(isinstance(part, Chart | Browser) for part in page.parts)
    return _file(page, sections, links, blocks, has_charts=has_charts)


def _file(
    page: Page,
    sections: Sequence[str],
    links: Mapping[str, Sequence[str]],
    blocks: Mapping[str, str],
    *,
    has_charts: bool = False,
) -> str:
    scripts = ['"use strict";(() => {\n' + "\n".join(map(_read, _SCRIPTS)) + "})();"]
    notice = library = ""
    if has_charts:
        source, _, _ = _read(LIBRARY).rpartition("//# sourceMappingURL")
        scripts.insert(0, source.strip())
        notice = f"<!-- {LIBRARY_VERSION}\n{_read('vendor/LICENSE-chart.js.md').strip()}\n-->\n"
        library = f" Charts: {LIBRARY_VERSION}, MIT licence."
    style, found = _read("page.css"), "".join(f"<li>{escape(sentence)}</li>" for sentence in page.findings)
    data = "\n".join(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in blocks.items())
    values = {
        "title": escape(page.title),
        "about": escape(page.about),
        "findings": f'<ul class="findings" aria-label="What it shows">{found}</ul>' if found else "",
        "script_hashes": " ".join(f"'{_hash(script)}'" for script in scripts),
        "style_hash": _hash(style),
        "style": style,
        "nav": "".join(
            f'<div role="group" aria-label="{name}"><span>{name}</span>{" ".join(group)}</div>'
            for name, group in links.items()
        ),
        "body": "\n".join(sections),
        "facts": _facts(page.facts),
        "library": library,
        "blocks": data,
        "scripts": notice + "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    template = Template(_read("page.html"))
    size = len(template.substitute(values, size="0,000 kB").encode("utf-8", "replace"))
    size_text = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return template.substitute(values, size=size_text)


@functools.cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return f"<details><summary>Provenance of this page</summary><dl>{rows}</dl></details>" if rows else ""


def _provenance(text: str) -> str:
    paragraph = f"<p>{escape(text.removeprefix('Provenance: '))}</p>"
    return f"<details><summary>Provenance</summary>{paragraph}</details>" if text else ""


def _views(views: Mapping[str, Any]) -> str:
    if len(views) < 2:
        return ""
    options = "".join(f"<option>{escape(name)}</option>" for name in views)
    return f'<div class="tools"><label>Show <select data-view>{options}</select></label></div>'


def _table(table: Table, record_ids: Sequence[int]) -> str:
    spans = groups(table.columns)
    group_row = ""
    if any(label for label, _ in spans):
        cells = "".join(f'<th scope="colgroup" colspan="{count}">{escape(label)}</th>' for label, count in spans)
        group_row = f"<tr><td></td>{cells}</tr>"
    group_starts = set(itertools.accumulate((count for _, count in spans), initial=0)) if group_row else set()
    heads = _header(table.corner, label=True)
    for number, column in enumerate(table.columns):
        heads += _header(column.label, label=column.text, start=number in group_starts, choose=column.choose)
    each = len(record_ids) == sum(isinstance(value, Cell) for line in table.lines for value in line.values)
    records, bodies = iter(record_ids), ""
    for summary in (False, True):
        rows = "".join(
            f'<tr><th scope="row">{_breakable(line.label)}</th>{_cells(table, line, records, each=each)}</tr>'
            for line in table.lines
            if line.summary == summary
        )
        bodies += f"<tbody{' class=summary' * summary}>{rows}</tbody>" if rows else ""
    return _scrollable(table.title, f"{group_row}<tr>{heads}</tr>", bodies, table.name)


def _scrollable(title: str, head: str, body: str, name: str = "") -> str:
    caption = f'<caption class="hidden">{escape(title)}</caption>' if title else ""
    named = f' data-table="{escape(name)}"' if name else ""
    return f'<div class="scroll"><table class="sortable"{named}>{caption}<thead>{head}</thead>{body}</table></div>'


def _header(text: str, *, label: bool = False, start: bool = False, choose: str = "") -> str:
    kind = ' class="label"' if label else ' class="start"' if start else ""
    kind += f' data-choose="{choose}"' if choose else ""
    return f'<th scope="col"{kind}><button type="button" data-sort>{_breakable(text) or "·"}</button></th>'


def _cells(table: Table, line: TableRow, records: Iterator[int], *, each: bool) -> str:
    """Return the cells of a line as HTML; ``each`` figure, or the first, opens the next of the records."""
    figures = [number for number, value in enumerate(line.values) if isinstance(value, Cell)]
    opened = {number: next(records, None) for number in (figures if each else figures[:1])}
    texts = [str(value or "") for value, column in zip(line.values, table.columns, strict=True) if column.text]
    names = [", ".join(filter(None, (line.label, *texts, str(column)))) for column in table.columns]
    return "".join(
        _cell(value, opened.get(number), names[number], text=table.columns[number].text)
        for number, value in enumerate(line.values)
    )


def _breakable(text: str) -> str:
    """Return escaped text that may break after commas, for long names of systems."""
    return re.sub(r",(?=\S)", ",<wbr>", escape(text))


def _cell(value: Value, record: int | None, name: str, *, text: bool = False) -> str:
    """Return a cell as HTML; a figure with a record is a button, which ``name`` describes."""
    if not isinstance(value, Cell):
        return f"<td{' class=label' * text}>{'–' if value is None else escape(value)}</td>"
    figure, label = value.figure, escape(f"{value.figure}, {name}: provenance")
    figure = f"<b>{figure}</b>" if value.best else figure
    if record is not None:
        figure = f'<button type="button" class="figure" aria-label="{label}" data-record="{record}">{figure}</button>'
    return f'<td data-v="{value.value!r}">{figure}{_annotations(value)}</td>'


def _annotations(cell: Cell) -> str:
    """Return the marks, the spread, and the difference to the published figure as HTML."""
    mark = f'<span class="mark">{cell.marks}</span>' if cell.marks else ""
    deviation = "" if cell.deviation is None else f"± {cell.form(cell.deviation)} "
    spread = f' <span class="interval">{deviation}{cell.interval}</span>' if deviation or cell.interval else ""
    kind = "" if cell.worse is None else ' class="loss"' if cell.worse else ' class="gain"'
    return mark + spread + (f" <span{kind}>{cell.difference}</span>" if cell.difference else "")


def write_page(page: Page, folder: Path) -> Path:
    """Write a page as :data:`NAME` into a folder, and return its path."""
    files.write_text(folder / NAME, as_html(page))
    return folder / NAME


def write_index(folder: Path) -> Path:
    """Write the index of all pages in the subfolders of a folder."""
    paths = sorted(folder.glob(f"[!.]*/{NAME}"))
    rows = "".join(map(_index_row, paths))
    head = "".join(_header(text, label=True) for text in ("report", "written (UTC)", "contents"))
    tools = _PageBuilder().tools("", {}, len(paths))
    table = _scrollable("", f"<tr>{head}</tr>", f"<tbody>{rows}</tbody>")
    page = _file(
        Page("Reports", f"{counted(len(paths), 'report')}.", []), [f"<section>{tools}{table}</section>"], {}, {}
    )
    files.write_text(folder / NAME, page)
    return folder / NAME


def _index_row(path: Path) -> str:
    """Return the row of a page in the index: its title, when it was written, and what it contains."""
    with path.open(encoding="utf-8", errors="replace") as handle:
        head = handle.read(1 << 16)
    title, about = (re.search(text, head) for text in ("<title>(.*?)</title>", 'name="description" content="(.*?)"'))
    shown = title[1] if title else escape(path.parent.name)
    link = f'<th scope="row"><a href="{escape(quote(path.parent.name))}/{NAME}">{shown}</a></th>'
    written = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M}"
    return f'<tr>{link}<td class="label">{written}</td><td class="label wrap">{about[1] if about else ""}</td></tr>'
