"""Make the figures of the docs again, and fail where a printed digit differs.

``python -m docs.figures [--root FOLDER] [PAGE ...]``. A comment above a table or block of a page has its commands::

    <!-- figures: mdcr demo && mdcr show --corpus demo --size 1k -->

``above``, if it is first, stands for the commands of the block above. They run in a workspace: ``--root``, of which
nothing is made twice, else a temporary one. ``$MDCR_SHARED`` is the data folder (default: ``../shared``). The words and
numbers of a row must stand, in order, in one line that the last command prints, below its title. A number is equal if
it rounds to the printed digits, as a fraction or in percent.
``<!-- figures, but minilm: ... -->`` leaves out the rows with a word. What takes long is not made again: such a table
stands below a line "Measured in", with date and machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?(?![\w])")
_BLOCK = re.compile(
    r"^<!-- figures(?:, but ([^:\n]+))?: ([^\n]+) -->\n+((?:\|[^\n]*\n)+|```\n.*?^```$)", re.DOTALL | re.MULTILINE
)


_FENCE = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A table or block: the line where it begins, its commands, its rows, and the words of rows that are left out."""

    line: int
    commands: list[str]
    rows: list[str]
    without: list[str]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that are made again."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        rows = [row for row in match[3].splitlines() if _NUMBER.search(row)]
        without = match[1].split(", ") if match[1] else []
        first, *others = match[2].split(" && ")
        above = _FENCE.findall(text[: match.start()])[-1:] if first == "above" else [first]
        commands = [re.split(r"\s+#", line)[0] for block in above for line in block.strip().splitlines()]
        yield Block(text[: match.start(3)].count("\n") + 1, [*commands, *others], rows, without)


def parts(row: str) -> tuple[list[str], list[str]]:
    """Return the words and numbers of a row of a table, or of a line, without marks of tests and of the best."""
    plain = _plain(row)
    cells = [cell.strip() for cell in (plain.strip("| ").split("|") if "|" in row[:1] else re.split(r"  +", plain))]
    words = [cell for cell in cells if re.match(r"[A-Za-z]", cell)]
    return words, [number for cell in cells if cell not in words for number in _NUMBER.findall(cell)]


def equal(printed: str, made: str) -> bool:
    """Return whether a number that was made rounds to a printed one, as it is or in percent."""
    digits, value, exact = len(printed.partition(".")[2]), *(float(text.replace(",", "")) for text in (printed, made))
    scales = (1, 100) if "." in made else (1,)
    return any(abs(scale * exact - value) <= 0.5000001 * 10.0**-digits for scale in scales)


def titled(output: str) -> Iterator[str]:
    """Yield each line after its title, the line above it that an empty one follows."""
    title, lines = "", [*output.splitlines(), ""]
    for line, after in itertools.pairwise(lines):
        if line.strip():
            yield f"{title} {line}"
        if line.strip() and not after.strip():
            title = line


def is_in(row: str, line: str) -> bool:
    """Return whether the words of a row stand in a line, and its numbers in the same order."""
    words, numbers = parts(row)
    plain = _plain(line)
    made = iter(_NUMBER.findall(plain))
    return all(re.search(rf"(?<![^\s,|(]){re.escape(word)}(?![^\s,|])", plain) for word in words) and all(
        any(equal(number, each) for each in made) for number in numbers
    )


def _plain(line: str) -> str:
    return re.sub(r"[*†`]", " ", line)


def run(command: str, root: Path) -> str:
    """Run a command in a workspace and return what it prints."""
    settings = {
        "MDCR_SHARED": os.environ.get("MDCR_SHARED", str(ROOT.parent / "shared")),
        "COLUMNS": "100",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=root, env={**os.environ, **settings}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def check(page: Path, root: Path) -> Iterator[str]:
    """Yield a line for each row of a page that no line of the output has."""
    for block in blocks(page):
        *before, last = block.commands
        for command in before:
            run(command, root)
        lines = [*titled(run(last, root))]
        for row in block.rows:
            left_out = any(word in row for word in block.without)
            if not left_out and parts(row)[1] and not any(is_in(row, line) for line in lines):
                yield f"{page.relative_to(ROOT)}:{block.line}: {last}\n  prints no line with: {row}"


def main() -> None:
    """Check the pages, print what differs, and exit with 1 if anything does."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--root", type=Path, help="workspace to keep and go on with (default: a temporary one)")
    options.add_argument("pages", nargs="*", type=Path, help="pages (default: all)")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = given.root or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        pages = [page.resolve() for page in given.pages] or PAGES
        differ = [line for page in pages for line in check(page, root)]
        count = sum(len(block.rows) for page in pages for block in blocks(page))
    print("\n".join([*differ, f"{count} rows of {len(pages)} pages, {len(differ)} differ"]))
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
