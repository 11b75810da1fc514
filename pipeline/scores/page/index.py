"""Writing pages, and the index of a folder of several reports."""

from __future__ import annotations

import html
import re
from pathlib import Path

from pipeline.core import files
from pipeline.scores.page.parts import Page
from pipeline.scores.page.write import as_html, as_index

NAME = "index.html"


def write_page(page: Page, folder: Path) -> Path:
    """Write a page as ``index.html`` of a folder, and return it."""
    files.write_text(folder / NAME, as_html(page))
    return folder / NAME


def write_index(folder: Path) -> Path:
    """Write the index of all pages in the folders of a folder, by name, and return it."""
    found = {path.parent.name: _described(path) for path in sorted(folder.glob(f"[!.]*/{NAME}"))}
    files.write_text(folder / NAME, as_index(found))
    return folder / NAME


def _described(path: Path) -> tuple[str, str]:
    """Return title and description of a page."""
    with path.open(encoding="utf-8", errors="replace") as handle:
        head = handle.read(1 << 16)
    found = [
        re.search(pattern, head) for pattern in ("<title>(.*?)</title>", '<meta name="description" content="(.*?)">')
    ]
    title, about = (html.unescape(each[1]) if each else "" for each in found)
    return title or path.parent.name, about
