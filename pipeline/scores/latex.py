"""Tables as LaTeX: a ``table*`` with the rules of the package ``booktabs``; colours are those of ``xcolor``."""

from __future__ import annotations

import re

from pipeline.scores.tables import Cell, PublishedCell, Table, Value, blocks, groups, percent

_COLUMNS = 4
"""Columns that fit on a page with their intervals; more are split into blocks below each other."""

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
    "≈": r"\textsuperscript{$\approx$}",
    "–": "--",
}


def render(table: Table) -> str:
    """Return a table as LaTeX that ends with a line break; the caption is its title, the notes follow."""
    parts = [r"\begin{table*}[t]", r"\centering\small", rf"\caption{{{escape(table.title)}}}"]
    parts.append(
        "\n\\par\\medskip\n".join(_tabular(block) for block in blocks(table, [1] * len(table.columns), _COLUMNS))
    )
    notes = " \\\\\n".join(escape(note) for note in table.notes)
    parts.append(r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize\raggedright" + f"\n{notes}")
    parts += [r"\end{minipage}", r"\end{table*}"]
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text with LaTeX markup escaped."""
    return re.sub("|".join(map(re.escape, _ESCAPES)), lambda match: _ESCAPES[match[0]], text)


def _tabular(table: Table) -> str:
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        spans, rules, start = [], [], 2
        for label, count in groups(table.columns):
            spans.append(rf"\multicolumn{{{count}}}{{c}}{{{escape(label)}}}")
            if label:
                rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
            start += count
        lines += [f" & {' & '.join(spans)} \\\\", "".join(rules)]
    lines.append(" & ".join(escape(text) for text in (table.corner, *(c.label for c in table.columns))) + r" \\")
    lines.append(r"\midrule")
    for line in table.lines:
        if line.summary:
            lines.append(r"\midrule")
        lines.append(" & ".join([escape(line.label), *map(_text, line.values)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _text(value: Value) -> str:
    if isinstance(value, PublishedCell):
        interval = rf"{{\scriptsize {value.interval}}}" if value.interval else ""
        shown = " ".join(filter(None, (percent(value.value), interval, value.difference)))
        return shown if value.worse is None else rf"\textcolor{{{'red' if value.worse else 'teal'}}}{{{shown}}}"
    if not isinstance(value, Cell):
        return escape("–" if value is None else str(value))
    shown = rf"\textbf{{{percent(value.value)}}}" if value.best else percent(value.value)
    deviation = "" if value.deviation is None else rf"$\pm${percent(value.deviation)} "
    return rf"{shown}{escape(value.marks)} {{\scriptsize {deviation}[{percent(value.low)}, {percent(value.high)}]}}"
