"""Rows of tables of text (CSV, TSV, columns between spaces) of any tool.

Separator and quoting are decided once, over the whole file: those under which most rows have the same number of cells.
Titles and comments before a header are skipped.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.errors import InputError
from pipeline.core.files import given
from pipeline.core.progress import say
from pipeline.sources.content import MAX_LINE, read_text
from pipeline.sources.records import Tally

SEPARATORS = "\t,;|"
NULLS = frozenset({"NaN", "nan", "NA", "N/A", "<NA>", "NaT", "NULL", "null", "None", "\\N"})
"""Cells of pandas, R and databases that stand for a missing value."""
NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What ``surrogateescape`` makes of a bad byte."""

_SPACES = " "
_MAX_BEFORE = 50
"""Maximum number of rows before a header: titles, comments and blank rows."""
_MAX_RETRIED = 1_000
"""Maximum number of lines that are read again after a quote without end."""
_TOO_LONG = "\0line too long"
_LONE_BACKSLASH = re.compile(r'(?<!\\)\\(?:\\\\)*(?![\\"])')
_NO_ESCAPE = re.compile(r'\\(?!")')
_SICI = re.compile(r"(?i)(?<=\d\.\d\.[a-z]{2});(?=2)")
_SEPARATES = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars", _SPACES: "white space"}


class Dialect(NamedTuple):
    """How a file writes its rows.

    Attributes:
        separator: between cells; a space stands for any white space.
        quote: around cells that have separators or line ends; empty: quotes are text.
        escape: before a quote that is text; empty: such quotes are doubled.
        plain_backslashes: whether backslashes before other characters are text.
        width: number of cells of most rows.
    """

    separator: str
    quote: str = '"'
    escape: str = ""
    plain_backslashes: bool = False
    width: int = 1

    def __str__(self) -> str:
        quotes = "quotes are text" if not self.quote else "quotes escaped by backslashes" if self.escape else ""
        return f"{_SEPARATES.get(self.separator, repr(self.separator))} between cells{', ' * bool(quotes)}{quotes}"

    def cells(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yield the cells of rows; :class:`csv.Error` is raised for a bad row, and iteration may go on."""
        if self.separator == _SPACES:
            return map(str.split, lines)
        if self.plain_backslashes:
            lines = (_NO_ESCAPE.sub(r"\\\\", line) for line in lines)
        csv.field_size_limit(MAX_LINE)
        return csv.reader(
            lines,
            delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape or None,
            doublequote=not self.escape,
            skipinitialspace=True,
            strict=True,
        )


class _Seen:
    """What a pass over the lines of a file finds."""

    def __init__(self) -> None:
        self.quotes = self.escapes = self.lone_backslashes = False
        self.lines = 0

    def lines_of(self, path: Path) -> Iterator[str]:
        """Yield the lines, with their ends; a line that is too long is :data:`_TOO_LONG`."""
        for block in read_text(path, "a table"):
            text = f"{_TOO_LONG}\n" if block is None else block.decode("utf-8", "surrogateescape")
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", " ")
            self.quotes |= '"' in text
            if "\\" in text:
                self.escapes |= '\\"' in text
                self.lone_backslashes |= _LONE_BACKSLASH.search(text) is not None
            yield from io.StringIO(text, newline="\n")
            self.lines += text.count("\n") + (not text.endswith("\n"))


def dialect_of(tally: Tally, *, spaces: bool = False) -> Dialect:
    """Return the dialect of a table; ``spaces``: white space may separate its cells."""
    stat = given(tally.path).stat()
    stamp = stat.st_size, stat.st_mtime_ns
    return _decided(tally.path, stamp, spaces=spaces)


@functools.lru_cache(maxsize=1024)
def _decided(path: Path, _stamp: tuple[int, int], *, spaces: bool) -> Dialect:
    def lines(seen: _Seen) -> Iterator[str]:
        return seen.lines_of(path)

    usual = "\t" if ".tsv" in path.suffixes else ""
    scored = dict[Dialect, int]()
    for separator in _candidates([*itertools.islice(lines(_Seen()), _MAX_BEFORE)], usual, spaces=spaces):
        seen = _Seen()
        dialect, score, bad = _scored(Dialect(separator), lines(seen))
        if not bad and score == seen.lines and not seen.escapes:
            return dialect
        scored[dialect] = score
        others = [Dialect(separator, escape="\\", plain_backslashes=seen.lone_backslashes)] if seen.escapes else []
        for other in [*others, Dialect(separator, quote="")] if seen.quotes and separator != _SPACES else []:
            changed, other_score, _ = _scored(other, lines(_Seen()))
            scored[changed] = other_score
        if not bad and max(scored.values()) == score:
            return dialect
    return max(scored, key=scored.__getitem__)


def _candidates(first: Sequence[str], usual: str, *, spaces: bool) -> str:
    """Return the separators that the first lines may have: the usual one, then the most frequent in the first row."""
    if first and (declared := re.fullmatch(r"sep=(.)\s*", first[0])):
        return declared[1]
    sample = [_SICI.sub(":", line) for line in first if line.strip()]
    start = next((line for line in sample if not line.startswith("#")), "")
    if spaces and not any(separator in start for separator in SEPARATORS):
        return _SPACES
    found = [separator for separator in SEPARATORS if any(separator in line for line in sample)]
    return (
        "".join(sorted(found, key=lambda separator: (separator == usual, start.count(separator)), reverse=True)) or ","
    )


def _scored(dialect: Dialect, lines: Iterator[str]) -> tuple[Dialect, int, int]:
    """Return the dialect with the width of most rows, how many have it minus how many do not, and how many do not."""
    widths, bad, rows = Counter[int](), 0, dialect.cells(lines)
    while True:
        try:
            for row in rows:
                widths[len(row)] += 1
            break
        except csv.Error:
            bad += 1
    del widths[0]
    width, most = max(widths.items(), key=lambda item: (item[0] > 1, item[1], item[0]), default=(1, 0))
    bad += widths.total() - most
    return dialect._replace(width=width), most - bad if width > 1 else -1, bad


def open_table(
    tally: Tally,
    is_header: Callable[[Sequence[str]], bool] | None = None,
    *,
    header: bool = True,
    dialect: Dialect | None = None,
) -> tuple[list[str] | None, str, Iterator[tuple[int, list[str]]]]:
    """Return names of columns, None without a header, separator, and line, from 1, and cells of the rows of a table.

    The first row that ``is_header`` has the names of the columns, also behind a ``#``. Without one, and with
    ``header``, it is the first row, behind titles and comments (``#``), of as many cells as most; else there are no
    names, and white space may separate columns. A row with more cells than names, or with a broken quote, is dropped.

    Raises:
        InputError: a column occurs twice; the file is another kind of text.
        CorruptError: the file is truncated or damaged.
    """
    dialect = dialect or dialect_of(tally, spaces=not header)
    if tally.says_dialect:
        _say_once(tally.path, dialect)
    rows = _rows(tally, dialect)
    before = list(itertools.islice(rows, _MAX_BEFORE))
    position = next((at for at, (_, row) in enumerate(before) if is_header and is_header(_plain(row))), None)
    if position is None and header:
        whole = (at for at, (_, row) in enumerate(before) if len(row) == dialect.width and _is_data(row))
        position = next((at for at in whole if 2 * sum(map(bool, before[at][1])) > dialect.width), 0)
    names = None
    if position is not None:
        names, before = _plain(before[position][1]) if before else [], before[position + 1 :]
    rows = itertools.chain(before, rows)
    if names is None:
        rows = (numbered for numbered in rows if _is_data(numbered[1]) or len(numbered[1]) == dialect.width > 1)
    elif twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise InputError(f"{tally.path} must have each column once, got {min(twice)!r} twice", "Rename one of them")
    return names, dialect.separator, _readable(rows, names, tally)


def read_table(
    tally: Tally, is_header: Callable[[Sequence[str]], bool] | None = None, *, header: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table (:func:`open_table`) as texts by column, without a header by number: ``0``, ``1``...

    Missing values, and cells that a row lacks, are empty texts.
    """
    names, _, rows = open_table(tally, is_header, header=header)
    for tally.line, row in rows:
        cells = ["" if cell in NULLS else cell for cell in row]
        columns = [*map(str, range(len(row)))] if names is None else names
        yield dict(zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=False))


def _plain(row: Sequence[str]) -> list[str]:
    """Return the cells of a header."""
    return [row[0].lstrip("# ").strip(), *(cell.strip() for cell in row[1:])]


def _is_data(row: Sequence[str]) -> bool:
    return not row[0].startswith("#")


def _readable(
    rows: Iterable[tuple[int, list[str]]], names: Sequence[str] | None, tally: Tally
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that can be read, but repetitions of the header, and drop the others."""
    for tally.line, row in rows:
        text = "\t".join(row)
        if row[0] == _TOO_LONG:
            tally.drop("line_too_long")
        elif NOT_UTF8.search(text):
            tally.drop("bad_utf8", text.encode("utf-8", "surrogateescape"))
        elif names is not None and any(row[len(names) :]):
            tally.drop("bad_columns", f"{len(row)} cells, {len(names)} columns")
        elif row != names:
            yield tally.line, row


def _rows(tally: Tally, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield line, from 1, and cells of the rows that are not blank; drop and count those that cannot be read.

    A quote without end drops its line alone: the lines behind it are read again, and have to be whole rows.
    """
    lines = _Seen().lines_of(tally.path)
    if dialect.separator == _SPACES:
        yield from ((number, words) for number, line in enumerate(lines, 1) if (words := line.split()))
        return
    waiting, taken = deque[str](), list[str]()
    number = again_until = 0

    def next_lines() -> Iterator[str]:
        for line in iter(lambda: waiting.popleft() if waiting else next(lines, None), None):
            taken.append(line)
            yield line

    while True:
        try:
            for row in dialect.cells(next_lines()):
                first, number = number + 1, number + len(taken)
                joined = _joined_rows(dialect, taken)
                taken.clear()
                if not any(row):
                    continue
                tally.line = first
                if first <= again_until and len(row) != dialect.width:
                    tally.drop("bad_columns", f"{len(row)} cells, {dialect.width} columns, behind an open quote")
                    continue
                if joined:
                    tally.noted["rows_within_quotes"] += joined
                    tally.show("rows_within_quotes", dialect.separator.join(row))
                yield first, row
            return
        except csv.Error as error:
            tally.line = number + 1
            tally.drop("bad_columns", str(error))
            if len(taken) > _MAX_RETRIED:
                tally.read += len(taken) - 1
                tally.dropped["bad_columns"] += len(taken) - 1
                number += len(taken)
            else:
                waiting.extendleft(reversed(taken[1:]))
                again_until = max(again_until, number + len(taken))
                number += 1
            taken.clear()


def _joined_rows(dialect: Dialect, lines: Sequence[str]) -> int:
    """Return how many of the lines within a row seem to be whole rows, as behind a quote that is text."""
    of_cells = [line.split(dialect.separator) for line in lines[1:-1]]
    return sum(len(cells) == dialect.width > 1 and bool(re.fullmatch(r"\S+", cells[0])) for cells in of_cells)


_said = set[tuple[Path, Dialect]]()


def _say_once(path: Path, dialect: Dialect) -> None:
    """Print the dialect of a file, unless another of its folder has the same."""
    if (path.parent, dialect) not in _said:
        _said.add((path.parent, dialect))
        say(f"{path.name}: {dialect}")
