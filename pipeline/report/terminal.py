"""Tables for a terminal: aligned, as wide as asked for, bold only where the terminal can."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pipeline.report.tables import Cell, Column, Figure, Table, blocks, groups, percent

_GAP = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_MISSING = "-"


def render(table: Table, width: int = 100, *, ansi: bool = False) -> str:
    """Return a table as text that ends with a line break.

    Args:
        table: what to show.
        width: columns of the terminal; a table that is wider comes in blocks below each other, row labels repeated.
        ansi: show the best figures in bold by ANSI codes; otherwise a ``*`` marks them.
    """
    shown = [_column(column, [line.cells[i] for line in table.lines], ansi) for i, column in enumerate(table.columns)]
    labels = max(len(text) for text in (table.corner, *(line.label for line in table.lines)))
    widths = [len(cells[0]) + len(_GAP) for cells in shown]
    parts = [table.title]
    start = 0
    for block in blocks(table, widths, width - labels):
        end = start + len(block.columns)
        parts.append(_block(block, shown[start:end], labels))
        start = end
    parts.append("\n".join(_wrapped(note, width) for note in table.notes))
    return "\n\n".join(parts) + "\n"


def _block(table: Table, shown: Sequence[Sequence[str]], labels: int) -> str:
    widths = [len(cells[0]) for cells in shown]
    lines = []
    if any(column.group for column in table.columns):
        spans, start = [], 0
        for label, count in groups(table.columns):
            room = sum(widths[start : start + count]) + len(_GAP) * (count - 1)
            spans.append(f" {label} ".center(room, "-") if label else " " * room)
            start += count
        lines.append((" " * labels + _GAP + _GAP.join(spans)).rstrip())
    lines.append((table.corner.ljust(labels) + _GAP + _GAP.join(cells[0] for cells in shown)).rstrip())
    rule = "-" * (labels + sum(widths) + len(_GAP) * len(widths))
    lines.append(rule)
    for number, line in enumerate(table.lines, 1):
        if line.summary:
            lines.append(rule)
        lines.append((line.label.ljust(labels) + _GAP + _GAP.join(cells[number] for cells in shown)).rstrip())
    return "\n".join(lines)


def _column(column: Column, cells: Sequence[Cell], ansi: bool) -> list[str]:
    """Return the label and the cells of a column, all of one width; figures are aligned part by part."""
    parts = [_parts(cell, ansi) for cell in cells]
    widths = [max(map(len, each)) for each in zip(*(each for each in parts if len(each) > 1), strict=True)]
    texts = [
        "".join(text.rjust(w) for text, w in zip(each, widths, strict=True)) if each[1:] else each[0] for each in parts
    ]
    width = max(map(len, (column.label, *texts)))
    shown = [text.rjust(width) for text in texts]
    if ansi:
        shown = [_bold(text, cell) for text, cell in zip(shown, cells, strict=True)]
    return [column.label.rjust(width), *shown]


def _parts(cell: Cell, ansi: bool) -> tuple[str, ...]:
    if not isinstance(cell, Figure):
        return (_MISSING if cell is None else cell,)
    return (
        percent(cell.value),
        ("*" * (cell.best and not ansi) + "†" * cell.marked).ljust(2 - ansi),
        "" if cell.deviation is None else f" ±{percent(cell.deviation)}",
        f" [{percent(cell.low)}, {percent(cell.high)}]",
    )


def _bold(text: str, cell: Cell) -> str:
    if not isinstance(cell, Figure) or not cell.best:
        return text
    value = percent(cell.value)
    return text.replace(value, f"{_BOLD}{value}{_PLAIN}", 1)


def _wrapped(note: str, width: int) -> str:
    return textwrap.fill(note, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
