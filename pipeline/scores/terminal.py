"""Tables for a terminal: aligned, as wide as asked for, bold only where the terminal can."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pipeline.scores.tables import Cell, Column, PublishedCell, Table, Value, blocks, groups, percent

_GAP = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_WORSE, _BETTER = "\x1b[31m", "\x1b[32m"


def render(table: Table, width: int = 100, *, ansi: bool = False) -> str:
    """Return a table as text that ends with a line break.

    A table wider than ``width`` is split into blocks, with the row labels repeated. With ``ansi``, the best figures are
    bold, not marked by ``*``, and differences to published figures have colours.
    """
    shown = [_column(column, [line.values[i] for line in table.lines], ansi) for i, column in enumerate(table.columns)]
    labels = max(len(text) for text in (table.corner, *(line.label for line in table.lines)))
    widths = [len(texts[0]) + len(_GAP) for texts in shown]
    parts = [table.title]
    start = 0
    for block in blocks(table, widths, width - labels):
        end = start + len(block.columns)
        parts.append(_block(block, shown[start:end], labels))
        start = end
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    parts.append("\n".join(map(wrapper.fill, table.notes)))
    return "\n\n".join(parts) + "\n"


def _block(table: Table, shown: Sequence[Sequence[str]], labels: int) -> str:
    widths = [len(texts[0]) for texts in shown]
    lines = []
    if any(column.group for column in table.columns):
        spans, start = [], 0
        for label, count in groups(table.columns):
            room = sum(widths[start : start + count]) + len(_GAP) * (count - 1)
            spans.append(f" {label} ".center(room, "-") if label else " " * room)
            start += count
        lines.append((" " * labels + _GAP + _GAP.join(spans)).rstrip())
    lines.append((table.corner.ljust(labels) + _GAP + _GAP.join(texts[0] for texts in shown)).rstrip())
    rule = "-" * (labels + sum(widths) + len(_GAP) * len(widths))
    lines.append(rule)
    for number, line in enumerate(table.lines, 1):
        if line.summary:
            lines.append(rule)
        lines.append((line.label.ljust(labels) + _GAP + _GAP.join(texts[number] for texts in shown)).rstrip())
    return "\n".join(lines)


def _column(column: Column, values: Sequence[Value], ansi: bool) -> list[str]:
    """Return the label and the values of a column, all of one width; figures are aligned part by part."""
    marks = max((len(value.marks) for value in values if isinstance(value, Cell)), default=0)
    parts = [_parts(value, ansi, max(marks, 1) + (not ansi)) for value in values]
    widths = [max(map(len, pieces)) for pieces in zip(*(pieces for pieces in parts if len(pieces) > 1), strict=True)]
    texts = [
        "".join(text.rjust(w) for text, w in zip(pieces, widths, strict=True)) if pieces[1:] else pieces[0]
        for pieces in parts
    ]
    width = max(map(len, (column.label, *texts)))
    shown = [text.rjust(width) for text in texts]
    if ansi:
        shown = [_marked(text, value) for text, value in zip(shown, values, strict=True)]
    return [column.label.rjust(width), *shown]


def _parts(value: Value, ansi: bool, marks: int) -> tuple[str, ...]:
    if isinstance(value, PublishedCell):
        return percent(value.value), *(f" {text}" if text else "" for text in (value.interval, value.difference))
    if not isinstance(value, Cell):
        return ("-" if value is None else str(value),)
    return (
        percent(value.value),
        ("*" * (value.best and not ansi) + value.marks).ljust(marks),
        "" if value.deviation is None else f" ±{percent(value.deviation)}",
        f" [{percent(value.low)}, {percent(value.high)}]",
    )


def _marked(text: str, value: Value) -> str:
    if isinstance(value, PublishedCell) and value.worse is not None:
        return f"{_WORSE if value.worse else _BETTER}{text}{_PLAIN}"
    if not isinstance(value, Cell) or not value.best:
        return text
    return text.replace(percent(value.value), f"{_BOLD}{percent(value.value)}{_PLAIN}", 1)
