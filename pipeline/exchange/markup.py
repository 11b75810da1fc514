"""Tables of Markdown and LaTeX, as lists of cells a row, the header first."""

from __future__ import annotations

import re
from collections.abc import Iterator

Grid = list[list[str]]

_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-*:?\s*)*\|?\s*")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"<[^>]+>")
_SUPERSCRIPT = re.compile(r"<sup>.*?</sup>", re.DOTALL)
_TABULAR = re.compile(r"\\begin\{(tabular|tabularx|longtable|tabular\*|tabulary)\}(.*?)\\end\{\1\}", re.DOTALL)
_COMMENT = re.compile(r"(?<!\\)%.*")
_DROPPED = re.compile(
    r"\\(?:cite[tp]?|footnote|label|ref|cellcolor|rowcolor|cmidrule|cline|vspace|hspace|addlinespace|color)\*?"
    r"(?:\([^)]*\))?(?:\[[^\]]*\])*(?:\{[^{}]*\})*|\\(?:hline|toprule|midrule|bottomrule|centering|small|tiny|bf|it|footnotesize)\b"
)
_SPAN = re.compile(r"\s*\\multicolumn\{(\d+)\}\{[^{}]*\}\{(.*)\}\s*", re.DOTALL)
_ROW_SPAN = re.compile(r"\\multirow\{[^{}]*\}(?:\[[^\]]*\])?\{[^{}]*\}")
_COMMAND = re.compile(r"\\(?:text\w*|emph|underline|uline|mathbf|mathrm|textsc|bm|makecell|shortstack)\s*(?=\{)")
_SYMBOLS = {
    "\\%": "%", "\\&": "&", "\\_": "_", "\\#": "#", "\\pm": "±", "\\downarrow": "↓", "\\uparrow": "↑",
    "\\rightarrow": "→", "\\dagger": "†", "\\ddagger": "‡", "\\,": "", "\\ ": " ", "~": " ", "$": "", "\\\\": " ",
}  # fmt: skip


def markdown(text: str) -> Iterator[Grid]:
    """Yield the tables of a Markdown text."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "|" in line and number and _RULE.fullmatch(line) and "|" in lines[number - 1]:
            body = []
            for row in lines[number + 1 :]:
                if "|" not in row:
                    break
                body.append(row)
            yield [_markdown_cells(row) for row in (lines[number - 1], *body)]


def _markdown_cells(line: str) -> list[str]:
    text = line.strip().removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [_plain(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", text)]


def _plain(cell: str) -> str:
    """Return a cell of Markdown without links, tags and emphasis."""
    text = _TAG.sub("", _SUPERSCRIPT.sub("", _LINK.sub(r"\1", cell))).strip()
    while (inner := re.fullmatch(r"(\*\*|__|\*|_|`|~~)(.+)\1", text)) and inner[1] not in inner[2]:
        text = inner[2].strip()
    return text.replace("&nbsp;", " ").strip()


def latex(text: str) -> Iterator[Grid]:
    """Yield the tables of a LaTeX text; a header of several rows is joined: ``nDCG@10 NQ``."""
    for found in _TABULAR.finditer(_COMMENT.sub("", text)):
        body = re.sub(r"^(\[[^\]]*\])?(\{(?:[^{}]|\{[^{}]*\})*\})+", "", found[2].strip())
        body = _DROPPED.sub("", body).replace("\\tabularnewline", "\\\\")
        rows = [row for line in re.split(r"\\\\(?:\[[^\]]*\])?", body) if any(row := [*_latex_cells(line)])]
        if width := max(map(len, rows), default=0):
            yield _one_header([row + [""] * (width - len(row)) for row in rows])


def _latex_cells(line: str) -> Iterator[str]:
    for cell in re.split(r"(?<!\\)&", line):
        span = _SPAN.fullmatch(cell)
        text = _latex_text(span[2] if span else cell)
        yield from [text] * (int(span[1]) if span else 1)


def _latex_text(cell: str) -> str:
    text = re.sub(r"[\^_]\{([^{}]*)\}", lambda script: f" {script[1]}" if "\\pm" in script[1] else "", cell)
    text = _COMMAND.sub("", _ROW_SPAN.sub("", text))
    for symbol, plain in _SYMBOLS.items():
        text = text.replace(symbol, plain)
    text = re.sub(r"\\[a-zA-Z]+", "", text)
    return " ".join(text.replace("{", "").replace("}", "").split())


def _one_header(grid: Grid) -> Grid:
    """Return a table whose header is one row: rows above the first that has numbers, column by column."""
    numbers = [sum(bool(re.fullmatch(r"\W*\d[\d.,]*\W*.{0,12}", cell)) for cell in row[1:]) for row in grid]
    first = next((number for number, count in enumerate(numbers) if 2 * count >= len(grid[0]) - 1 and count), 1)
    heads = [row for row in grid[:first] if sum(map(bool, row)) > 1] or grid[:1]
    names = [" ".join(dict.fromkeys(row[column] for row in heads if row[column])) for column in range(len(grid[0]))]
    return [names, *grid[max(first, 1) :]]
