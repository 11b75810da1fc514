"""Tables as text: for a terminal, as Markdown, LaTeX, and CSV."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from pipeline.core.config import format_count
from pipeline.exchange.export import as_csv
from pipeline.scores.tables import Cell, Column, Table, Value, blocks, groups


def render_table(table: Table, output: str = "terminal", *, width: int = 100, brief: bool = False) -> str:
    """Return a table for a ``terminal``, as ``markdown``, ``csv`` or ``latex`` (``brief``: for a paper)."""
    if output == "terminal":
        return _terminal(table, width)
    if output == "csv":
        return as_csv(table.frame)
    return _latex(table, brief=brief) if output == "latex" else _markdown(table)


def _markdown(table: Table) -> str:
    """Return a heading, a pipe table and the notes."""
    header = [escape(str(column)) for column in (table.corner, *table.columns)]
    lines = [_markdown_row(header), _markdown_row([":---", *("---:" for _ in table.columns)])]
    lines += [_markdown_row([escape(line.label), *map(_markdown_cell, line.values)]) for line in table.lines]
    return "\n\n".join([f"### {escape(table.title)}", "\n".join(lines), *map(escape, table.notes)]) + "\n"


def escape(text: str) -> str:
    """Return text with Markdown and HTML markup escaped, on one line."""
    return re.sub(r"([\\`*_<>|\[\]&~#$])", r"\\\1", " ".join(text.splitlines()))


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _markdown_cell(value: Value) -> str:
    if not isinstance(value, Cell):
        return "–" if value is None else escape(value)
    figure = f"**{value.figure}**" if value.best else value.figure
    return f"{figure}{value.marks} {value.spread}".rstrip()


_GAP = "  "
_LEAST_TEXT = 30
"""Minimum width of a wrapped column."""


def _terminal(table: Table, width: int) -> str:
    """Return a table as aligned text; without a title, or labels of columns, there is no line for them.

    A table wider than ``width`` is split into blocks, with the row labels repeated; a last column of texts is wrapped.
    """
    cells = [_column(column, [line.values[i] for line in table.lines]) for i, column in enumerate(table.columns)]
    label_width = max(len(text) for text in (table.corner, *(line.label for line in table.lines)))
    widths = [len(texts[0]) + len(_GAP) for texts in cells]
    if table.columns and table.columns[-1].text:
        room = width - label_width - sum(widths[:-1]) - len(_GAP)
        widths[-1] = min(widths[-1], max(room, _LEAST_TEXT) + len(_GAP))
    sections = [table.title] if table.title else []
    start = 0
    for block in blocks(table, widths, width - label_width):
        end = start + len(block.columns)
        sections.append(_block(block, cells[start:end], label_width, [each - len(_GAP) for each in widths[start:end]]))
        start = end
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    sections += ["\n".join(map(wrapper.fill, table.notes))] if table.notes else []
    return "\n\n".join(sections) + "\n"


def _block(table: Table, cells: Sequence[Sequence[str]], label_width: int, widths: Sequence[int]) -> str:
    lines = []
    if any(column.group for column in table.columns):
        spans, start = [], 0
        for label, count in groups(table.columns):
            span_width = sum(widths[start : start + count]) + len(_GAP) * (count - 1)
            spans.append(f" {label} ".center(span_width, "-") if label else " " * span_width)
            start += count
        lines.append((" " * label_width + _GAP + _GAP.join(spans)).rstrip())
    rule = "-" * (label_width + sum(widths) + len(_GAP) * len(widths))
    if table.corner or any(column.label for column in table.columns):
        lines += [(table.corner.ljust(label_width) + _GAP + _GAP.join(texts[0] for texts in cells)).rstrip(), rule]
    for number, line in enumerate(table.lines, 1):
        if table.has_rule_above(number - 1):
            lines.append(rule)
        texts = [line.label.ljust(label_width), *(texts[number] for texts in cells)]
        if table.columns and table.columns[-1].text and len(texts[-1]) > widths[-1]:
            *before, last = texts
            first, *further = textwrap.wrap(last, widths[-1], break_long_words=False) or [""]
            indent = " " * (len(rule) - widths[-1])
            lines += [_GAP.join([*before, first]).rstrip(), *(indent + text for text in further)]
        else:
            lines.append(_GAP.join(texts).rstrip())
    return "\n".join(lines)


def _column(column: Column, values: Sequence[Value]) -> list[str]:
    """Return the label and the values of a column as texts of one width; the pieces of figures are aligned."""
    compared = any(isinstance(value, Cell) and value.difference for value in values)
    split_cells = [_pieces(value, 0 if compared else 2) for value in values]
    widths = [
        max(map(len, pieces)) for pieces in zip(*(pieces for pieces in split_cells if len(pieces) > 1), strict=True)
    ]
    texts = [
        "".join(f"{text:{side}{w}}" for text, w, side in zip(pieces, widths, "><>>>", strict=True))
        if pieces[1:]
        else pieces[0]
        for pieces in split_cells
    ]
    width = max(map(len, (column.label, *texts)))
    return [text.ljust(width) if column.text else text.rjust(width) for text in (column.label, *texts)]


def _pieces(value: Value, marks: int) -> tuple[str, ...]:
    """Return the pieces of a value that are aligned separately; ``marks`` is the minimum width of the marks."""
    if not isinstance(value, Cell):
        return ("-" if value is None else value,)
    deviation = "" if value.deviation is None else f"±{value.form(value.deviation)}"
    spread = (f" {text}" if text else "" for text in (deviation, value.interval, value.difference))
    return value.figure, ("*" * value.best + value.marks).ljust(marks), *spread


_COLUMNS, _NARROW = 4, 2
"""Columns with intervals that fit on a page, where further columns form blocks below, and in one of its columns."""
_LARGE = re.compile(r"\d{1,3}(?:,\d{3})+|(?<=\{)(?!(?:19|20)\d\d\})\d{4,}(?=\})")
"""Numbers with commas, and sizes that head columns."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "†": r"\textsuperscript{\dag}",
    "±": r"$\pm$",
    "–": "--",
}


def _latex(table: Table, *, brief: bool) -> str:
    """Return a table with its notes; ``brief``: those that explain marks, the others are comments above it."""
    shown = [note for note in table.notes if not brief or note.startswith(("Percent", "†"))]
    kind = "table" if brief and len(table.columns) <= _NARROW else "table*"
    lines = ["% needs the packages booktabs and xcolor", *(f"% {note}" for note in table.notes if note not in shown)]
    lines += [rf"\begin{{{kind}}}[t]", r"\centering\small", rf"\caption{{{escape_latex(table.title)}}}"]
    lines += [rf"\label{{tab:{re.sub('[^a-z0-9]+', '-', table.title.partition(' (')[0].lower())}}}"] if brief else []
    tabulars = map(_tabular, blocks(table, [1] * len(table.columns), _COLUMNS))
    notes = (" " if brief else " \\\\\n").join(map(escape_latex, shown)).replace("Bold or *", "Bold")
    lines.append("\n\\par\\medskip\n".join(tabulars))
    lines.append(r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize\raggedright" + f"\n{notes}")
    text = "\n".join([*lines, r"\end{minipage}", rf"\end{{{kind}}}"]) + "\n"
    return _LARGE.sub(_shortened, text) if brief else text


def _shortened(number: re.Match[str]) -> str:
    count = int(number[0].replace(",", ""))
    return format_count(round(count, -2 if count < 1_000_000 else -5))


def escape_latex(text: str) -> str:
    """Return text with LaTeX markup escaped."""
    return re.sub("|".join(map(re.escape, _ESCAPES)), lambda match: _ESCAPES[match[0]], text)


def _tabular(table: Table) -> str:
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        spans, rules, start = [], [], 2
        for label, count in groups(table.columns):
            spans.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(label)}}}")
            if label:
                rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
            start += count
        lines += [f" & {' & '.join(spans)} \\\\", "".join(rules)]
    lines.append(" & ".join(escape_latex(text) for text in (table.corner, *(c.label for c in table.columns))) + r" \\")
    lines.append(r"\midrule")
    for number, line in enumerate(table.lines):
        if table.has_rule_above(number):
            lines.append(r"\midrule")
        lines.append(" & ".join([escape_latex(line.label), *map(_latex_cell, line.values)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _latex_cell(value: Value) -> str:
    if not isinstance(value, Cell):
        return escape_latex("–" if value is None else value)
    figure = rf"\textbf{{{value.figure}}}" if value.best else value.figure
    deviation = "" if value.deviation is None else rf"$\pm${value.form(value.deviation)} "
    spread = rf"{{\scriptsize {deviation}{value.interval}}}" if deviation or value.interval else ""
    text = " ".join(filter(None, (figure + escape_latex(value.marks), spread, value.difference)))
    return text if value.worse is None else rf"\textcolor{{{'red' if value.worse else 'teal'}}}{{{text}}}"
