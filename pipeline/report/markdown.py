"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.report.tables import Cell, Figure, Table, percent

_MISSING = "–"


def render(table: Table) -> str:
    """Return a table as Markdown that ends with a line break: a heading, a pipe table, the notes."""
    header = [table.corner, *(f"{column.group} {column.label}".strip() for column in table.columns)]
    lines = [_line(header), _line([":---", *("---:" for _ in table.columns)])]
    lines += [_line([line.label, *map(_cell, line.cells)]) for line in table.lines]
    return "\n\n".join([f"### {table.title}", "\n".join(lines), *table.notes]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Figure):
        return _MISSING if cell is None else cell
    value = percent(cell.value)
    value = f"**{value}**" if cell.best else value
    deviation = "" if cell.deviation is None else f" ± {percent(cell.deviation)}"
    return f"{value}{'†' * cell.marked}{deviation} [{percent(cell.low)}, {percent(cell.high)}]"
